"""Filters as a reader of SQL would understand them, over plain dicts: true, false, or None for unknown.

Written from the contract alone, and not from the service's own reading of it.
"""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

from tests.model.computed import CONDITIONS, VALUES, Row

Truth = bool | None


def keeps(where: Any, row: Row) -> bool:
    """Whether a filter of either dialect keeps the row: only where it is true of it."""
    return truth(where, row) is True


def truth(where: Any, row: Row) -> Truth:
    if isinstance(where, list):
        return conjunction([truth(item, row) for item in where])
    if isinstance(where.get("field"), str) and "operator" in where:
        return condition(row, where["field"], where["operator"], where.get("value", True))
    return conjunction([_entry(key, value, row) for key, value in where.items()])


def conjunction(parts: list[Truth]) -> Truth:
    if False in parts:
        return False
    return None if None in parts else True


def negation(part: Truth) -> Truth:
    return None if part is None else not part


def disjunction(parts: list[Truth]) -> Truth:
    return negation(conjunction([negation(part) for part in parts]))


def condition(row: Row, column: str, operator: str, value: Any) -> Truth:
    own = row[column]
    if operator in ("is_null", "is_not_null"):
        return (own is None) is ((operator == "is_null") == value)
    if operator in ("in", "not_in") and not value:
        # Nothing is among no values, not even a null.
        return operator == "not_in"
    if own is None:
        return None
    if operator in ("in", "not_in"):
        found = disjunction([_compare("eq", own, _operand(item, row, own)) for item in value])
        return found if operator == "in" else negation(found)
    if operator == "between":
        low, high = (_operand(item, row, own) for item in value)
        return conjunction([_compare("gte", own, low), _compare("lte", own, high)])
    return _compare(operator, own, _operand(value, row, own))


def new_value(column: str, value: Any, row: Row, typed: Callable[[str, Any], Any]) -> Any:
    """What an UPDATE sets a row's column to."""
    if isinstance(value, dict):
        return VALUES[column][value["expression"]](row)
    return typed(column, value)


def _entry(key: str, value: Any, row: Row) -> Truth:
    if key == "expression":
        return CONDITIONS[value](row)
    if key == "not":
        return negation(truth(value, row))
    if key in ("and", "or"):
        parts = [truth(item, row) for item in value]
        return conjunction(parts) if key == "and" else disjunction(parts)
    if value is None:
        return row[key] is None
    if not isinstance(value, dict) or set(value) == {"field"}:
        return condition(row, key, "eq", value)
    return conjunction([condition(row, key, operator, item) for operator, item in value.items()])


def _operand(value: Any, row: Row, own: Any) -> Any:
    """Another column's value, or the JSON value as the column's own type has it."""
    if isinstance(value, dict):
        return row[value["field"]]
    if isinstance(own, date) and isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(own, int | Decimal) and isinstance(value, str):
        return Decimal(value)
    return value


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
    "like": lambda a, b: _like(a, b, re.DOTALL),
    "ilike": lambda a, b: _like(a.lower(), b.lower(), re.DOTALL),
    "starts_with": lambda a, b: a.startswith(b),
    "ends_with": lambda a, b: a.endswith(b),
    "contains": lambda a, b: b in a,
}


def _compare(operator: str, own: Any, other: Any) -> Truth:
    return None if own is None or other is None else _TESTS[operator](own, other)


def _like(text: str, pattern: str, flags: int) -> bool:
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text, flags) is not None
