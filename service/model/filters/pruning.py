"""A filter as an Iceberg expression in JSON, which PyIceberg and Iceberg's Java library both read.

For Iceberg's predicates null differs from every value; in Firn no comparison with null is true. So negations are moved
down to the leaves, and leaves that would match nulls exclude them.
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

_PATH = "partition_filter"
_OPERATOR = {"eq": "eq", "ne": "not-eq", "gt": "gt", "gte": "gt-eq", "lt": "lt", "lte": "lt-eq"}
_OPPOSITE = {"eq": "ne", "ne": "eq", "gt": "lte", "gte": "lt", "lt": "gte", "lte": "gt"}

Expression = dict[str, Any] | bool


def partition_expression(
    partition_filter: Any, schema: TableSchema, partition: tuple[PartitionField, ...]
) -> str | None:
    """The expression of a request's partition filter; None without a filter."""
    if partition_filter is None:
        return None
    return iceberg_json(partition_predicate(partition_filter, schema, partition), _sources(partition))


def partition_predicate(partition_filter: Any, schema: TableSchema, partition: tuple[PartitionField, ...]) -> Predicate:
    """The predicate of a request's partition filter, which may only use partition columns."""
    sources = _sources(partition)
    if not sources:
        raise InvalidFilter.at(_PATH, "the table is not partitioned; omit the filter")
    predicate = parse_filter(partition_filter, columns_of(schema), _PATH)
    _Renderer(sources, lambda value: None).render(predicate)  # only to refuse what it cannot render
    return predicate


def uuid_expression(partition_filter: Any, schema: TableSchema, partition: tuple[PartitionField, ...]) -> str | None:
    """The expression of a partition filter on a uuid, for which Spark cannot skip files; None for any other filter."""
    if partition_filter is None:
        return None
    renderer = _Renderer(_sources(partition))
    expression = json.dumps(renderer.render(parse_filter(partition_filter, columns_of(schema), _PATH)))
    uses_uuid = any(resolve_field(schema, name).type == Primitive("uuid") for name in renderer.used)
    return expression if uses_uuid else None


def iceberg_json(predicate: Predicate, columns: Set[str]) -> str:
    """The expression's JSON. The predicate may only use `columns`, the partition columns."""
    return json.dumps(_Renderer(columns).render(predicate))


def _sources(partition: tuple[PartitionField, ...]) -> frozenset[str]:
    return frozenset(field.field for field in partition)


def _literal(value: Value) -> Any:
    """The single-value JSON form of the Iceberg specification."""
    match value:
        case datetime():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            raise _refusal("binary values")  # PyIceberg cannot read them
        case float() if isinf(value):
            raise _refusal("infinity")
    return value


def _refusal(what: str) -> InvalidFilter:
    supported = "eq, ne, gt, gte, lt, lte, in, not_in, between, starts_with, is_null and is_not_null"
    return InvalidFilter.at(_PATH, f"{what} cannot be used here; use {supported}")


def _joined(operator: str, parts: list[Expression]) -> Expression:
    absorbing = operator == "or"
    kept = [part for part in parts if not isinstance(part, bool)]
    if any(part is absorbing for part in parts):
        return absorbing
    return _balanced(operator, kept) if kept else not absorbing


def _balanced(operator: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    # Both readers are recursive, so a long chain must not become deeply nested.
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return {"type": operator, "left": _balanced(operator, parts[:half]), "right": _balanced(operator, parts[half:])}


class _Renderer:
    """Renders predicates over these columns, and notes which ones they use."""

    def __init__(self, columns: Set[str], literal: Callable[[Value], Any] = _literal) -> None:
        self.columns = columns
        self.literal = literal
        self.used: set[str] = set()

    def render(self, predicate: Predicate, negated: bool = False) -> Expression:
        match predicate:
            case Not(child):
                return self.render(child, not negated)
            case And(children) | Or(children):
                parts = [self.render(child, negated) for child in children]
                return _joined("and" if isinstance(predicate, And) != negated else "or", parts)
            case IsNull(column):
                return self.unary("not-null" if negated else "is-null", column)
            case Always(column, answer):
                not_null = self.unary("not-null", column)
                return not_null if answer != negated else False
            case Compare(column, operator, operand):
                if isinstance(operand, Column):
                    raise _refusal("another column")
                return self.compare(column, _OPPOSITE[operator] if negated else operator, operand)
            case In():
                return self.among(predicate, negated)
            case Matches(column, "starts_with", str(text)):
                if negated:
                    return self.non_null(self.binary("not-starts-with", column, text), column)
                return self.binary("starts-with", column, text)
            case Matches(_, operator, _):
                raise _refusal(operator)
            case ExpressionHolds():
                raise _refusal("an expression")
        raise _refusal("array_contains")

    def compare(self, column: Column, operator: str, value: Value) -> Expression:
        if isinstance(value, float) and isnan(value):
            if operator == "eq":
                return self.unary("is-nan", column)
            return self.non_null(self.unary("not-nan", column), column)
        compared = self.binary(_OPERATOR[operator], column, value)
        if operator in ("ne", "lt", "lte"):  # Iceberg's Java library sorts null below every value
            return self.non_null(compared, column)
        if isinstance(value, float) and operator in ("gt", "gte"):
            # Iceberg leaves NaN out of a file's bounds; in Firn it is greater than every number.
            return {"type": "or", "left": compared, "right": self.unary("is-nan", column)}
        return compared

    def among(self, predicate: In, negated: bool) -> Expression:
        column, values = predicate.column, predicate.values
        term = self.term(column)
        if negated and predicate.or_null:
            return False
        if not values:
            return self.unary("not-null", column) if negated else False
        listed = {"type": "not-in" if negated else "in", "term": term, "values": [self.literal(v) for v in values]}
        return self.non_null(listed, column) if negated else listed

    def non_null(self, expression: dict[str, Any], column: Column) -> dict[str, Any]:
        return {"type": "and", "left": self.unary("not-null", column), "right": expression}

    def unary(self, operator: str, column: Column) -> dict[str, Any]:
        return {"type": operator, "term": self.term(column)}

    def binary(self, operator: str, column: Column, value: Value) -> dict[str, Any]:
        return {"type": operator, "term": self.term(column), "value": self.literal(value)}

    def term(self, column: Column) -> str:
        name = ".".join(step.text if isinstance(step, MapKey) else step for step in column.steps)
        if name not in self.columns:
            known = ", ".join(sorted(self.columns)) or "none: the table is not partitioned"
            problem = f"{name!r} is not a column that the table is partitioned by; those are {known}"
            raise InvalidFilter.at(_PATH, problem, nearest(name, self.columns))
        self.used.add(name)
        return name
