"""Rows through Arrow and back to JSON, without a JVM: `to_arrow` and `json_rows`."""

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.session.rows import arrow_schema, json_rows, to_arrow
from service.model.records import read_records
from service.model.schema.definition import parse_schema
from service.model.schema.types import PRIMITIVES
from service.model.wire import parse, render
from tests.strategies import records, same, schemas


def shown(values: list[Any], kind: pa.DataType) -> list[Any]:
    """What a client reads of a column of these values."""
    rows = parse(render(json_rows(pa.table({"c": pa.array(values, kind)}))))
    return [row["c"] for row in rows]


@given(st.data())
def test_what_was_written_is_read_back_equal(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=4))
    first = read_records(schema, data.draw(records(schema)))
    table = to_arrow(schema, first)
    table.validate(full=True)
    assert same(read_records(schema, parse(render(json_rows(table)))), first)


@given(st.data())
def test_a_slice_and_a_chunked_table_give_the_same_rows(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=3))
    table = to_arrow(schema, read_records(schema, data.draw(records(schema, min_size=2))))
    whole = render(json_rows(table))
    cut = data.draw(st.integers(0, table.num_rows))
    parts = [table.slice(0, cut), table.slice(cut)]
    assert render([row for part in parts for row in json_rows(part)]) == whole
    assert render(json_rows(pa.concat_tables(parts))) == whole


def test_nullability_is_carried_at_every_level() -> None:
    schema = parse_schema(
        {
            "fields": {
                "a": {"type": "array", "required": True, "items": {"type": "long", "required": True}},
                "m": {"type": "map", "key_type": "string", "value_type": {"type": "long", "required": True}},
                "s": {"type": "struct", "fields": {"x": {"type": "long", "required": True}, "y": {"type": "long"}}},
            }
        }
    )
    a, m, s = arrow_schema(schema)
    assert (a.nullable, a.type.value_field.nullable) == (False, False)
    assert (m.nullable, m.type.key_field.nullable, m.type.item_field.nullable) == (True, False, False)
    assert (s.nullable, s.type.field("x").nullable, s.type.field("y").nullable) == (True, False, True)


def test_every_primitive_has_an_arrow_type() -> None:
    schema = parse_schema({"fields": {name: {"type": name} for name in PRIMITIVES}})
    kinds = {f.name: f.type for f in arrow_schema(schema)}
    assert kinds["uuid"] == pa.string()
    assert kinds["timestamp"] == pa.timestamp("us")
    assert kinds["timestamptz"] == pa.timestamp("us", tz="UTC")
    assert arrow_schema(schema, ["uuid", "long"]).names == ["long", "uuid"]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_numbers_that_json_has_not_are_text(kind: pa.DataType) -> None:
    values = [1.5, None, float("nan"), float("inf"), float("-inf")]
    assert shown(values, kind) == [Decimal("1.5"), None, "NaN", "Infinity", "-Infinity"]
    assert shown([values], pa.list_(kind)) == [[Decimal("1.5"), None, "NaN", "Infinity", "-Infinity"]]


def test_a_32_bit_float_shows_as_it_was_sent() -> None:
    assert shown([0.1, 16777216.0, 1e-45], pa.float32()) == [Decimal("0.1"), Decimal("16777216.0"), Decimal("1e-45")]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.timestamp("us"), datetime(1, 1, 1), "0001-01-01T00:00:00"),
        (pa.timestamp("us"), datetime(2024, 1, 2, 3, 4, 5, 6), "2024-01-02T03:04:05.000006"),
        (pa.timestamp("us", "UTC"), datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
        (pa.timestamp("us", "Europe/Paris"), datetime(2024, 7, 1, tzinfo=UTC), "2024-07-01T00:00:00Z"),
        (pa.timestamp("s"), datetime(1969, 12, 31, 23, 59, 59), "1969-12-31T23:59:59"),
        (pa.date32(), date(1, 1, 1), "0001-01-01"),
        (pa.date32(), date(9999, 12, 31), "9999-12-31"),
        (pa.decimal128(38, 10), Decimal("1E-10"), "0.0000000001"),
        (pa.decimal128(38, 0), Decimal(10**37), str(10**37)),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.int64(), -(2**63), -(2**63)),
        (pa.duration("us"), timedelta(days=1), "1 day, 0:00:00"),
        (pa.null(), None, None),
    ],
)
def test_a_value_leaves_in_its_json_form(kind: pa.DataType, value: Any, text: Any) -> None:
    assert shown([value, None], kind) == [text, None]


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("us"), 253402300800000000, "10000-01-01T00:00:00.000000"),
        (pa.timestamp("us", "UTC"), 253402300800000000, "10000-01-01T00:00:00.000000Z"),
        (pa.timestamp("us", "UTC"), -62135596800000001, "0000-12-31T23:59:59.999999Z"),
    ],
)
def test_a_time_that_python_cannot_hold_leaves_as_text(kind: pa.DataType, number: int, text: str) -> None:
    column = pa.array([number, 0, None], pa.int64()).cast(kind)
    rows = parse(render(json_rows(pa.table({"c": column}))))
    zone = "Z" if kind.tz else ""
    assert [row["c"] for row in rows] == [text, f"1970-01-01T00:00:00{zone}", None]


def test_a_day_that_python_cannot_hold_leaves_as_text() -> None:
    column = pa.array([2932897, 0, None], pa.int32()).cast(pa.date32())
    assert [r["c"] for r in json_rows(pa.table({"c": column}))] == ["10000-01-01", date(1970, 1, 1), None]


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (pa.string(), "a", "a"),
        (pa.int64(), 12, "12"),
        (pa.bool_(), True, "true"),
        (pa.decimal128(5, 2), Decimal("1.50"), "1.50"),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.date32(), date(2024, 1, 2), "2024-01-02"),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00Z"),
        (pa.timestamp("us"), datetime(2024, 1, 2, 0, 0, 0, 5), "2024-01-02T00:00:00.000005"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), 1.5, "1.5"),
    ],
)
def test_a_map_is_an_object_with_its_keys_as_text(kind: pa.DataType, key: Any, text: str) -> None:
    assert shown([[(key, 1)], None, []], pa.map_(kind, pa.int64())) == [{text: 1}, None, {}]


def test_a_null_is_told_from_an_empty_container() -> None:
    assert shown([None, [], [None]], pa.list_(pa.int64())) == [None, [], [None]]
    assert shown([None, {"x": None}], pa.struct([("x", pa.int64())])) == [None, {"x": None}]
    assert shown([{}, None], pa.struct([])) == [{}, None]


def test_an_empty_lists_unwritten_offsets_are_not_read() -> None:
    """Arrow's Java library sends no offsets for a list without rows, and PyArrow then reads whatever lies there."""
    inner = pa.ListArray.from_buffers(
        pa.list_(pa.int64()), 0, [None, pa.py_buffer(struct.pack("<i", -5))], children=[pa.array([], pa.int64())]
    )
    outer = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), inner)
    assert json_rows(pa.table({"c": outer})) == [{"c": []}]


def test_a_table_without_rows_has_no_objects() -> None:
    schema = parse_schema({"fields": {"m": {"type": "map", "key_type": "long", "value_type": "long"}}})
    assert json_rows(to_arrow(schema, {"m": []})) == []
    assert json_rows(pa.table({"c": pa.chunked_array([], pa.int64())})) == []
