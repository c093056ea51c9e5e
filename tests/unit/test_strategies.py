"""The strategies are tested too: what they never draw, no property test tries."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from service.model.records import read_records
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.partition import TRANSFORMS, parse_partition
from service.model.schema.types import PRIMITIVES, Array, ColumnType, DecimalType, Map, Primitive, Struct, TableSchema
from service.model.wire import parse
from tests.strategies import DEPTH, json_text, keys, partitions, records, schemas, types, values

T = TypeVar("T")


def drawn(strategy: SearchStrategy[T], wanted: Callable[[T], bool]) -> None:
    """Draw, the same at every run, until something is wanted; NoSuchExample where nothing is."""
    how = settings(max_examples=500, database=None, deadline=None, derandomize=True, phases=[Phase.generate])
    find(strategy, wanted, settings=how)


def depth(kind: ColumnType) -> int:
    match kind:
        case Array():
            return 1 + depth(kind.items)
        case Map():
            return 1 + depth(kind.value)
        case Struct():
            return 1 + max(depth(f.type) for f in kind.fields)
    return 0


@given(schemas(keyed=True) | schemas())
def test_every_schema_drawn_is_one_that_create_table_takes(schema: TableSchema) -> None:
    assert parse_schema(describe_schema(schema)) == schema


@given(types())
def test_types_nest_no_deeper_than_said(kind: ColumnType) -> None:
    assert depth(kind) <= DEPTH


def test_types_of_every_name_and_depth_are_drawn() -> None:
    wanted = {*map(Primitive, PRIMITIVES), Array, Map, Struct, DecimalType, *range(DEPTH + 1)}

    def the_last(kind: ColumnType) -> bool:
        wanted.difference_update((kind, type(kind), depth(kind)))
        return not wanted

    drawn(types(), the_last)


@given(keys())
def test_keys_are_single_exact_values(kind: ColumnType) -> None:
    parse_schema({"fields": {"m": {"type": "map", "key_type": str(kind), "value_type": "long"}}})


@given(st.data())
def test_every_list_of_records_drawn_fits_also_after_the_wire(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(records(schema))
    assert parse(json_text(rows)) == rows
    read_records(schema, rows)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", 2**63 - 1),
        ("integer", -(2**31)),
        ("double", "NaN"),
        ("date", "0001-01-01"),
        ("timestamptz", "9999-12-31"),
        ("decimal(38,0)", 10**38 - 1),
        ("string", "\x00"),
    ],
)
def test_values_hold_the_edges(kind: str, value: Any) -> None:
    of_this_kind = values(parse_schema({"fields": {"c": {"type": kind}}}).fields[0].type)
    drawn(of_this_kind, lambda one: bool(one == value))


def test_null_and_absent_are_both_drawn() -> None:
    rows = records(parse_schema({"fields": {"c": {"type": "long"}}}))
    drawn(rows, lambda some: {} in some and {"c": None} in some)


def test_every_transform_is_drawn() -> None:
    fields: dict[str, Any] = {"t": {"type": "timestamp"}, "n": {"type": "long"}}
    table = parse_schema({"fields": {**fields, "s": {"type": "struct", "fields": fields}}})
    wanted = {*TRANSFORMS, "nested"}

    def the_last(partitioning: dict[str, Any]) -> bool:
        for field in parse_partition(partitioning, table):
            wanted.difference_update((field.transform, "nested" if "." in field.field else ""))
        return not wanted

    drawn(partitions(table), the_last)
