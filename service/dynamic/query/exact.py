"""Which columns are not exact: sums of floating-point numbers come out different with the order of the rows."""

from collections.abc import Callable

from sqlglot import exp

from service.dynamic.query.lower.functions import EXACT_SUMS, SUMS
from service.dynamic.query.operators import (
    Filter,
    Group,
    InnerJoin,
    Matched,
    Operator,
    Select,
    SetOperation,
    SourceRows,
    Union,
    Windows,
    used,
    walk,
)
from service.dynamic.query.sql_types import is_floating
from service.model.schema.types import ColumnType

Types = Callable[[Operator, exp.Expr], ColumnType]
"""The type of an expression over an operator's columns."""


class InexactComparison(Exception):
    """A value that is not exact decides which rows there are."""


def inexact_columns(root: Operator, types: Types, kept_by_key: frozenset[int]) -> set[str]:
    """The inexact columns of the tree.

    Raises InexactComparison if one of them is compared below the root, except in the operators `kept_by_key`.
    """
    found: set[str] = set()
    for one in walk(root):
        compared: list[exp.Expr] = []
        match one:
            case Select():
                found |= {name for name, value in one.expressions.items() if used([value]) & found}
            case Union():
                found |= {name for name, parts in one.names.items() if found & set(parts)}
            case SetOperation():
                compared_names = {name for pair in one.names.values() for name in pair}
                if compared_names & found:
                    raise InexactComparison
            case Filter() | InnerJoin() | Matched():
                compared = one.conditions
            case Group():
                if found & set(one.keys) and id(one) not in kept_by_key:
                    raise InexactComparison
                found |= {n for n, value in one.aggregates.items() if _inexact(value, one.input, found, types)}
            case Windows():
                if found & set(one.keys):
                    raise InexactComparison
                found |= {n for n, value in one.functions.items() if _inexact(value, one.input, found, types)}
            case SourceRows():
                pass
        if used(compared) & found and id(one) not in kept_by_key:
            raise InexactComparison
    return found


def _inexact(value: exp.Expr, below: Operator, found: set[str], types: Types) -> bool:
    if used([value]) & found:
        return True
    for call in value.find_all(exp.Anonymous):
        name = str(call.this).lower()
        if name not in SUMS:
            continue
        if name not in EXACT_SUMS or is_floating(types(below, call.expressions[0])):
            return True
    return False
