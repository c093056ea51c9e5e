"""Partitions are named as users know them, counted from metadata, and listed with the most fragmented first."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import transforms as t
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from service.catalog.files.data_files import DataFile, list_files, matching_files
from service.catalog.partitions import format_value as shown_as
from service.catalog.partitions import partition_values
from service.catalog.tables import Catalog, Table
from service.errors import InvalidFilter
from service.maintenance.advise.partitions import by_partition
from service.model import wire
from service.model.filters.pruning import partition_expression
from service.model.schema.definition import parse_schema
from service.model.schema.partition import PartitionField, parse_partition
from tests.unit.iceberg_tables import ORDERS, append, make_table, open_catalog

TYPES = {
    "i": "integer",
    "l": "long",
    "s": "string",
    "b": "boolean",
    "d": "date",
    "ts": "timestamp",
    "tz": "timestamptz",
    "f": "double",
    "dec": "decimal(10,2)",
    "u": "uuid",
    "bin": "binary",
}
SCHEMA = {"fields": {name: {"type": kind} for name, kind in TYPES.items()}}
MICROS = 1_714_557_600_000_000  # 2024-05-01T10:00:00
DAYS = (date(2024, 5, 1) - date(1970, 1, 1)).days
HOURS = MICROS // 3_600_000_000


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(tmp_path)


def by(catalog: Catalog, *fields: dict[str, Any]) -> Table:
    schema = parse_schema(SCHEMA)
    partition = parse_partition({"partitions": list(fields)}, schema)
    return catalog.create(ORDERS, schema, partition, {"format-version": "2"})


def add(
    table: Table, *values: Any, spec_id: int = 0, size: int = 1000, low: int | None = None, high: int | None = None
) -> None:
    """A commit of one file, which is not really there, in this partition; with bounds of `l`, perhaps."""
    bounds = {2: low.to_bytes(8, "little")} if low else None, {2: high.to_bytes(8, "little")} if high else None
    iceberg = table.iceberg
    file = IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location}/data/{len(iceberg.metadata.snapshots)}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=3,
        file_size_in_bytes=size,
        spec_id=spec_id,
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    with iceberg.transaction() as transaction, transaction.update_snapshot().fast_append() as files:
        files.append_data_file(file)


def named(table: Table) -> list[Any]:
    """Each partition, as JSON has it."""
    return [wire.parse(wire.render(partition_values(table, p.group))) for p in by_partition(list_files(table).data, 1)]


@pytest.mark.parametrize(
    ("field", "kept", "shown"),
    [
        ("i", -7, -7),
        ("l", 2**53 + 1, 2**53 + 1),
        ("s", "CH", "CH"),
        ("s", "", ""),
        ("b", True, True),
        ("d", DAYS, "2024-05-01"),
        ("ts", MICROS, "2024-05-01T10:00:00"),
        ("tz", MICROS + 1, "2024-05-01T10:00:00.000001Z"),
        ("f", 0.5, Decimal("0.5")),
        ("f", float("nan"), "NaN"),
        ("f", float("-inf"), "-Infinity"),
        ("dec", Decimal("19.90"), "19.90"),
        ("u", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("bin", b"\x00\x01", "AAE="),
        ("l", None, None),
    ],
)
def test_a_columns_own_values_are_as_a_query_answers_them(catalog: Catalog, field: str, kept: Any, shown: Any) -> None:
    table = by(catalog, {"field": field})
    add(table, kept)
    assert named(table) == [{field: shown}]


@pytest.mark.parametrize(
    ("transform", "kept", "shown"),
    [
        ("year", 54, "2024"),
        ("month", 54 * 12 + 4, "2024-05"),
        ("day", DAYS, "2024-05-01"),
        ("hour", HOURS, "2024-05-01-10"),
        ("month", -1, "1969-12"),
        ("day", None, None),
        ("year", 10_000_000, "10001970"),
    ],
)
def test_times_are_text_as_fine_as_the_partitioning(
    catalog: Catalog, transform: str, kept: int | None, shown: str | None
) -> None:
    table = by(catalog, {"field": "ts", "transform": transform, "name": "when"})
    add(table, kept)
    assert named(table) == [{"when": shown}]


def test_buckets_are_numbers_and_truncated_values_are_values(catalog: Catalog) -> None:
    table = by(
        catalog,
        {"field": "l", "transform": "bucket", "num_buckets": 8},
        {"field": "s", "transform": "truncate", "width": 2},
        {"field": "dec", "transform": "truncate", "width": 10},
        {"field": "tz", "transform": "bucket", "num_buckets": 8},
        {"field": "d", "transform": "bucket", "num_buckets": 8},
    )
    add(table, 5, "Zü", Decimal("19.90"), 0, 7)
    [found] = named(table)
    assert found == {"l_bucket": 5, "s_trunc": "Zü", "dec_trunc": "19.90", "tz_bucket": 0, "d_bucket": 7}


def test_a_table_without_partitions_has_one_and_an_empty_one_none(catalog: Catalog) -> None:
    table = make_table(catalog)
    assert named(table) == []
    append(table, None, None)
    assert named(catalog.load(ORDERS)) == [{}]


def test_files_of_an_old_partitioning_are_shown_with_its_fields(catalog: Catalog) -> None:
    table = by(catalog, {"field": "s"})
    add(table, "CH")
    with table.iceberg.update_spec() as change:
        change.add_field("ts", t.MonthTransform(), "month")
        change.remove_field("s")
    table = catalog.load(ORDERS)
    add(table, 54 * 12 + 4, spec_id=table.iceberg.spec().spec_id)
    found = named(catalog.load(ORDERS))
    assert sorted(found, key=str) == [{"month": "2024-05"}, {"s": "CH"}]


def test_a_partition_by_a_column_that_is_gone_keeps_its_values(catalog: Catalog) -> None:
    table = by(catalog, {"field": "d"})
    add(table, DAYS)
    with table.iceberg.update_spec() as change:
        change.remove_field("d")
    with catalog.load(ORDERS).iceberg.update_schema(allow_incompatible_changes=True) as columns:
        columns.delete_column("d")
    assert named(catalog.load(ORDERS)) == [{"d": "2024-05-01"}]


def test_the_filters_groups_are_the_listings(catalog: Catalog) -> None:
    """Both readers of manifests must name a partition alike, or a filter would find none."""
    table = by(catalog, {"field": "ts", "transform": "month"}, {"field": "u"}, {"field": "dec"}, {"field": "d"})
    for month in range(3):
        add(table, month, UUID(int=month), Decimal(month).quantize(Decimal("0.01")), month)
    table = catalog.load(ORDERS)
    partition_filter = {"d": {"gte": "1970-01-02"}}
    pruning = partition_expression(partition_filter, table.schema, table.partition)
    matching = {file.group for file in matching_files(table, pruning)}
    listed = {file.group for file in list_files(table).data}
    assert matching < listed
    assert len(matching) == 2


FIRST, LAST = UUID(int=1), UUID(int=2**128 - 1)


@pytest.mark.parametrize(
    ("partition_filter", "found"),
    [
        ({"u": str(FIRST)}, [FIRST]),
        ({"u": {"in": [str(FIRST), str(LAST)]}}, [FIRST, LAST]),
        ({"u": {"ne": str(FIRST)}}, [LAST]),
        ({"u": {"gt": str(FIRST)}}, [LAST]),
        ({"u": {"lt": str(LAST)}}, [FIRST]),
        ({"u": None}, [None]),
        ({"not": {"u": {"in": [str(FIRST)]}}}, [LAST]),
    ],
)
def test_a_filter_finds_partitions_by_uuid(catalog: Catalog, partition_filter: Any, found: list[UUID | None]) -> None:
    table = by(catalog, {"field": "u"})
    for value in (None, FIRST, LAST):
        add(table, value)
    table = catalog.load(ORDERS)
    pruning = partition_expression(partition_filter, table.schema, table.partition)
    assert [file.group[1] for file in sorted(matching_files(table, pruning), key=lambda f: str(f.group))] == found


def test_a_filter_names_partitions_and_file_statistics_rule_no_file_of_them_out(catalog: Catalog) -> None:
    table = by(catalog, {"field": "l", "transform": "truncate", "width": 10})
    for kept in (10, 10, 20):
        add(table, kept, low=kept + 1, high=kept + 2)
    table = catalog.load(ORDERS)
    pruning = partition_expression({"l": 15}, table.schema, table.partition)
    assert [file.group for file in matching_files(table, pruning)] == [(0, 10), (0, 10)]


def test_a_filter_on_a_table_without_partitions_is_refused(catalog: Catalog) -> None:
    table = make_table(catalog)
    assert partition_expression(None, table.schema, table.partition) is None
    with pytest.raises(InvalidFilter, match="the table is not partitioned"):
        partition_expression({"id": 1}, table.schema, table.partition)


NAN = float("nan")
GROUPS = st.sampled_from([(0, None), (0, "a"), (0, "b"), (1, 5, None), (1, 5, 2.5), (1, 5, NAN)])
FILES = st.lists(st.builds(DataFile, st.text(max_size=3), st.integers(0, 20), st.integers(0, 9), GROUPS), max_size=30)


@given(FILES, st.integers(0, 20))
def test_every_file_counts_once_and_the_order_is_by_small_files_then_files(files: list[DataFile], small: int) -> None:
    found = by_partition(files, small)
    assert [p.group for p in found] == [p.group for p in by_partition(reversed(files), small)]
    for total, each in (
        (len(files), [p.files for p in found]),
        (sum(f.rows for f in files), [p.rows for p in found]),
        (sum(f.bytes for f in files), [p.bytes for p in found]),
        (sum(f.bytes < small for f in files), [p.small_files for p in found]),
    ):
        assert total == sum(each)
    ranks = [(p.small_files, p.files) for p in found]
    assert ranks == sorted(ranks, reverse=True)
    assert all(p.average_file_bytes == p.bytes // p.files for p in found)


def test_among_equals_the_order_is_by_value_and_nulls_come_first() -> None:
    files = [DataFile(str(v), 1, 1, (0, v)) for v in ("b", None, "a")]
    assert [p.group[1] for p in by_partition(files, 2)] == [None, "a", "b"]


def test_files_whose_value_is_no_number_are_of_one_partition() -> None:
    files = [DataFile(str(i), 1, 1, (0, float("nan"))) for i in range(3)]
    assert [p.files for p in by_partition(files, 2)] == [3]


def test_moments_in_other_forms_are_shown_alike(catalog: Catalog) -> None:
    """A reader may hand over a date where another has a number of days."""
    table = by(catalog, {"field": "ts", "transform": "day"}, {"field": "d"})
    assert partition_values(table, (0, date(2024, 5, 1), date(2024, 5, 1))) == {
        "ts_day": "2024-05-01",
        "d": date(2024, 5, 1),
    }
    assert partition_values(table, (0, DAYS, DAYS))["d"] == datetime(2024, 5, 1).date()


@pytest.mark.parametrize(
    ("transform", "value", "message"),
    [
        ("year", 54, "2024"),
        ("month", 652, "2024-05"),
        ("month", -1, "1969-12"),
        ("hour", 19_844 * 24 + 7, "2024-05-01-07"),
        ("hour", 10**12, str(10**12)),
        ("day", date(2024, 5, 1), date(2024, 5, 1)),
        ("identity", 7, 7),
        ("month", None, None),
        ("bucket", 3, 3),
    ],
)
def test_what_spark_calls_a_partition_is_called_as_in_the_listing(transform: str, value: Any, message: Any) -> None:
    field = PartitionField("at", transform, "p", 4 if transform == "bucket" else None)
    assert shown_as(field, value) == message
