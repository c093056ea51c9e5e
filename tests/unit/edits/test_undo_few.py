"""What an UNDO of few rows does is found in this process, as Spark finds it."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog, Table
from service.edits.edits import base_of
from service.edits.undo_few import find_few
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.edits.reversal import FILE, AddedAndRemoved, FewUndo, UndoReversal
from service.model.schema.derived import DerivedColumn
from tests.unit.catalog.test_key_lookup import COLUMNS, append, make
from tests.unit.iceberg_tables import open_catalog

Row = tuple[int | None, str | None]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(tmp_path)


def table_of(catalog: Catalog, *files: list[Row]) -> Table:
    table = make(catalog)
    for rows in files:
        append(table, rows_of(*rows).to_pylist())
    return table


def rows_of(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(("id", "country"), row, strict=True)) for row in rows], schema=COLUMNS)


def change(came: list[Row] | None = None, went: list[Row] | None = None, *, restores: bool = False) -> AddedAndRemoved:
    return AddedAndRemoved(came and rows_of(*came), went and rows_of(*went), restores)


def reversal(table: Table, of: AddedAndRemoved, *suspects: AddedAndRemoved, **more: Any) -> UndoReversal:
    within = frozenset(file.path for file in list_files(table).data)
    options: dict[str, Any] = {"within": within, "untouched": False, **more}
    return UndoReversal(base_of(table), table.kept_schema, of, suspects=suspects, **options)


def find(table: Table, of: AddedAndRemoved, *suspects: AddedAndRemoved, **more: Any) -> FewUndo:
    found = find_few(table, reversal(table, of, *suspects, **more))
    assert found is not None
    return found


def shown(rows: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_the_rows_that_a_change_added_are_found_and_those_that_it_removed_come_back(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "DE"), (2, "FR"), (2, "FR")], [(3, None), (2, "FR")])
    found = find(table, change(came=[(2, "FR"), (2, "FR"), (3, None)], went=[(9, "IT"), (9, "IT"), (None, None)]))
    figures = found.figures
    assert (figures.came, figures.removed, figures.restored, sum(figures.files.values())) == (3, 3, 3, 3)
    assert sorted(shown(found.added), key=str) == [(2, "FR"), (3, None)]
    assert shown(found.removed) == [(9, "IT"), (9, "IT"), (None, None)]
    assert figures.met is None
    assert figures.touched == ()
    by_path = {f.path: f.rows for f in list_files(table).data}
    assert {by_path[path]: count for path, count in figures.files.items()} in ({3: 2, 2: 1}, {3: 1, 2: 2})
    assert len(set(zip(*found.places.to_pydict().values(), strict=True))) == 3


def test_rows_that_a_change_only_rewrote_are_neither_added_nor_removed(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "DE"), (2, "FR")])
    found = find(table, change(came=[(1, "DE"), (2, "FR")], went=[(1, "DE"), (2, "DE")]))
    assert (shown(found.added), shown(found.removed)) == ([(2, "FR")], [(2, "DE")])


def test_the_rows_of_a_state_are_read_from_its_files_and_places(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "DE"), (2, "FR"), (3, "IT")], [(4, "ES")])
    state = table.current_snapshot_id or 0
    by_rows = {file.rows: file.path for file in list_files(table).data}
    went = SnapshotFiles(state, frozenset({by_rows[1]}), {by_rows[3]: pa.array([2, 0])})
    found = find(table, AddedAndRemoved(None, went), within=frozenset())
    assert sorted(shown(found.removed)) == [(1, "DE"), (3, "IT"), (4, "ES")]
    assert not found.places.num_rows


def test_rows_are_searched_for_in_large_files(catalog: Catalog) -> None:
    table = table_of(catalog, [(n % 1000, "DE" if n < 1000 else "FR") for n in range(3000)])
    found = find(table, change(came=[(7, "FR"), (7, "DE")]))
    assert sorted(found.places["pos"].to_pylist()) == [7, 1007]


def test_rows_that_are_gone_are_not_removed_again(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "DE")])
    figures = find(table, change(came=[(1, "DE"), (2, "FR")])).figures
    assert (figures.came, figures.removed) == (2, 1)


def test_a_later_change_that_removed_an_added_row_is_named_with_all_that_follow_from_it(catalog: Catalog) -> None:
    table = table_of(catalog, [(5, "DE")])
    suspects = (
        change(came=[(8, "X")], went=[(7, "X")]),
        change(came=[(1, "FR")], went=[(1, "DE")]),
        change(came=[(9, "X")], went=[(8, "X")]),
        change(came=[(1, "IT")], went=[(1, "FR")]),
    )
    assert find(table, change(came=[(1, "DE")]), *suspects).figures.touched == (1, 3)


def test_a_restore_that_brought_a_removed_row_back_is_named_unless_another_one_took_it_again(catalog: Catalog) -> None:
    table = table_of(catalog, [(5, "DE")])
    back, again = change(came=[(1, "DE")], restores=True), change(went=[(1, "DE")], restores=True)
    assert find(table, change(went=[(1, "DE")]), back).figures.touched == (0,)
    assert find(table, change(went=[(1, "DE")]), back, again).figures.touched == ()
    assert find(table, change(went=[(1, "DE")]), change(came=[(1, "DE")])).figures.touched == ()


def test_later_rows_with_the_key_of_a_row_to_restore_are_met_with_their_files(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "FR"), (2, "FR")], [(3, "FR")])
    state, files = table.current_snapshot_id or 0, frozenset(f.path for f in list_files(table).data)
    fresh, keys = SnapshotFiles(state, files), (("id",),)
    removed = change(went=[(1, "DE"), (4, "DE"), (None, "DE")])
    met = find(table, removed, keys=keys, fresh=fresh).figures.met
    assert met is not None
    assert shown(met.select(["id", "country"])) == [(1, "FR")]
    assert set(met[FILE].to_pylist()) <= files
    stale = AddedAndRemoved(None, rows_of((1, "FR")))
    assert find(table, removed, keys=keys, fresh=fresh, beside=stale).figures.met is None
    beside = find(table, removed, keys=keys, beside=change(came=[(4, "IT")])).figures.met
    assert beside is not None
    assert shown(beside) == [(4, "IT", None)]
    assert find(table, change(went=[(None, "DE")]), keys=keys, fresh=fresh).figures.met is None


def test_required_columns_that_are_null_are_counted(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "FR")])
    removed = change(went=[(1, None), (1, None), (2, "DE")])
    assert find(table, removed, required=("id", "country")).figures.lacking == {"country": 2}


def test_spark_finds_what_the_metadata_says_and_what_has_to_be_computed(catalog: Catalog) -> None:
    table = table_of(catalog, [(1, "FR")])
    late = (DerivedColumn("country", cast(Any, None)),)
    assert find_few(table, reversal(table, change(came=[(1, "FR")]), untouched=True)) is None
    assert find_few(table, reversal(table, change(came=[(1, "FR")]), late=late)) is None


def test_many_rows_are_left_to_spark(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(catalog, [(1, "FR"), (2, "FR")])
    monkeypatch.setattr("service.catalog.files.few.MOST_ROWS", 1)
    assert find_few(table, reversal(table, change(came=[(1, "FR")]))) is None
