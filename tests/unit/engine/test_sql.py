"""Names are quoted, values are parameters, whatever stands in them."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.sql.sql import Parameters, identifier, literal, reference, where
from service.model.filters.filters import parse_filter
from service.model.filters.predicates import Compare, In, IsNull, Matches
from service.model.schema.columns import Column, columns_of
from service.model.schema.definition import parse_schema
from service.model.schema.types import Array, DecimalType, Field, Map, Primitive, Struct

SCHEMA = parse_schema(
    {
        "fields": {
            "age": {"type": "integer"},
            "name": {"type": "string"},
            "d": {"type": "decimal(6,2)"},
            "x": {"type": "double"},
            "day": {"type": "date"},
            "tags": {"type": "array", "items": "string"},
            "m": {"type": "map", "key_type": "string", "value_type": "string"},
            "address": {"type": "struct", "fields": {"city": {"type": "string"}}},
        }
    }
)


def rendered(value: Any) -> tuple[str, list[Any]]:
    parameters = Parameters()
    text = where(parse_filter(value, columns_of(SCHEMA)), parameters)
    return text, list(parameters.values.values())


@pytest.mark.parametrize(
    ("value", "text", "values"),
    [
        ({"age": {"gt": 28}}, "`age` > :p0", [28]),
        ({"name": None}, "`name` IS NULL", []),
        ({"name": {"is_not_null": True}}, "`name` IS NOT NULL", []),
        ({"age": {"gt": 1, "ne": 3}}, "(`age` > :p0 AND `age` <> :p1)", [1, 3]),
        ({"or": [{"age": 1}, {"name": "a"}]}, "(`age` = :p0 OR `name` = :p1)", [1, "a"]),
        ({"not": {"age": 1}}, "(NOT `age` = :p0)", [1]),
        ({"age": {"in": [1, None]}}, "`age` IN (:p0, NULL)", [1]),
        ({"age": {"in": []}}, "FALSE", []),
        ({}, "TRUE", []),
        ({"age": Decimal("1.5")}, "(`age` IS NULL AND CAST(NULL AS BOOLEAN))", []),
        ({"age": {"ne": Decimal("1.5")}}, "(`age` IS NOT NULL OR CAST(NULL AS BOOLEAN))", []),
        ({"d": {"lt": 2}}, "`d` < CAST(:p0 AS DECIMAL(6,2))", ["2.00"]),
        ({"x": "NaN"}, "`x` = CAST(:p0 AS DOUBLE)", ["NaN"]),
        ({"day": "2024-01-31"}, "`day` = CAST(:p0 AS DATE)", ["2024-01-31"]),
        ({"name": {"like": "a%"}}, "`name` LIKE :p0", ["a%"]),
        ({"name": {"regex": "^a"}}, "`name` RLIKE :p0", ["^a"]),
        ({"name": {"starts_with": "a"}}, "startswith(`name`, :p0)", ["a"]),
        ({"tags": {"ilike": "A"}}, "exists(`tags`, element -> element ILIKE :p0)", ["A"]),
        ({"tags": {"array_contains": "a"}}, "array_contains(`tags`, :p0)", ["a"]),
        ({"m.k'": "v"}, "`m`[:p0] = :p1", ["k'", "v"]),
        ({"address.city": {"field": "name"}}, "`address`.`city` = `name`", []),
    ],
)
def test_a_filter_as_sql(value: Any, text: str, values: list[Any]) -> None:
    assert rendered(value) == (text, values)


HOSTILE = st.text(st.characters(codec="utf-8") | st.sampled_from("'\"`\\;-:${}"), max_size=30)


@given(HOSTILE, st.sampled_from(["eq", "like", "regex", "starts_with", "in"]))
def test_no_value_ever_stands_in_the_text(value: str, operator: str) -> None:
    if operator == "like":
        value = value.replace("\\", "")
    text, values = rendered({"name": {operator: [value] if operator == "in" else value}})
    assert values == [value]
    assert re.fullmatch(r"`name` (=|LIKE|RLIKE|IN) \(?:p0\)?|startswith\(`name`, :p0\)", text)


@given(HOSTILE, HOSTILE)
def test_a_name_cannot_leave_its_quotes(name: str, qualifier: str) -> None:
    column = Column("c", (name,), Primitive("string"), qualifier)
    text = reference(column, Parameters())
    parts = re.fullmatch(r"`((?:[^`]|``)*)`\.`((?:[^`]|``)*)`", text, re.DOTALL)
    assert parts
    assert [part.replace("``", "`") for part in parts.groups()] == [qualifier, name]
    assert identifier(name) == f"`{parts[2]}`"


@pytest.mark.parametrize(
    ("kind", "value", "text", "values"),
    [
        (Primitive("float"), float("-inf"), "CAST(:p0 AS FLOAT)", ["-Infinity"]),
        (Primitive("float"), 0.10000000149011612, "CAST(:p0 AS FLOAT)", ["0.10000000149011612"]),
        (DecimalType(38, 10), Decimal("1E+3"), "CAST(:p0 AS DECIMAL(38,10))", ["1000"]),
        (Primitive("binary"), b"\x00'", "unhex(:p0)", ["0027"]),
        (Primitive("date"), date(1, 1, 1), "CAST(:p0 AS DATE)", ["0001-01-01"]),
        (Primitive("timestamp"), datetime(1, 1, 1), "CAST(:p0 AS TIMESTAMP_NTZ)", ["0001-01-01T00:00:00.000000"]),
        (
            Primitive("timestamptz"),
            datetime(9999, 12, 31, 23, tzinfo=UTC),
            "CAST(:p0 AS TIMESTAMP)",
            ["9999-12-31T23:00:00.000000+00:00"],
        ),
        (Primitive("long"), None, "CAST(NULL AS BIGINT)", []),
        (Array(Primitive("long")), [1, None], "CAST(array(:p0, CAST(NULL AS BIGINT)) AS ARRAY<BIGINT>)", [1]),
        (
            Map(Primitive("string"), Primitive("date")),
            [("k", date(2024, 1, 1))],
            "CAST(map(:p0, CAST(:p1 AS DATE)) AS MAP<STRING,DATE>)",
            ["k", "2024-01-01"],
        ),
        (
            Struct((Field("a`b", Primitive("boolean")),)),
            {"a`b": True},
            "CAST(named_struct(:p0, :p1) AS STRUCT<`a``b`:BOOLEAN>)",
            ["a`b", True],
        ),
    ],
)
def test_a_literal_is_of_its_column_s_type(kind: Any, value: Any, text: str, values: list[Any]) -> None:
    parameters = Parameters()
    assert literal(kind, value, parameters) == text
    assert list(parameters.values.values()) == values


def test_a_uuid_is_compared_by_spark_alone() -> None:
    column = Column("u", ("u",), Primitive("uuid"))
    nested = Column("s", ("s",), Struct((Field("u", Primitive("uuid")),)))
    assert where(Compare(column, "eq", "x"), Parameters()) == "concat(`u`, '') = :p0"
    assert where(In(column, ("x",)), Parameters()) == "concat(`u`, '') IN (:p0)"
    assert where(Matches(column, "starts_with", "x"), Parameters()) == "startswith(concat(`u`, ''), :p0)"
    assert where(IsNull(column), Parameters()) == "`u` IS NULL"
    assert where(Compare(nested, "eq", nested), Parameters()).startswith("element_at(transform(array(`s`)")
