"""Which columns are not exact: sums of floating-point numbers come out different with the order of the rows."""

from collections.abc import Callable, Sequence

from sqlglot import exp

from service.dynamic.query.lower.functions import EXACT_SUMS, SUMS
from service.dynamic.query.operators import (
    Expressions,
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
from service.model.schema.types import ColumnType, is_floating

Types = Callable[[Operator, Sequence[exp.Expr]], list[ColumnType]]
"""The types of values over an operator's columns."""


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
                found |= _inexact(one.aggregates, one.input, found, types)
            case Windows():
                if found & set(one.keys):
                    raise InexactComparison
                found |= _inexact(one.functions, one.input, found, types)
            case SourceRows():
                pass
        if used(compared) & found and id(one) not in kept_by_key:
            raise InexactComparison
    return found


def _inexact(values: Expressions, below: Operator, found: set[str], types: Types) -> set[str]:
    """Which aggregates or window functions are not exact."""
    inexact = {name for name, value in values.items() if used([value]) & found}
    sums: list[tuple[str, exp.Expr]] = []
    for name, value in values.items():
        for call in value.find_all(exp.Anonymous):
            function = str(call.this).lower()
            if function in EXACT_SUMS:
                argument = call.expressions[0]
                sums.append((name, argument.expressions[0] if isinstance(argument, exp.Distinct) else argument))
            elif function in SUMS:
                inexact.add(name)
    kinds = types(below, [argument for _, argument in sums])
    return inexact | {name for (name, _), kind in zip(sums, kinds, strict=True) if is_floating(kind)}
