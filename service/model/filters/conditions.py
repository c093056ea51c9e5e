"""Read one condition: a column, an operator and a value, which is checked against the column's type and made exact.

A number that the column's type cannot represent is not an error: `age > 28.5` on an integer column means `age > 28`,
and `age = 28.5` is false for every age. So no comparison needs a wider type than the column's.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import inf, isnan
from typing import Any, cast

from service.errors import InvalidFilter
from service.model.expressions.checks import has_bad_escape
from service.model.expressions.kinds import BOOLEAN, STRING, family, is_plain
from service.model.filters.predicates import (
    NO_ROW,
    Always,
    And,
    Compare,
    HasElement,
    In,
    IsNull,
    Matches,
    Not,
    Or,
    Order,
    Predicate,
    TextTest,
    Value,
)
from service.model.patterns.backtracking import problem_of
from service.model.records import read_literal
from service.model.schema.columns import Column
from service.model.schema.types import FLOATING, Array, ColumnType, DecimalType, Primitive

MAX_VALUES = 10_000
FLIPPED: dict[Order, Order] = {"eq": "eq", "ne": "ne", "gt": "lt", "gte": "lte", "lt": "gt", "lte": "gte"}
_WHOLE = {"integer": 31, "long": 63}
_LARGEST = {"float": float.fromhex("0x1.fffffep+127"), "double": float.fromhex("0x1.fffffffffffffp+1023")}
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?")
_EXACT = Context(prec=2_000)


def compare(column: Column, operator: Order, value: Any, path: str) -> Predicate:
    if isinstance(value, Column):
        check_join(column, operator, value, path)
        return Compare(column, operator, value)
    if value is None:
        instead = "is_not_null" if operator == "ne" else "is_null"
        raise InvalidFilter.at(path, f"a comparison with null is never true; use {instead}")
    _check_ordered(column, operator, path)
    if str(column.type) in FLOATING:
        return _compare_floating(column, operator, value, path)
    grid = _grid(column.type)
    if grid is None:
        return Compare(column, operator, _literal(column.type, value, path))
    low, high = (_typed(column.type, n) for n in _neighbours(_number(column.type, value, path), *grid))
    if low is not None and low == high:
        return Compare(column, operator, low)
    return _between_neighbours(column, operator, low, high)


def check_join(left: Column, operator: Order, right: Column, path: str) -> None:
    """Refuse to compare columns whose types have nothing in common."""
    for side in (left, right):
        _check_ordered(side, operator, path)
    if family(left.type) != family(right.type):
        problem = f"{left.name!r} is {left.type} and {right.name!r} is {right.type}; use columns of similar types"
        raise InvalidFilter.at(path, problem)


def _between_neighbours(column: Column, operator: Order, low: Value | None, high: Value | None) -> Predicate:
    """Compare with a value between two that the column's type can represent; None is beyond the type's range."""
    if operator in ("eq", "ne"):
        return Always(column, operator == "ne")
    side, neighbour = ("gt", low) if operator in ("gt", "gte") else ("lt", high)
    return Always(column, True) if neighbour is None else Compare(column, cast(Order, side), neighbour)


def _grid(kind: ColumnType) -> tuple[Decimal, int] | None:
    """The largest value of an exact numeric type and its scale."""
    if isinstance(kind, DecimalType):
        return Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT), kind.scale
    if isinstance(kind, Primitive) and kind.name in _WHOLE:
        return Decimal(2 ** _WHOLE[kind.name] - 1), 0
    return None


def _neighbours(number: Decimal, largest: Decimal, scale: int) -> tuple[Decimal | None, Decimal | None]:
    # Two's complement has one more value below zero than above.
    smallest = _EXACT.minus(largest) - 1 if largest in (2**31 - 1, 2**63 - 1) else _EXACT.minus(largest)
    if number > largest:
        return largest, None
    if number < smallest:
        return None, smallest
    step = Decimal(1).scaleb(-scale)
    # A few characters can mean a number of a billion digits, which must not be converted.
    if number and number.adjusted() < -scale:
        return (step * 0, step) if number > 0 else (-step, step * 0)
    return number.quantize(step, ROUND_FLOOR, _EXACT), number.quantize(step, ROUND_CEILING, _EXACT)


def _number(kind: ColumnType, value: Any, path: str) -> Decimal:
    if type(value) is int:
        return Decimal(value)
    if type(value) is Decimal and value.is_finite():
        return value
    if type(value) is str and isinstance(kind, DecimalType) and _NUMBER.fullmatch(value):
        return Decimal(value)
    return Decimal(_literal(kind, value, path))


def _typed(kind: ColumnType, number: Decimal | None) -> Value | None:
    return number if number is None or isinstance(kind, DecimalType) else int(number)


def _compare_floating(column: Column, operator: Order, value: Any, path: str) -> Predicate:
    largest = _LARGEST[str(column.type)]
    if type(value) in (int, Decimal) and Decimal(value).copy_abs() > largest:
        low, high = (largest, inf) if value > 0 else (-inf, -largest)
        return _between_neighbours(column, operator, low, high)
    number = _literal(column.type, value, path)
    if isnan(number) and operator not in ("eq", "ne"):
        # NaN equals itself and is greater than any other number, as in Spark.
        if operator in ("gt", "lte"):
            return Always(column, operator == "lte")
        return Compare(column, "eq" if operator == "gte" else "ne", number)
    return Compare(column, operator, number)


def _in(column: Column, operator: str, value: Any, path: str) -> Predicate:
    if not isinstance(value, list):
        raise InvalidFilter.at(path, "expected a list of values; for a single value use eq")
    if len(value) > MAX_VALUES:
        raise InvalidFilter.at(path, f"there are {len(value)} values; send at most {MAX_VALUES} in one request")
    _require(is_plain(column.type), column, operator, path)
    found = _among(column, value, path)
    return Not(found) if operator == "not_in" else found


def _among(column: Column, values: list[Any], path: str) -> Predicate:
    if not values:
        return NO_ROW
    single: list[Predicate] = []
    listed: dict[Value, None] = {}
    for i, item in enumerate(values):
        if item is None:
            continue
        one = compare(column, "eq", item, f"{path}[{i}]")
        if isinstance(one, Compare) and not isinstance(one.operand, Column) and one.operand == one.operand:
            listed[one.operand] = None
        elif one not in single:
            single.append(one)
    if listed or None in values:
        single.append(In(column, tuple(listed), None in values))
    return single[0] if len(single) == 1 else Or(tuple(single))


def _between(column: Column, operator: str, value: Any, path: str) -> Predicate:
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidFilter.at(path, "expected a list of two values, the lower one first")
    low, high = value
    return And((compare(column, "gte", low, f"{path}[0]"), compare(column, "lte", high, f"{path}[1]")))


def _like(column: Column, operator: TextTest, value: Any, path: str) -> Predicate:
    any_element = column.type == Array(STRING, getattr(column.type, "items_required", False))
    if not any_element:
        _require(column.type == STRING, column, operator, path)
    if not isinstance(value, str):
        raise InvalidFilter.at(path, "expected text such as 'A%'; % stands for any text, _ for one character")
    if has_bad_escape(value):
        raise InvalidFilter.at(path, "a backslash escapes only %, _ or another backslash; write two for a plain one")
    _check_pattern(operator, value, path)
    return Matches(column, operator, _literal(STRING, value, path), any_element)


def _regex(column: Column, operator: str, value: Any, path: str) -> Predicate:
    _require(column.type == STRING, column, operator, path)
    if not isinstance(value, str):
        raise InvalidFilter.at(path, "expected text: a regular expression in Java's syntax")
    _check_pattern("regex", value, path)
    return Matches(column, "regex", _literal(STRING, value, path))


def _check_pattern(operator: str, value: str, path: str) -> None:
    problem = problem_of(operator, value)
    if problem:
        raise InvalidFilter.at(path, problem)


def _part(column: Column, operator: TextTest, value: Any, path: str) -> Predicate:
    if isinstance(column.type, Array) and operator == "contains":
        problem = f"{column.name!r} is {column.type}; for an element of a list use array_contains"
        raise InvalidFilter.at(path, problem, "array_contains")
    _require(column.type == STRING, column, operator, path)
    if isinstance(value, Column):
        _require(value.type == STRING, value, operator, path)
        return Matches(column, operator, value)
    if value is None:
        raise InvalidFilter.at(path, "no text contains null; use is_null")
    return Matches(column, operator, _literal(STRING, value, path))


def _null(column: Column, operator: str, value: Any, path: str) -> Predicate:
    if value is not None and not isinstance(value, bool):
        raise InvalidFilter.at(path, "expected true or false")
    wants_null = (operator == "is_null") == (value is not False)
    return IsNull(column) if wants_null else Not(IsNull(column))


def _array_contains(column: Column, operator: str, value: Any, path: str) -> Predicate:
    if not isinstance(column.type, Array):
        raise InvalidFilter.at(path, f"array_contains needs a list, but {column.name!r} is {column.type}; use eq or in")
    kind = column.type.items
    if not is_plain(kind):
        raise InvalidFilter.at(path, f"array_contains needs a list of plain values, but an element is {kind}")
    if value is None or isinstance(value, Column):
        raise InvalidFilter.at(path, f"expected a value of type {kind}")
    one = compare(replace(column, type=kind), "eq", value, path)
    if isinstance(one, Compare) and not isinstance(one.operand, Column):
        return HasElement(column, one.operand)
    return Always(column, False)


def _literal(kind: ColumnType, value: Any, path: str) -> Any:
    if isinstance(value, Column):
        raise InvalidFilter.at(path, "it cannot be another column; send a value")
    return read_literal(kind, value, path, InvalidFilter)


def _check_ordered(column: Column, operator: str, path: str) -> None:
    unordered = column.type == BOOLEAN and operator not in ("eq", "ne")
    _require(is_plain(column.type) and not unordered, column, operator, path)


def _require(fits: bool, column: Column, operator: str, path: str) -> None:
    if fits:
        return
    fitting = "eq, ne, gt, gte, lt, lte, in and between"
    if column.type == BOOLEAN:
        fitting = "eq, ne and in"
    elif isinstance(column.type, Array):
        fitting = "array_contains, is_null and is_not_null"
    elif not is_plain(column.type):
        fitting = "is_null and is_not_null, or name a field inside it"
    problem = f"{operator} does not work on {column.name!r}, which is {column.type}; use {fitting}"
    raise InvalidFilter.at(path, problem)


# The predicate of a column, an operator, a value and its place. The value, or each value of a list, may be a Column.
OPERATORS: dict[str, Callable[[Column, Any, Any, str], Predicate]] = {
    **dict.fromkeys(("eq", "ne", "gt", "gte", "lt", "lte"), compare),
    **dict.fromkeys(("in", "not_in"), _in),
    "between": _between,
    **dict.fromkeys(("like", "ilike"), _like),
    "regex": _regex,
    **dict.fromkeys(("starts_with", "ends_with", "contains"), _part),
    **dict.fromkeys(("is_null", "is_not_null"), _null),
    "array_contains": _array_contains,
}
