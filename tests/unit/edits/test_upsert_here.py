"""An UPSERT of thousands of records is found and applied in this process, unless Spark has to read or write files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.catalog.files.data_files import list_files
from service.catalog.files.key_lookup import find_keys
from service.catalog.tables import Catalog, Table
from service.edits.edits import base_of
from service.edits.upsert import prepare
from service.edits.upsert_here import AppliedUpsert, apply_upsert
from service.engine.jobs.edit import EditBase
from service.model.edits import ByFilter, ByKey, Edit
from service.model.filters.predicates import EVERY_ROW
from tests.unit.catalog.test_key_lookup import append, make
from tests.unit.iceberg_tables import open_catalog

Record = dict[str, Any]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(tmp_path)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return append(make(catalog), [{"id": n, "country": "DE"} for n in range(2000)])


def upsert(table: Table, *records: Record, update: frozenset[str] = frozenset({"country"}), **how: Any) -> Edit:
    rows, rule = prepare(table.schema, list(records), ("id",), update, **how)
    return Edit(table.schema, ByKey(rows, rule))


def base(table: Table, **more: Any) -> EditBase:
    return replace(base_of(table, row_level="merge_on_read"), **more)


def applied(table: Table, *records: Record) -> AppliedUpsert:
    found = apply_upsert(table, base(table), upsert(table, *records))
    assert found is not None
    return found


def test_rows_are_changed_left_and_inserted_each_with_its_place(table: Table) -> None:
    found = applied(table, {"id": 7, "country": "FR"}, {"id": 8, "country": "DE"}, {"id": 5000, "country": "IT"})
    rows = found.rows
    assert (rows.hits, rows.unchanged, rows.inserted) == (1, 1, 1)
    assert sum(rows.files.values()) == 1
    assert [list(places) for places in (p.to_pylist() for p in rows.places.in_files(rows.files).values())] == [[7]]
    assert found.come.rows.to_pylist() == [{"id": 7, "country": "FR"}, {"id": 5000, "country": "IT"}]
    assert rows.new is not None
    assert rows.new["id"].to_pylist() == [5000]


def test_a_column_that_a_record_lacks_keeps_its_value(table: Table) -> None:
    found = applied(table, {"id": 7}, {"id": 8, "country": "FR"})
    assert (found.rows.hits, found.rows.unchanged) == (1, 1)
    assert found.come.rows.to_pylist() == [{"id": 8, "country": "FR"}]


def test_every_row_with_the_key_of_a_record_is_changed(table: Table) -> None:
    append(table, [{"id": n, "country": "DE"} for n in (7, 9, 9, 10, 11)])
    found = applied(table, {"id": 7, "country": "FR"})
    assert (found.rows.hits, len(found.rows.files), found.come.rows.num_rows) == (2, 2, 2)


def test_records_that_equal_their_rows_change_nothing(table: Table) -> None:
    found = applied(table, {"id": 7, "country": "DE"})
    assert not found.rows.changes_rows
    assert not found.come.rows.num_rows


def test_many_records_are_applied_at_once(table: Table) -> None:
    found = applied(table, *({"id": n, "country": "FR"} for n in range(1500, 4000)))
    assert (found.rows.hits, found.rows.inserted, found.come.rows.num_rows) == (500, 2000, 2500)


def test_spark_edits_by_copy_on_write_and_searches_those_that_a_filter_leaves(table: Table) -> None:
    one = upsert(table, {"id": 7, "country": "FR"})
    assert apply_upsert(table, base(table), one) is not None
    assert apply_upsert(table, base(table, row_level="copy_on_write"), one) is None
    assert apply_upsert(table, base(table, only=frozenset()), one) is None
    assert apply_upsert(table, base(table, snapshot_id=None), one) is None


def test_a_file_that_loses_all_its_rows_is_removed(table: Table) -> None:
    found = applied(table, *({"id": n, "country": "FR"} for n in range(2000)))
    assert (found.come.rows.num_rows, found.come.kept, found.come.again) == (2000, 0, found.rows.files.keys())


def test_small_files_are_written_again_with_the_rows_that_stay(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, [{"id": n, "country": "IT"} for n in (3000, 3001, 3002)])
    large, small = sorted(list_files(table).data, key=lambda file: -file.rows)
    monkeypatch.setattr("service.engine.jobs.edits.row_level.SMALL_BYTES", small.bytes + 1)
    two = upsert(table, {"id": 7, "country": "FR"}, {"id": 3001, "country": "FR"})
    found = apply_upsert(table, base(table, row_level="auto"), two)
    assert found is not None
    assert found.come.again == {small.path}
    assert found.rows.files == {large.path: 1, small.path: 1}
    assert found.come.kept == 2
    rows = [(row["id"], row["country"]) for row in found.come.rows.to_pylist()]
    assert sorted(rows) == [(7, "FR"), (3000, "IT"), (3001, "FR"), (3002, "IT")]
    monkeypatch.setattr("service.edits.upsert_here._MOST_BYTES", small.bytes - 1)
    assert apply_upsert(table, base(table, row_level="auto"), two) is None


def test_only_records_that_are_merged_by_key_are_applied(table: Table) -> None:
    assert apply_upsert(table, base(table), Edit(table.schema, ByFilter(EVERY_ROW))) is None
    assert apply_upsert(table, base(table), upsert(table, {"id": 7, "country": "x"}, on_multiple="replace")) is None


def test_more_records_than_it_is_worth_are_left_to_spark(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    two = upsert(table, {"id": 7, "country": "x"}, {"id": 8, "country": "x"})
    monkeypatch.setattr("service.edits.upsert_here._MOST_RECORDS", 1)
    assert apply_upsert(table, base(table), two) is None
    monkeypatch.setattr("service.edits.upsert_here._MOST_RECORDS", 2)
    monkeypatch.setattr("service.catalog.files.key_lookup._MOST_HITS", 1)
    assert apply_upsert(table, base(table), two) is None


def test_a_table_of_many_files_is_left_to_spark(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, [{"id": 5000}])
    one = upsert(table, {"id": 7, "country": "x"})
    monkeypatch.setattr("service.edits.upsert_here._MOST_FILES", 2)
    assert apply_upsert(table, base(table), one) is not None
    monkeypatch.setattr("service.edits.upsert_here._MOST_FILES", 1)
    assert apply_upsert(table, base(table), one) is None


def test_rows_that_delete_files_deleted_do_not_come_back_with_a_file_that_is_written_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(table, [{"id": n, "country": "IT"} for n in (3000, 3001, 3002)])
    small = min(list_files(table).data, key=lambda file: file.rows)
    monkeypatch.setattr("service.engine.jobs.edits.row_level.SMALL_BYTES", small.bytes + 1)
    deleted = {small.path: frozenset({0})}
    monkeypatch.setattr("service.edits.upsert_here.find_keys", lambda *how: replace(find_keys(*how), deleted=deleted))
    found = apply_upsert(table, base(table, row_level="auto"), upsert(table, {"id": 3001, "country": "FR"}))
    assert found is not None
    assert (found.come.again, found.come.kept) == ({small.path}, 1)
    assert [(row["id"], row["country"]) for row in found.come.rows.to_pylist()] == [(3002, "IT"), (3001, "FR")]
