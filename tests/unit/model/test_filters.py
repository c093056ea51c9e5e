"""Both dialects mean one tree, and the tree means what SQL would."""

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import FirnError, InvalidFilter, UnknownField
from service.model.filters.filters import MAX_CONDITIONS, MAX_DEPTH, parse_filter, parse_request_filter
from service.model.filters.predicates import (
    EVERY_ROW,
    NO_ROW,
    Always,
    And,
    Compare,
    ExpressionHolds,
    In,
    IsNull,
    Matches,
    Not,
    Or,
    Predicate,
)
from service.model.schema.columns import MapKey, columns_of
from service.model.schema.definition import parse_schema

SCHEMA = parse_schema(
    {
        "fields": {
            "id": {"type": "long", "required": True},
            "age": {"type": "integer"},
            "name": {"type": "string"},
            "f": {"type": "float"},
            "x": {"type": "double"},
            "d": {"type": "decimal(4,2)"},
            "wide": {"type": "decimal(38,10)"},
            "day": {"type": "date"},
            "ok": {"type": "boolean"},
            "and": {"type": "string"},
            "tags": {"type": "array", "items": "string"},
            "nums": {"type": "array", "items": "long"},
            "attributes": {"type": "map", "key_type": "string", "value_type": "integer"},
            "address": {"type": "struct", "fields": {"city": {"type": "string"}}},
        }
    }
)
RESOLVE = columns_of(SCHEMA)


def parsed(value: Any) -> Predicate:
    return parse_filter(value, RESOLVE)


def truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """What SQL says of a row: true, false, or neither."""
    match predicate:
        case Not(child):
            inner = truth(child, row)
            return None if inner is None else not inner
        case And(children):
            answers = [truth(c, row) for c in children]
            return False if False in answers else None if None in answers else True
        case Or(children):
            answers = [truth(c, row) for c in children]
            return True if True in answers else None if None in answers else False
        case IsNull(column):
            return row[column.name] is None
    value = row[predicate.column.name]
    if value is None:
        return None
    match predicate:
        case Always(_, answer):
            return answer
        case In(_, values, or_null):
            return True if value in values else None if or_null else False
        case Compare(_, operator, operand):
            return compared(value, operator, operand)
    raise AssertionError(predicate)


def compared(value: Any, operator: str, operand: Any) -> bool:
    answers: dict[str, bool] = {
        "eq": value == operand,
        "ne": value != operand,
        "gt": value > operand,
        "gte": value >= operand,
        "lt": value < operand,
        "lte": value <= operand,
    }
    return answers[operator]


@pytest.mark.parametrize(
    ("mapped", "listed"),
    [
        ({"age": {"gt": 28}}, [{"field": "age", "operator": "gt", "value": 28}]),
        ({"name": "Ann"}, [{"field": "name", "operator": "eq", "value": "Ann"}]),
        ({"name": None}, [{"field": "name", "operator": "is_null"}]),
        ({"name": {"is_not_null": True}}, [{"field": "name", "operator": "is_null", "value": False}]),
        ({"age": {"gt": {"field": "id"}}}, [{"field": "age", "operator": "gt", "value": {"field": "id"}}]),
        ({"age": {"field": "id"}}, [{"field": "age", "operator": "eq", "value": {"field": "id"}}]),
        (
            {"age": {"gt": 1}, "name": {"in": ["a"]}},
            [{"field": "age", "operator": "gt", "value": 1}, {"field": "name", "operator": "in", "value": ["a"]}],
        ),
        ({"or": [{"age": 1}, {"age": 2}]}, {"or": [{"field": "age", "operator": "eq", "value": 1}, {"age": 2}]}),
        ({"not": {"age": 1}}, [{"not": [{"field": "age", "operator": "eq", "value": 1}]}]),
        ({}, []),
    ],
)
def test_both_dialects_mean_the_same(mapped: Any, listed: Any) -> None:
    assert parsed(mapped) == parsed(listed)


