"""Few rows of states of a table are read in this process; what is too much or unreadable is left to Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from service.catalog.files import few
from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.data_files import DataFile, TableFiles, list_files
from service.catalog.files.few import FewRows
from service.catalog.tables import Catalog, Table
from service.errors import Cancelled
from tests.unit.catalog.test_key_lookup import COLUMNS, append, make
from tests.unit.iceberg_tables import open_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(tmp_path)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = append(make(catalog), [{"id": n, "country": "DE"} for n in range(5)])
    return append(made, [{"id": n, "country": "FR"} for n in range(5, 8)])


def reader(table: Table, **options: Any) -> FewRows:
    return FewRows(table, table.schema_id, COLUMNS, **options)


def paths(table: Table) -> list[str]:
    """The table's files, the one with most rows first."""
    return [file.path for file in sorted(list_files(table).data, key=lambda file: -file.rows)]


def head(table: Table) -> int:
    return table.current_snapshot_id or 0


def test_whole_files_and_places_and_values_give_rows_with_their_places(table: Table) -> None:
    first, second = paths(table)
    whole = reader(table).whole(head(table), [second])
    assert (whole.rows["id"].to_pylist(), list(whole.files), list(whole.positions)) == (
        [5, 6, 7],
        [second] * 3,
        [0, 1, 2],
    )
    some = reader(table).places({first: pa.array([3, 1])})
    assert (some.rows["id"].to_pylist(), list(some.positions)) == ([1, 3], [1, 3])
    having = reader(table).having(head(table), [first, second], "id", pa.array([4, 6, 99]))
    assert dict(zip(having.rows["id"].to_pylist(), zip(having.files, having.positions, strict=True), strict=True)) == {
        4: (first, 4),
        6: (second, 1),
    }


def test_an_earlier_state_is_read_with_the_columns_of_now(table: Table) -> None:
    before = head(table)
    was = paths(table)
    table.iceberg.delete(EqualTo("id", 2))
    with table.iceberg.update_schema() as update:
        update.rename_column("country", "land")
    columns = pa.schema([("id", pa.int64()), ("land", pa.string())])
    found = FewRows(table, table.schema_id, columns).whole(before, was)
    assert sorted(found.rows["id"].to_pylist()) == list(range(8))
    assert set(found.rows["land"].to_pylist()) == {"DE", "FR"}


def test_rows_that_delete_files_delete_are_left_out(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = paths(table)
    with_deletes = DataFile(first, 1000, 5, (0,), deleted=2, deletes=("d.parquet",))
    monkeypatch.setattr(few, "list_files", lambda table, snapshot_id: TableFiles((with_deletes,), 1))
    monkeypatch.setattr(few, "positions_of", lambda table, path, deletes: pa.array([0, 3]))
    assert reader(table).whole(1, [first]).rows["id"].to_pylist() == [1, 2, 4]
    assert reader(table).having(1, [first], "id", pa.array([3, 4])).rows["id"].to_pylist() == [4]


def test_a_state_whose_deletes_only_spark_reads_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = paths(table)
    monkeypatch.setattr(few, "list_files", lambda *state: TableFiles((DataFile(first, 1, 5, (0,)),), 1, counted=False))
    with pytest.raises(UnreadableFile):
        reader(table).whole(1, [first])


def test_a_column_that_the_schema_lacks_is_refused(table: Table) -> None:
    other = pa.schema([("gone", pa.int64())])
    with pytest.raises(UnreadableFile):
        FewRows(table, table.schema_id, other).whole(head(table), paths(table))


@pytest.mark.parametrize(
    ("limit", "most"), [("MOST_ROWS", 7), ("_MOST_SEARCHED", 7), ("_MOST_FILES", 1), ("_MOST_VALUES", 9)]
)
def test_more_than_each_limit_allows_is_left_to_spark(
    table: Table, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = pa.array(range(8))

    def read() -> None:
        found = reader(table).having(head(table), paths(table), "id", every)
        assert found.rows.num_rows == 8

    read()
    monkeypatch.setattr(few, limit, most)
    with pytest.raises(TooManyRows):
        read()


def test_a_cancelled_call_reads_no_more_files(table: Table) -> None:
    def check() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        reader(table, check=check).whole(head(table), paths(table))
