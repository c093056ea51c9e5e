"""Keys are looked up in this process, in the files that may hold them, each of which is read once."""

import itertools
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from service.catalog.files import key_lookup
from service.catalog.files.columns import TooManyRows, UnreadableFile, read_columns
from service.catalog.files.key_lookup import find_keys, key_tuples, read_files
from service.catalog.tables import Catalog, Table
from service.model.schema.definition import parse_schema
from service.model.schema.partition import parse_partition
from tests.unit.iceberg_tables import BY_COUNTRY, ORDERS, SCHEMA, open_catalog

COLUMNS = pa.schema([("id", pa.int64()), ("country", pa.string())])
_numbers = itertools.count()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened, with how many columns of each; nothing is known at first."""
    seen: list[str] = []

    def read(io: Any, path: str, *how: Any) -> pa.Table:
        seen.append(path)
        return read_columns(io, path, *how)

    monkeypatch.setattr(key_lookup, "_cache", key_lookup._KeyCache())
    monkeypatch.setattr(key_lookup, "read_columns", read)
    return seen


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(tmp_path)


def make(catalog: Catalog, schema: dict[str, Any] = SCHEMA, partition: Any = None) -> Table:
    parsed = parse_schema(schema)
    return catalog.create(ORDERS, parsed, parse_partition(partition, parsed), {"format-version": "2"})


def append(table: Table, rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS) -> Table:
    table.iceberg.append(pa.Table.from_pylist(rows, schema=columns))
    return table


def ids(*keys: int | None) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64())})


def found(table: Table, *keys: int | None) -> dict[Any, list[int]]:
    """The positions of keys, whatever their files."""
    [by_key] = find_keys(table, [ids(*keys)]).by_key.values()
    return {key[0]: [p for places in files.values() for p in places] for key, files in by_key.items()}


def test_rows_are_found_with_their_places_and_nulls_find_nothing(catalog: Catalog, reads: list[str]) -> None:
    table = append(make(catalog), [{"id": 1}, {"id": None}, {"id": 2}, {"id": 1}])
    assert found(table, 1, None, 9) == {1: [0, 3]}
    hits = find_keys(table, [ids(2)])
    [path] = hits.files
    assert hits.files_of(ids(2, 9)) == {path}
    assert hits.files_of(ids(9)) == frozenset()
    assert hits.positions([path]) == {path: [2]}
    assert read_files(table, [path], COLUMNS)[path].take([2]).to_pylist() == [{"id": 2, "country": None}]


def test_some_rows_of_a_file_are_read_by_their_positions_in_any_of_its_row_groups(tmp_path: Path) -> None:
    path = str(tmp_path / "groups.parquet")
    schema = pa.schema([pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})])
    pq.write_table(pa.table({"id": range(10)}, schema=schema), path, row_group_size=3)
    columns, table_schema = pa.schema([("id", pa.int64())]), Schema(NestedField(1, "id", LongType()))
    for positions in ([0], [2, 3], [9], [1, 4, 5, 8], []):
        rows = read_columns(PyArrowFileIO(), path, columns, table_schema, positions)
        assert rows["id"].to_pylist() == positions


def test_an_empty_table_holds_no_key(catalog: Catalog) -> None:
    assert found(make(catalog), 1) == {}


def test_a_key_of_several_columns_is_found_where_all_of_them_are_equal(catalog: Catalog) -> None:
    table = append(make(catalog), [{"id": 1, "country": "DE"}, {"id": 2, "country": "FR"}, {"id": 1, "country": "FR"}])
    keys = pa.table({"country": ["FR", "DE", None], "id": pa.array([1, 2, 1], pa.int64())})
    [by_key] = find_keys(table, [keys]).by_key.values()
    assert {key: list(files.values()) for key, files in by_key.items()} == {("FR", 1): [[2]]}


def test_a_file_is_read_once_and_a_new_key_costs_no_reading(catalog: Catalog, reads: list[str]) -> None:
    table = append(append(make(catalog), [{"id": 1}]), [{"id": 2}])
    found(table, 1)
    assert len(reads) == 2
    assert found(table, 2, 77) == {2: [0]}
    append(table, [{"id": 77}])
    assert found(table, 77) == {77: [0]}
    assert len(reads) == 3


def test_of_many_files_only_those_are_opened_that_may_hold_a_key_by_its_least_and_greatest_value(
    catalog: Catalog, reads: list[str]
) -> None:
    table = make(catalog)
    for start in range(0, 120, 10):
        append(table, [{"id": start}, {"id": start + 9}])
    assert found(table, 43) == {}
    assert found(table, 55, 119) == {119: [1]}
    assert len(reads) == 3
    assert find_keys(table, [ids(500)]).scanned_files == 3  # those that are known by now


def test_of_a_partitioned_table_only_the_partitions_of_the_keys_are_opened(catalog: Catalog, reads: list[str]) -> None:
    table = make(catalog, partition=BY_COUNTRY)
    for country in ("DE", "FR", "IT"):
        append(table, [{"id": 1, "country": country}])
    keys = pa.table({"country": ["FR"], "id": pa.array([1], pa.int64())})
    hits = find_keys(table, [keys])
    assert (len(hits.files), hits.scanned_files, len(reads)) == (1, 1, 1)


def test_another_column_that_got_the_name_of_a_key_is_not_taken_for_it(catalog: Catalog) -> None:
    table = append(make(catalog), [{"id": 1}])
    assert found(table, 1) == {1: [0]}
    with table.iceberg.update_schema() as change:
        change.rename_column("id", "old")
    with table.iceberg.update_schema() as change:
        change.add_column("id", LongType())
    assert found(catalog.load(ORDERS), 1) == {}


EVERY_TYPE: dict[str, tuple[str, pa.DataType, Any]] = {
    "number": ("integer", pa.int32(), 5),
    "big": ("long", pa.int64(), 2**60),
    "text": ("string", pa.string(), "ä"),
    "day": ("date", pa.date32(), date(2024, 2, 29)),
    "at": ("timestamp", pa.timestamp("us"), datetime(2024, 2, 29, 1, 2, 3, 4)),
    "price": ("decimal(9,2)", pa.decimal128(9, 2), Decimal("9.50")),
    "yes": ("boolean", pa.bool_(), True),
    "raw": ("binary", pa.binary(), b"\x00\xff"),
    "uid": ("uuid", pa.string(), "12345678-1234-5678-1234-567812345678"),
}


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_keys_of_every_exact_type_are_found(catalog: Catalog, name: str) -> None:
    kind, arrow, value = EVERY_TYPE[name]
    table = make(catalog, {"fields": {name: {"type": kind}}})
    stored = pa.binary(16) if name == "uid" else arrow
    values = [None, UUID(value).bytes if name == "uid" else value]
    table.iceberg.append(pa.table({name: pa.array(values, stored)}))
    keys = pa.table({name: pa.array([value], arrow)})
    hits = find_keys(table, [keys])
    assert hits.by_key[(name,)] == {key_tuples(keys)[0]: {path: [1] for path in hits.files}}
    [rows] = read_files(table, hits.files, keys.schema).values()
    assert rows.column(0).to_pylist() == [None, value]


def test_columns_that_were_added_or_widened_are_read_as_the_table_has_them_now(catalog: Catalog) -> None:
    table = make(catalog, {"fields": {"id": {"type": "integer"}}})
    append(table, [{"id": 7}], pa.schema([("id", pa.int32())]))
    with table.iceberg.update_schema() as change:
        change.update_column("id", LongType())
        change.add_column("country", LongType())
    wide = pa.schema([("id", pa.int64()), ("country", pa.int64())])
    [path] = find_keys(table, [ids(7)]).files
    assert read_files(table, [path], wide)[path].to_pylist() == [{"id": 7, "country": None}]


def test_files_that_only_spark_reads_as_meant_are_refused(catalog: Catalog) -> None:
    table = append(make(catalog), [{"id": 1}])
    with pytest.raises(UnreadableFile):
        find_keys(table, [pa.table({"id": pa.array(["1"])})])


def test_more_than_a_driver_should_hold_is_left_to_spark(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = append(make(catalog), [{"id": 1}] * 20)
    monkeypatch.setattr(key_lookup, "_MOST_HITS", 19)
    with pytest.raises(TooManyRows):
        find_keys(table, [ids(1)])
    monkeypatch.setattr(key_lookup, "_cache", key_lookup._KeyCache())
    monkeypatch.setattr(key_lookup, "_MOST_VALUES", 19)
    with pytest.raises(TooManyRows):
        find_keys(table, [ids(2)])