def test_what_stands_side_by_side_is_joined_by_and() -> None:
    assert truth(parsed({"age": {"gt": 1, "lt": 5}, "name": "Ann"}), {"age": 3, "name": "Ann"}) is True
    assert truth(parsed({"age": {"gt": 1, "lt": 5}, "name": "Ann"}), {"age": 5, "name": "Ann"}) is False


def test_a_column_named_like_a_joint_is_reached_by_the_list_dialect() -> None:
    found = parsed([{"field": "and", "operator": "eq", "value": "x"}])
    assert isinstance(found, Compare)
    assert found.column.name == "and"


def test_an_empty_in_matches_nothing_and_its_opposite_everything() -> None:
    assert parsed({"age": {"in": []}}) == NO_ROW
    assert truth(parsed({"age": {"not_in": []}}), {"age": None}) is True


@pytest.mark.parametrize(
    "value",
    [{"age": {"ne": 30}}, {"age": {"not_in": [30]}}, {"not": {"age": 30}}, {"not": {"age": {"gt": Decimal("30.5")}}}],
)
def test_no_comparison_is_true_of_a_null(value: Any) -> None:
    assert truth(parsed(value), {"age": None}) is None
    assert truth(parsed(value), {"age": 29}) is True


def test_a_null_in_a_list_leaves_no_not_in_true() -> None:
    assert truth(parsed({"age": {"in": [1, None]}}), {"age": 1}) is True
    assert truth(parsed({"age": {"not_in": [1, None]}}), {"age": 2}) is None


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-200, 200),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-200, max_value=200),
    st.sampled_from([Decimal("1e-400"), Decimal("-1e-400"), Decimal("1e400"), Decimal("-1e400"), 2**31 - 1, -(2**31)]),
)


@given(
    st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]),
    NUMBERS,
    st.one_of(st.integers(-200, 200), st.sampled_from([2**31 - 1, -(2**31)])),
    st.booleans(),
)
def test_a_number_is_compared_exactly_with_any_integer(operator: str, number: Any, value: int, negated: bool) -> None:
    condition: Any = {"age": {operator: number}}
    expected = compared(Decimal(value), operator, number)
    found = truth(parsed({"not": condition} if negated else condition), {"age": value})
    assert found is (not expected if negated else expected)


@given(st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]), NUMBERS, st.integers(-9999, 9999))
def test_a_number_is_compared_exactly_with_any_decimal(operator: str, number: Any, hundredths: int) -> None:
    value = Decimal(hundredths) / 100
    assert truth(parsed({"d": {operator: number}}), {"d": value}) is compared(value, operator, number)


@given(st.lists(NUMBERS, max_size=4), st.integers(-200, 200))
def test_in_finds_what_is_in_the_list(numbers: list[Any], value: int) -> None:
    assert truth(parsed({"age": {"in": numbers}}), {"age": value}) is (value in numbers)


def test_all_38_digits_of_a_decimal_count() -> None:
    almost = Decimal("1234567890123456789012345678.0123456789")
    assert parsed({"wide": almost}) == Compare(RESOLVE("wide", ""), "eq", almost)
    assert parsed({"wide": str(almost)}) == parsed({"wide": almost})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"gt": "NaN"}, Always(RESOLVE("x", ""), False)),
        ({"lte": "NaN"}, Always(RESOLVE("x", ""), True)),
        ({"gt": Decimal("1e999")}, Compare(RESOLVE("x", ""), "gt", float.fromhex("0x1.fffffffffffffp+1023"))),
        ({"lt": Decimal("1e999")}, Compare(RESOLVE("x", ""), "lt", float("inf"))),
        ({"eq": Decimal("-1e999")}, Always(RESOLVE("x", ""), False)),
    ],
)
def test_nan_is_above_every_number_and_the_huge_lie_below_infinity(value: Any, expected: Predicate) -> None:
    assert parsed({"x": value}) == expected


def test_a_float_column_compares_with_the_float_that_would_be_stored() -> None:
    assert parsed({"f": Decimal("0.1")}) == Compare(RESOLVE("f", ""), "eq", 0.10000000149011612)


