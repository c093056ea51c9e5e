"""A filter as an Iceberg expression in JSON, which PyIceberg and Iceberg's Java library both read.

For Iceberg's own predicates null differs from every value; in Firn no comparison is true for null. So negations are
moved down to the leaves, and leaves that would match nulls exclude them.
"""

import json
from collections.abc import Callable, Set
from datetime import date, datetime
from decimal import Decimal
from math import isinf, isnan
from typing import Any

from service.errors import InvalidFilter, nearest
from service.model.filters.filters import parse_filter
from service.model.filters.predicates import (
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
    Value,
)
from service.model.schema.columns import Column, MapKey, columns_of
from service.model.schema.partition import PartitionField
from service.model.schema.types import Primitive, TableSchema, resolve_field

SUPPORTED = "eq, ne, gt, gte, lt, lte, in, not_in, between, starts_with, is_null and is_not_null"
_OPERATOR = {"eq": "eq", "ne": "not-eq", "gt": "gt", "gte": "gt-eq", "lt": "lt", "lte": "lt-eq"}
_OPPOSITE = {"eq": "ne", "ne": "eq", "gt": "lte", "gte": "lt", "lt": "gte", "lte": "gt"}

Expression = dict[str, Any] | bool


def partition_expression(
    partition_filter: Any, schema: TableSchema, partition: tuple[PartitionField, ...], path: str = "partition_filter"
) -> str | None:
    """The expression of a request's partition filter; None without a filter."""
    if partition_filter is None:
        return None
    predicate = partition_predicate(partition_filter, schema, partition, path)
    return iceberg_json(predicate, _sources(partition), path)


def partition_predicate(
    partition_filter: Any, schema: TableSchema, partition: tuple[PartitionField, ...], path: str = "partition_filter"
) -> Predicate:
    """The predicate of a request's partition filter, which may only use partition columns."""
    sources = _sources(partition)
    if not sources:
        raise InvalidFilter(f"{path} cannot be used: the table is not partitioned; leave it out", field=path)
    predicate = parse_filter(partition_filter, columns_of(schema), path)
    _render(predicate, False, _Place(sources, path, lambda value: None))  # only to refuse what it cannot render
    return predicate


def uuid_expression(partition_filter: Any, schema: TableSchema, partition: tuple[PartitionField, ...]) -> str | None:
    """The expression of a partition filter on a uuid, by which Spark cannot skip files; None for any other filter."""
    if partition_filter is None:
        return None
    sources = _sources(partition)
    uuids = {name for name in sources if resolve_field(schema, name).type == Primitive("uuid")}
    place = _Place(sources, "partition_filter", lambda value: _json(value, "partition_filter"))
    expression = json.dumps(_render(parse_filter(partition_filter, columns_of(schema), place.path), False, place))
    return expression if place.named & uuids else None


def iceberg_json(predicate: Predicate, columns: Set[str], path: str = "partition_filter") -> str:
    """The expression's JSON. The predicate may only use `columns`, the partition columns."""
    return json.dumps(_render(predicate, False, _Place(columns, path, lambda value: _json(value, path))))


def _sources(partition: tuple[PartitionField, ...]) -> frozenset[str]:
    return frozenset(field.field for field in partition)


class _Place:
    def __init__(self, columns: Set[str], path: str, value: Callable[[Value], Any]) -> None:
        self.columns = columns
        self.path = path
        self.value = value
        self.named: set[str] = set()

    def term(self, column: Column) -> str:
        name = ".".join(step.text if isinstance(step, MapKey) else step for step in column.steps)
        if name not in self.columns:
            known = ", ".join(sorted(self.columns)) or "none: the table is not partitioned"
            raise InvalidFilter(
                f"{self.path} takes only columns that the table is partitioned by, not {name!r}; they are {known}",
                field=self.path,
                suggestion=nearest(name, self.columns),
            )
        self.named.add(name)
        return name

    def refuse(self, what: str) -> InvalidFilter:
        return _refusal(what, self.path)


def _refusal(what: str, path: str) -> InvalidFilter:
    return InvalidFilter(f"{path} cannot use {what}; it takes {SUPPORTED}", field=path)


def _render(predicate: Predicate, negated: bool, place: _Place) -> Expression:
    match predicate:
        case Not(child):
            return _render(child, not negated, place)
        case And(children) | Or(children):
            parts = [_render(child, negated, place) for child in children]
            return _joined("and" if isinstance(predicate, And) != negated else "or", parts)
        case IsNull(column):
            return _unary("not-null" if negated else "is-null", column, place)
        case Always(column, answer):
            term = _unary("not-null", column, place)
            return term if answer != negated else False
        case Compare(column, operator, operand):
            if isinstance(operand, Column):
                raise place.refuse("another column")
            return _compare(column, _OPPOSITE[operator] if negated else operator, operand, place)
        case In(column, values, or_null):
            return _in(column, values, or_null, negated, place)
        case Matches(column, "starts_with", str(text)):
            if negated:
                return _non_null(_literal("not-starts-with", column, text, place), column, place)
            return _literal("starts-with", column, text, place)
        case Matches(_, operator, _):
            raise place.refuse(operator)
        case ExpressionHolds():
            raise place.refuse("an expression")
    raise place.refuse("array_contains")


def _joined(operator: str, parts: list[Expression]) -> Expression:
    absorbing = operator == "or"
    if absorbing in [part for part in parts if isinstance(part, bool)]:
        return absorbing
    kept = [part for part in parts if not isinstance(part, bool)]
    return _balanced(operator, kept) if kept else not absorbing


def _balanced(operator: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    # Both readers are recursive, so a long chain must not become deeply nested.
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return {"type": operator, "left": _balanced(operator, parts[:half]), "right": _balanced(operator, parts[half:])}


def _compare(column: Column, operator: str, value: Value, place: _Place) -> Expression:
    if isinstance(value, float) and isnan(value):
        if operator == "eq":
            return _unary("is-nan", column, place)
        return _non_null(_unary("not-nan", column, place), column, place)
    compared = _literal(_OPERATOR[operator], column, value, place)
    if operator in ("ne", "lt", "lte"):  # Iceberg's Java library sorts null below every value
        return _non_null(compared, column, place)
    if isinstance(value, float) and operator in ("gt", "gte"):
        # Iceberg leaves NaN out of a file's bounds; in Firn it is greater than every number.
        return {"type": "or", "left": compared, "right": _unary("is-nan", column, place)}
    return compared


def _in(column: Column, values: tuple[Value, ...], or_null: bool, negated: bool, place: _Place) -> Expression:
    term = place.term(column)
    if negated and or_null:
        return False
    if not values:
        return _unary("not-null", column, place) if negated else False
    listed = {"type": "not-in" if negated else "in", "term": term, "values": [place.value(v) for v in values]}
    return _non_null(listed, column, place) if negated else listed


def _non_null(expression: dict[str, Any], column: Column, place: _Place) -> dict[str, Any]:
    return {"type": "and", "left": _unary("not-null", column, place), "right": expression}


def _unary(operator: str, column: Column, place: _Place) -> dict[str, Any]:
    return {"type": operator, "term": place.term(column)}


def _literal(operator: str, column: Column, value: Value, place: _Place) -> dict[str, Any]:
    return {"type": operator, "term": place.term(column), "value": place.value(value)}


def _json(value: Value, path: str) -> Any:
    """The single-value JSON form of the Iceberg specification."""
    match value:
        case datetime():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            # PyIceberg's reader does not support binary values.
            raise _refusal("binary values", path)
        case float() if isinf(value):
            raise _refusal("infinity", path)
    return value
