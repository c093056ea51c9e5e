"""The strategies are tested too: what they never draw, no property test tries."""

from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from service.partition import TRANSFORMS, parse_partition
from service.records import read_records
from service.schema import (
    PRIMITIVES,
    Array,
    ColumnType,
    DecimalType,
    Map,
    Primitive,
    Struct,
    TableSchema,
    describe_schema,
    parse_schema,
)
from service.wire import parse
from tests.strategies import DEPTH, json_text, keys, partitions, records, schemas, types, values

T = TypeVar("T")


def sample(strategy: SearchStrategy[T], count: int = 500) -> list[T]:
    """That many draws, the same at every run."""
    seen: list[T] = []

    @settings(max_examples=count, database=None, deadline=None, derandomize=True)
    @given(strategy)
    def draw(value: T) -> None:
        seen.append(value)

    draw()
    return seen


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
    seen = sample(types())
    assert {Primitive(name) for name in PRIMITIVES} <= set(seen)
    assert {Array, Map, Struct, DecimalType} <= {type(t) for t in seen}
    assert {depth(t) for t in seen} == set(range(DEPTH + 1))


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
    assert value in sample(values(parse_schema({"fields": {"c": {"type": kind}}}).fields[0].type))


def test_null_and_absent_are_both_drawn() -> None:
    rows = sample(records(parse_schema({"fields": {"c": {"type": "long"}}})), 100)
    assert any({} in r and {"c": None} in r for r in rows)


def test_every_transform_is_drawn() -> None:
    fields: dict[str, Any] = {"t": {"type": "timestamp"}, "n": {"type": "long"}}
    table = parse_schema({"fields": {**fields, "s": {"type": "struct", "fields": fields}}})
    seen = [f for p in sample(partitions(table), 200) for f in parse_partition(p, table)]
    assert {f.transform for f in seen} == set(TRANSFORMS)
    assert any("." in f.field for f in seen)