def test_dots_reach_into_structs_and_take_values_of_maps() -> None:
    found = parsed({"address.city": "Oslo", "attributes.color": 3})
    assert isinstance(found, And)
    city, color = (child.column for child in found.children if isinstance(child, Compare))
    assert (city.steps, color.steps) == (("address", "city"), ("attributes", MapKey("color")))


def test_like_on_a_list_of_texts_asks_for_any_element() -> None:
    assert parsed({"tags": {"like": "a%"}}) == Matches(RESOLVE("tags", ""), "like", "a%", any_element=True)


@pytest.mark.parametrize(
    ("value", "error", "field", "suggestion"),
    [
        ({"adress.city": "x"}, UnknownField, "filter.adress.city", "address.city"),
        ({"or": [{"nme": 1}]}, UnknownField, "filter.or[0].nme", "name"),
        ([{"field": "nme", "operator": "eq", "value": 1}], UnknownField, "filter[0].field", "name"),
        ([{"field": "name", "operator": "eq", "valu": 1}], UnknownField, "filter[0].valu", "value"),
        ([{"field": "name", "operator": "eq", "value": "a", "x": 1}], UnknownField, "filter[0].x", None),
        ([{"field": "name", "value": 1}], InvalidFilter, "filter[0].operator", None),
        ([{"field": "age", "operator": "gt"}], InvalidFilter, "filter[0].value", None),
        ({"age": {"gte2": 1}}, InvalidFilter, "filter.age.gte2", "gte"),
        ({"age": {}}, InvalidFilter, "filter.age", None),
        ({"age": {"like": "x"}}, InvalidFilter, "filter.age.like", None),
        ({"age": "x"}, InvalidFilter, "filter.age", None),
        ({"age": True}, InvalidFilter, "filter.age", None),
        ({"age": {"gt": {"x": 1}}}, InvalidFilter, "filter.age.gt", None),
        ({"age": {"eq": None}}, InvalidFilter, "filter.age.eq", None),
        ({"age": {"in": 1}}, InvalidFilter, "filter.age.in", None),
        ({"age": {"in": ["x"]}}, InvalidFilter, "filter.age.in[0]", None),
        ({"age": {"between": [1]}}, InvalidFilter, "filter.age.between", None),
        ({"age": {"is_null": 1}}, InvalidFilter, "filter.age.is_null", None),
        ({"name": {"gt": {"field": "age"}}}, InvalidFilter, "filter.name.gt", None),
        ({"name": {"like": "a\\b"}}, InvalidFilter, "filter.name.like", None),
        ({"name": {"like": "a\\"}}, InvalidFilter, "filter.name.like", None),
        ({"name": {"regex": 1}}, InvalidFilter, "filter.name.regex", None),
        ({"name": {"starts_with": None}}, InvalidFilter, "filter.name.starts_with", None),
        ({"tags": {"contains": "x"}}, InvalidFilter, "filter.tags.contains", "array_contains"),
        ({"tags": "x"}, InvalidFilter, "filter.tags", None),
        ({"tags": {"array_contains": 1}}, InvalidFilter, "filter.tags.array_contains", None),
        ({"name": {"array_contains": "x"}}, InvalidFilter, "filter.name.array_contains", None),
        ({"address": {"eq": 1}}, InvalidFilter, "filter.address.eq", None),
        ({"ok": {"gt": True}}, InvalidFilter, "filter.ok.gt", None),
        ({"day": "2024-02-30"}, InvalidFilter, "filter.day", None),
        ({"gt": {"age": 1}}, InvalidFilter, "filter.gt", None),
        ({"or": {"age": 1}}, InvalidFilter, "filter.or", None),
        ({"not": 1}, InvalidFilter, "filter.not", None),
        ("age > 1", InvalidFilter, "filter", None),
        ({"name": {"regex": "(a+)+b"}}, InvalidFilter, "filter.name.regex", None),
        ({"name": {"like": "%a%a%a%a%a%a%b"}}, InvalidFilter, "filter.name.like", None),
        ({"expression": "name RLIKE '(a|aa)+$'"}, InvalidFilter, "filter.expression", None),
    ],
)
def test_a_refusal_names_the_place_and_the_nearest_name(
    value: Any, error: type[FirnError], field: str, suggestion: str | None
) -> None:
    with pytest.raises(error) as caught:
        parsed(value)
    assert (type(caught.value), caught.value.field, caught.value.suggestion) == (error, field, suggestion)


