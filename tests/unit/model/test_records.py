from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidFilter, InvalidRecord, UnknownField
from service.model.records import read_literal, read_records
from service.model.schema.definition import parse_schema
from service.model.schema.types import ColumnType, TableSchema
from tests.strategies import records, schemas

HUGE = Decimal("1E+1000000000")
UUID = "0123abcd-0123-abcd-0123-0123456789ab"


def table(**fields: Any) -> TableSchema:
    return parse_schema({"fields": {n: {"type": d} if isinstance(d, str) else d for n, d in fields.items()}})


def kind(definition: Any) -> ColumnType:
    return table(c=definition).fields[0].type


def read(definition: Any, value: Any) -> Any:
    return read_records(table(c=definition), [{"c": value}])["c"][0]


def refused(schema: TableSchema, *rows: Any) -> InvalidRecord:
    with pytest.raises(InvalidRecord) as caught:
        read_records(schema, list(rows))
    return caught.value


ACCEPTED: list[tuple[Any, Any, Any]] = [
    ("integer", 2**31 - 1, 2**31 - 1),
    ("integer", -(2**31), -(2**31)),
    ("integer", Decimal("12.000"), 12),
    ("integer", Decimal("1E+3"), 1000),
    ("integer", Decimal("0E+1000000000"), 0),
    ("integer", 5.0, 5),
    ("long", 2**63 - 1, 2**63 - 1),
    ("long", -(2**63), -(2**63)),
    ("long", Decimal("-9223372036854775808.0"), -(2**63)),
    ("double", 1, 1.0),
    ("double", Decimal("0.1"), 0.1),
    ("double", Decimal("1E-1000000000"), 0.0),
    ("double", 2**63 - 1, 9.223372036854775807e18),
    ("double", "Infinity", inf),
    ("float", "-Infinity", -inf),
    ("float", Decimal("0.1"), 0.10000000149011612),
    ("float", Decimal("3.4028235E+38"), 3.4028234663852886e38),
    ("boolean", True, True),
    ("boolean", False, False),
    ("decimal(5,2)", Decimal("123.45"), Decimal("123.45")),
    ("decimal(5,2)", "-999.99", Decimal("-999.99")),
    ("decimal(5,2)", 7, Decimal("7.00")),
    ("decimal(5,2)", "1.50000000000000000000000000000000000000000000", Decimal("1.50")),
    ("decimal(5,2)", Decimal("1E+2"), Decimal("100.00")),
    ("decimal(5,2)", "1.5e1", Decimal("15.00")),
    ("decimal(5,2)", Decimal("-0E+1000000000"), Decimal("0.00")),
    ("decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("decimal(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
    ("string", "", ""),
    ("string", "日本 😀", "日本 😀"),
    ("date", "0001-01-01", date(1, 1, 1)),
    ("date", "9999-12-31", date(9999, 12, 31)),
    ("timestamp", "2024-01-02", datetime(2024, 1, 2)),
    ("timestamp", "2024-01-02 03:04", datetime(2024, 1, 2, 3, 4)),
    ("timestamp", "2024-01-02T03:04:05.5", datetime(2024, 1, 2, 3, 4, 5, 500000)),
    ("timestamp", "2024-01-02T03:04:05.1234560000", datetime(2024, 1, 2, 3, 4, 5, 123456)),
    ("timestamp", "2024-01-02T03:04:05+02:00", datetime(2024, 1, 2, 1, 4, 5)),
    ("timestamp", "2024-01-02T03:04:05Z", datetime(2024, 1, 2, 3, 4, 5)),
    ("timestamptz", "2024-01-02T03:04:05", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("timestamptz", "2024-01-02T03:04:05-0130", datetime(2024, 1, 2, 4, 34, 5, tzinfo=UTC)),
    ("timestamptz", "9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("binary", "", b""),
    ("binary", "AP8=", b"\x00\xff"),
    ("binary", "+/+/", b"\xfb\xff\xbf"),
    ("uuid", UUID.upper(), UUID),
    ({"type": "array", "items": "long"}, [1, None], [1, None]),
    ({"type": "map", "key_type": "long", "value_type": "string"}, {"12": "a", "-1": None}, [(12, "a"), (-1, None)]),
    ({"type": "map", "key_type": "boolean", "value_type": "long"}, {"true": 1, "false": 2}, [(True, 1), (False, 2)]),
    ({"type": "map", "key_type": "date", "value_type": "long"}, {"2024-01-01": 1}, [(date(2024, 1, 1), 1)]),
    ({"type": "map", "key_type": "decimal(3,1)", "value_type": "long"}, {"1.5": 1}, [(Decimal("1.5"), 1)]),
    ({"type": "struct", "fields": {"x": {"type": "long"}, "y": {"type": "long"}}}, {"y": 1}, {"x": None, "y": 1}),
]

REFUSED: list[tuple[Any, Any]] = [
    ("integer", 2**31),
    ("integer", -(2**31) - 1),
    ("integer", "5"),
    ("integer", True),
    ("integer", Decimal("1.5")),
    ("integer", HUGE),
    ("integer", Decimal("1E-1000000000")),
    ("integer", []),
    ("integer", Decimal("NaN")),
    ("long", 2**63),
    ("long", 10**4000),
    ("long", Decimal("9223372036854775807.5")),
    ("double", True),
    ("double", "1.5"),
    ("double", "nan"),
    ("double", HUGE),
    ("double", 10**400),
    ("double", Decimal("NaN")),
    ("float", Decimal("3.5E+38")),
    ("boolean", 1),
    ("boolean", "true"),
    ("decimal(5,2)", "1.234"),
    ("decimal(5,2)", 1000),
    ("decimal(5,2)", HUGE),
    ("decimal(5,2)", Decimal("1E-1000000000")),
    ("decimal(5,2)", "NaN"),
    ("decimal(5,2)", Decimal("NaN")),
    ("decimal(5,2)", "1_0"),
    ("decimal(5,2)", " 1"),
    ("decimal(5,2)", "١"),
    ("decimal(5,2)", "1E+99999999999999999999"),
    ("decimal(5,2)", True),
    ("decimal(38,0)", 10**38),
    ("string", 5),
    ("string", "\ud800"),
    ("string", {}),
    ("date", "2023-02-29"),
    ("date", "2024-1-1"),
    ("date", "20240101"),
    ("date", "2024-01-01T00:00:00"),
    ("date", "0000-01-01"),
    ("date", "٢٠٢٤-01-01"),
    ("date", 19000),
    ("timestamp", "2024-02-30T00:00:00"),
    ("timestamp", "2024-01-01T24:00:00"),
    ("timestamp", "2024-01-01T23:59:60"),
    ("timestamp", "2024-01-01T00:00:00.1234567"),
    ("timestamp", "2024-01-01T00:00:00 Z"),
    ("timestamp", "2024-01-01t00:00:00"),
    ("timestamp", "2024-01-01T00:00:00\n"),
    ("timestamp", "2024-W01-1"),
    ("timestamp", 1700000000),
    ("timestamp", "0001-01-01T00:00:00+00:01"),
    ("timestamptz", "9999-12-31T23:59:59-00:01"),
    ("timestamptz", "2024-01-01T00:00:00+24:00"),
    ("timestamptz", "2024-01-01T00:00:00 Europe/Paris"),
    ("binary", "AP8"),
    ("binary", "AP9="),
    ("binary", "AP8=\n"),
    ("binary", "-_-_"),
    ("binary", "é==="),
    ("binary", 5),
    ("uuid", UUID.replace("-", "")),
    ("uuid", "{" + UUID + "}"),
    ("uuid", 5),
    ({"type": "array", "items": "long"}, {"0": 1}),
    ({"type": "map", "key_type": "long", "value_type": "long"}, []),
    ({"type": "map", "key_type": "long", "value_type": "long"}, {"1.0": 1}),
    ({"type": "map", "key_type": "long", "value_type": "long"}, {str(2**63): 1}),
    ({"type": "map", "key_type": "boolean", "value_type": "long"}, {"True": 1}),
    ({"type": "struct", "fields": {"x": {"type": "long"}}}, [1]),
]


@pytest.mark.parametrize(("definition", "value", "expected"), ACCEPTED, ids=str)
def test_a_value_that_fits_is_read_exactly(definition: Any, value: Any, expected: Any) -> None:
    found = read(definition, value)
    assert (found, type(found)) == (expected, type(expected))
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("definition", "value"), REFUSED, ids=lambda v: str(v)[:40] if not isinstance(v, str) else None
)
def test_a_value_that_does_not_fit_is_refused_where_it_stands(definition: Any, value: Any) -> None:
    error = refused(table(c=definition), {}, {"c": value})
    assert str(error.field).startswith("records[1].c")
    assert error.details is not None
    assert error.details["record"] == 1
    assert error.message.startswith(f"{error.field}: ")
    assert len(error.message) < 300


def test_nan_is_text_on_the_wire() -> None:
    assert isnan(read("double", "NaN"))


def test_the_message_says_what_is_wrong_and_the_way_out() -> None:
    error = refused(table(age="integer"), {}, {}, {}, {"age": "abc"})
    assert error.message == (
        "records[3].age: 'abc' is not an integer; send a whole number from -2147483648 to 2147483647"
    )
    assert error.field == "records[3].age"
    assert error.details == {"record": 3, "field": "age"}


def test_the_first_record_that_does_not_fit_is_the_one_named() -> None:
    """Also where a column that stands earlier has a later misfit."""
    schema = table(a="long", b="long")
    assert refused(schema, {"a": 1, "b": 1}, {"b": "x"}, {"a": "x"}).field == "records[1].b"


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    address = {"type": "struct", "fields": {"city": {"type": "string"}}}
    schema = table(name="string", address=address, list={"type": "array", "items": address})
    top = refused(schema, {"name": "x"}, {"nmae": "y"})
    assert (top.field, top.suggestion) == ("records[1].nmae", "name")
    inner = refused(schema, {"address": {"cty": "x"}})
    assert (inner.field, inner.suggestion) == ("records[0].address.cty", "city")
    assert inner.details == {"record": 0, "field": "address.cty"}
    assert refused(schema, {"list": [{}, {"cty": 1}]}).field == "records[0].list[1].cty"
    assert refused(schema, {"Name": "x"}).suggestion == "name"


def test_null_and_absent_are_the_same() -> None:
    assert read_records(table(a="long", b="long"), [{"a": None}, {"b": 1}]) == {"a": [None, None], "b": [None, 1]}


@pytest.mark.parametrize("row", [{}, {"c": None}])
def test_a_required_column_needs_a_value(row: Any) -> None:
    assert refused(table(c={"type": "long", "required": True}), row).field == "records[0].c"


@pytest.mark.parametrize(
    ("definition", "value", "where"),
    [
        ({"type": "array", "items": {"type": "long", "required": True}}, [1, None], "[1]"),
        ({"type": "map", "key_type": "string", "value_type": {"type": "long", "required": True}}, {"k": None}, "['k']"),
        ({"type": "struct", "fields": {"x": {"type": "long", "required": True}}}, {}, ".x"),
    ],
)
def test_required_holds_inside_containers(definition: Any, value: Any, where: str) -> None:
    assert refused(table(c=definition), {"c": value}).field == f"records[0].c{where}"


@pytest.mark.parametrize(
    ("key_type", "one", "other"),
    [
        ("long", "1", "01"),
        ("decimal(3,1)", "1", "1.0"),
        ("uuid", UUID, UUID.upper()),
        ("timestamptz", "2024-01-01", "2024-01-01T00:00:00Z"),
    ],
)
def test_keys_that_read_the_same_are_refused(key_type: str, one: str, other: str) -> None:
    schema = table(c={"type": "map", "key_type": key_type, "value_type": "long"})
    assert refused(schema, {"c": {one: 1, other: 2}}).field == f"records[0].c[{other!r}]"


@pytest.mark.parametrize("row", [None, 5, "x", [], [1]])
def test_a_record_is_an_object(row: Any) -> None:
    error = refused(table(c="long"), {}, row)
    assert (error.field, error.details) == ("records[1]", {"record": 1})


@pytest.mark.parametrize("rows", [None, {}, "x", 5])
def test_records_are_a_list(rows: Any) -> None:
    with pytest.raises(InvalidRecord, match="records: expected a list"):
        read_records(table(c="long"), rows)


def test_columns_read_only_these_in_the_tables_order() -> None:
    schema = table(a="long", b={"type": "long", "required": True}, c="long")
    assert list(read_records(schema, [{"c": 1, "a": 2}], columns=["c", "a"]).items()) == [("a", [2]), ("c", [1])]
    with pytest.raises(InvalidRecord, match=r"records\[0\]\.b"):
        read_records(schema, [{"a": 1, "b": 2}], columns=["a"])
    with pytest.raises(UnknownField):
        read_records(schema, [], columns=["nope"])


def test_no_records_are_empty_columns() -> None:
    assert read_records(table(a="long", b="long"), []) == {"a": [], "b": []}


def test_a_literal_is_read_like_a_records_value() -> None:
    assert read_literal(kind("decimal(5,2)"), 7, "updates.price") == Decimal("7.00")
    assert read_literal(kind("long"), None, "updates.n") is None
    with pytest.raises(InvalidFilter) as caught:
        read_literal(kind({"type": "array", "items": "long"}), [1, "x"], "filter.n.eq", InvalidFilter)
    assert caught.value.field == "filter.n.eq[1]"


@given(st.data())
def test_every_record_that_fits_is_read(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(records(schema))
    columns = read_records(schema, rows)
    assert tuple(columns) == schema.names
    assert all(len(values) == len(rows) for values in columns.values())
    for i, row in enumerate(rows):
        assert [name for name in schema.names if columns[name][i] is not None] == [
            name for name in schema.names if row.get(name) is not None
        ]


junk: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from([HUGE, "2024-01-01", "1E5", UUID]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_no_json_value_breaks_the_reader(data: st.DataObject) -> None:
    """Whatever comes is read or is an InvalidRecord about that record."""
    schema = data.draw(schemas(max_columns=2))
    row = data.draw(junk | st.fixed_dictionaries(dict.fromkeys(schema.names, junk)))
    try:
        read_records(schema, [row])
    except InvalidRecord as e:
        named = str(e.field)
    else:
        named = "records[0]"
    assert named.startswith("records[0]")
