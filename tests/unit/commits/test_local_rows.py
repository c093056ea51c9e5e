"""Changes of few rows are read in this process: what came and went between two snapshots, and where rows are."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from service.catalog.tables import Catalog, Table
from service.commits import local_rows
from service.commits.compared import changes_between
from service.commits.local_rows import LocalResult, LocalSource, changed_rows
from service.model.dynamic.plan import WEIGHT
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import TableSchema
from tests.unit.iceberg_tables import ORDERS, make_table, open_catalog


def rows(*countries: str | None, first: int = 0) -> pa.Table:
    ids = pa.array(range(first, first + len(countries)), pa.int64())
    return pa.table({"id": ids, "country": pa.array(countries, pa.string())})


class Orders:
    """A table with real files."""

    def __init__(self, home: Path, *, partitioned: bool = False) -> None:
        self.catalog: Catalog = open_catalog(home)
        make_table(self.catalog, partitioned=partitioned)

    @property
    def table(self) -> Table:
        return self.catalog.load(ORDERS)

    def add(self, *countries: str | None, first: int = 0) -> int | None:
        self.table.iceberg.append(rows(*countries, first=first))
        return self.table.current_snapshot_id

    def delete(self, country: str) -> int | None:
        self.table.iceberg.delete(EqualTo("country", country))
        return self.table.current_snapshot_id

    def changes(self, since: int | None, *columns: str) -> list[tuple[object, ...]] | None:
        """The values of the rows that changed, with their weights, in order."""
        table = self.table
        fields = tuple(field for field in table.schema.fields if not columns or field.name in columns)
        found = changed_rows(table, changes_between(table, since, table.current_snapshot_id), TableSchema(fields))
        return found and sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def test_rows_that_came_have_weights_above_0(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    since = orders.add("CH", "AT")
    orders.add("CH", None, first=2)
    assert orders.changes(since) == [(2, "CH", 1), (3, None, 1)]


def test_rows_that_were_only_written_again_are_no_change(tmp_path: Path) -> None:
    """PyIceberg deletes a row by writing the others of its file again."""
    orders = Orders(tmp_path)
    since = orders.add("CH", "AT", "DE", "AT")
    orders.delete("AT")
    assert orders.changes(since) == [(1, "AT", -1), (3, "AT", -1)]
    assert orders.changes(since, "country") == [("AT", -2)]


def test_a_row_that_came_and_went_is_no_change(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    since = orders.add("CH")
    orders.add("AT", first=1)
    orders.delete("AT")
    assert changes_between(orders.table, since, orders.table.current_snapshot_id) == ()


def test_all_rows_of_a_table_that_was_empty_came(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    orders.add("CH")
    assert orders.changes(None) == [(0, "CH", 1)]


def test_without_a_newer_snapshot_nothing_has_changed(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    assert changes_between(orders.table, None, None) == ()
    at = orders.add("CH")
    assert changes_between(orders.table, at, at) == ()


def test_many_rows_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Orders(tmp_path)
    since = orders.add("CH")
    orders.add("AT", "AT")
    monkeypatch.setattr(local_rows, "_MOST_ROWS", 1)
    assert orders.changes(since) is None
    monkeypatch.setattr(local_rows, "_MOST_ROWS", 10)
    monkeypatch.setattr(local_rows, "_MOST_VALUES", 3)
    assert orders.changes(since) is None


def test_rows_are_read_with_their_places(tmp_path: Path) -> None:
    orders = Orders(tmp_path, partitioned=True)
    orders.add("CH", "AT", "CH")
    table = orders.table
    found = LocalResult(table, table.schema).read([file.path for file in local_rows.list_files(table).data])
    assert found is not None
    placed = {
        (path, pos): row for path, pos, row in zip(*(found[n].to_pylist() for n in (*PLACE_COLUMNS, "id")), strict=True)
    }
    assert len(placed) == 3
    assert sorted(placed.values()) == [0, 1, 2]


def test_rows_are_found_by_their_contents_as_often_as_they_go(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    for first in (0, 0, 5):
        orders.add("CH", "AT", first=first)
    result = LocalResult(orders.table, orders.table.schema)
    gone = rows("CH").append_column(WEIGHT, pa.array([-2], pa.int64()))
    found = result.places(gone)
    assert found is not None
    assert [at.to_pylist() for at in found.values()] == [[0], [0]]
    assert result.places(rows("CH").append_column(WEIGHT, pa.array([-3], pa.int64()))) is None


@pytest.mark.parametrize("many", [0, 1_000])
def test_many_rows_are_found_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(local_rows, "_MANY_ROWS", many)
    orders = Orders(tmp_path)
    for first in (0, 0, 5):
        orders.add("CH", None, "CH", first=first)
    result = LocalResult(orders.table, orders.table.schema)
    wanted = pa.concat_tables([rows("CH"), rows(None, first=6), rows("CH", first=2)])
    found = result.places(wanted.append_column(WEIGHT, pa.array([-2, -1, -1], pa.int64())))
    assert found is not None
    assert sorted(at.to_pylist() for at in found.values()) == [[0], [0, 2], [1]]
    for missing in (rows("CH"), rows("CH", first=9)):
        assert result.places(missing.append_column(WEIGHT, pa.array([-3], pa.int64()))) is None


def test_rows_are_found_by_a_value_at_both_snapshots_of_a_refresh(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    since = orders.add("CH", None)
    orders.delete("CH")
    until = orders.add("AT", "CH", None, first=2)
    source = LocalSource(orders.table, orders.table.schema, until, since)
    values = pa.array(["CH", None], pa.string())

    def ids(*, old: bool, at: LocalSource = source) -> list[int]:
        found = at.having("country", values, old=old)
        assert found is not None
        return sorted(found["id"].to_pylist())

    assert ids(old=True) == [0, 1]
    assert ids(old=False) == [1, 3, 4]
    assert ids(old=True, at=LocalSource(orders.table, orders.table.schema, until, None)) == []
    found = LocalResult(orders.table, orders.table.schema).having("id", pa.array([3, 9]))
    assert found is not None
    assert found.to_pylist() == [{"id": 3, "country": "CH"}]