@pytest.mark.parametrize("pattern", ["", "%", r"100\%", r"a\\b", "_\n_", r"\_%\\"])
def test_a_pattern_escapes_with_backslashes(pattern: str) -> None:
    assert parsed({"name": {"like": pattern}}) == Matches(RESOLVE("name", ""), "like", pattern)


def test_nesting_and_size_are_bounded() -> None:
    deep: Any = {"age": 1}
    for _ in range(MAX_DEPTH):
        deep = {"not": deep}
    with pytest.raises(InvalidFilter, match=re.escape(f"more than {MAX_DEPTH} deep")):
        parsed(deep)
    parsed(deep["not"])
    with pytest.raises(InvalidFilter, match=f"more than {MAX_CONDITIONS} conditions"):
        parsed([{"age": 1}] * (MAX_CONDITIONS + 1))


@pytest.mark.parametrize(
    "value",
    [
        {"expression": "age < id"},
        [{"expression": "age < id"}],
        {"and": [{"expression": "age < id"}]},
    ],
)
def test_an_expression_is_a_condition_in_both_dialects(value: Any) -> None:
    found = parsed(value)
    if isinstance(found, And):
        (found,) = found.children
    assert isinstance(found, ExpressionHolds)
    assert (found.expression.text, found.expression.columns) == ("age < id", {"age", "id"})


def test_an_expression_stands_beside_other_conditions() -> None:
    found = parsed({"age": 1, "expression": "ok", "or": [{"expression": "age IS NULL"}, {"name": "a"}]})
    assert isinstance(found, And)
    assert [type(child) for child in found.children] == [Compare, ExpressionHolds, Or]


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        ({"expression": "age"}, "filter.expression", "expected a condition such as 'a < b', not a number"),
        ({"expression": "NULL"}, "filter.expression", "expected a condition"),
        ({"expression": "age >"}, "filter.expression", "at character 6: expected a value, found the end"),
        ({"expression": {"gt": 1}}, "filter.expression", "expected text such as"),
        ({"expression": None}, "filter.expression", "expected text such as"),
        ({"or": [{"age": 1}, {"expression": "agee > 1"}]}, "filter.or[1].expression", "did you mean 'age'?"),
    ],
)
def test_an_expression_that_is_no_condition_is_refused(value: Any, field: str, words: str) -> None:
    with pytest.raises(FirnError) as caught:
        parsed(value)
    assert caught.value.field == field
    assert words in caught.value.message


def test_where_a_column_is_called_expression_the_filter_means_that_column() -> None:
    resolve = columns_of(parse_schema({"fields": {"expression": {"type": "string"}, "a": {"type": "long"}}}))
    assert parse_filter({"expression": "a > 1"}, resolve) == Compare(resolve("expression", ""), "eq", "a > 1")


def test_the_parts_of_expressions_count_as_conditions() -> None:
    one = {"expression": "age IN (" + ", ".join(["1"] * 600) + ")"}
    parsed([one] * 3)
    with pytest.raises(InvalidFilter, match=f"more than {MAX_CONDITIONS} conditions"):
        parsed([one] * 4)


def test_filter_has_two_names_but_only_one_at_a_time() -> None:
    assert parse_request_filter(None, None, RESOLVE) == EVERY_ROW
    assert parse_request_filter({"age": 1}, None, RESOLVE) == parse_request_filter(None, {"age": 1}, RESOLVE)
    with pytest.raises(InvalidFilter, match="send only one"):
        parse_request_filter({}, {}, RESOLVE)
