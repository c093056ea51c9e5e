"""Filters that Python computes exactly as Spark does, and the keys that a filter names."""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from service.model.filters.predicates import Always, And, Compare, In, IsNull, Not, Or, Predicate
from service.model.keyed.pool import plain_value
from service.model.schema.columns import Column
from service.model.schema.types import ColumnType, DecimalType, TableSchema

# Types whose values Python orders as Spark does, and those that it only finds equal.
_ORDERED = frozenset({"string", "integer", "long", "boolean", "date", "timestamp", "timestamptz"})
_EQUAL = _ORDERED | {"uuid", "binary"}
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def is_exact_key(kind: ColumnType) -> bool:
    """Whether Python finds keys of a type equal exactly if Spark does. It does not for floating-point numbers."""
    return isinstance(kind, DecimalType) or str(kind) in _EQUAL


def computable(predicate: Predicate) -> bool:
    """Whether `holds` computes a predicate as Spark does."""
    match predicate:
        case And(children) | Or(children):
            return all(map(computable, children))
        case Not(child):
            return computable(child)
        case Always(column, _) | IsNull(column):
            return _is_whole(column)
        case In(column, _, _):
            return _is_whole(column) and is_exact_key(column.type)
        case Compare(column, how, operand):
            typed = isinstance(column.type, DecimalType) or str(column.type) in _ORDERED
            same_type = not isinstance(operand, Column) or (_is_whole(operand) and operand.type == column.type)
            return _is_whole(column) and same_type and (typed or (how in ("eq", "ne") and is_exact_key(column.type)))
    return False


def holds(predicate: Predicate, value: Callable[[str], Any]) -> bool | None:
    """Whether a predicate is true for a row, whose plain values `value` returns by column; None if a null leaves that
    open."""
    match predicate:
        case And(children):
            found = [holds(child, value) for child in children]
            return False if False in found else None if None in found else True
        case Or(children):
            found = [holds(child, value) for child in children]
            return True if True in found else None if None in found else False
        case Not(child):
            answer = holds(child, value)
            return None if answer is None else not answer
        case IsNull(column):
            return value(column.name) is None
        case Always(column, answer):
            return None if value(column.name) is None else answer
        case In(column, values, or_null):
            mine = value(column.name)
            if mine is None:
                return None
            return True if mine in [plain_value(v) for v in values] else None if or_null else False
        case Compare(column, how, operand):
            mine = value(column.name)
            other = value(operand.name) if isinstance(operand, Column) else plain_value(operand)
            return None if mine is None or other is None else bool(_ORDERS[how](mine, other))
    raise TypeError(f"{predicate} cannot be computed here")


def keys_in(predicate: Predicate, schema: TableSchema, most: int) -> dict[str, list[Any]] | None:
    """The keys that rows must have to match a filter: the values of each key column, as columns of a table.

    The key columns are the primary key, or, without one, all columns that the filter compares by equality. None if the
    filter does not name the keys, or more than `most` of them.
    """
    named: dict[str, tuple[Any, ...]] = {}
    for one in _conjuncts(predicate):
        match one:
            case Compare(column, "eq", operand) if not isinstance(operand, Column):
                values: tuple[Any, ...] = (operand,)
            case In(column, values, _):
                pass
            case _:
                continue
        if _is_whole(column) and is_exact_key(column.type) and column.name not in named:
            named[column.name] = values
    columns = schema.primary_key or tuple(sorted(named))
    if not columns or not named.keys() >= set(columns):
        return None
    count = 1
    for column_name in columns:
        count *= len(named[column_name])
    if not 0 < count <= most:
        return None
    rows = list(itertools.product(*(named[column_name] for column_name in columns)))
    return {column_name: [row[i] for row in rows] for i, column_name in enumerate(columns)}


def _conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions that all must be true."""
    waiting: Sequence[Predicate] = [predicate]
    while waiting:
        first, *waiting = waiting
        if isinstance(first, And):
            waiting = [*first.children, *waiting]
        else:
            yield first


def _is_whole(column: Column) -> bool:
    return column.steps == (column.name,)
