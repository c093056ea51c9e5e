"""Limits: rows are read only if they have certain keys.

A limit is a LEFT SEMI JOIN with a view of keys. It is pushed below the operators as far as it goes, because Spark by
itself pushes it neither below windows and outer joins nor from one input of a join to the others.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from service.dynamic.query.dialect import quoted, sql_of
from service.dynamic.query.operators import substitute, used


@dataclass(frozen=True)
class Pair:
    """What has to equal a column of a view of keys."""

    value: exp.Expr
    key: str
    null_safe: bool = True

    @property
    def condition(self) -> str:
        value = substitute(self.value, {name: exp.column(name, table="a") for name in used([self.value])})
        return f"({sql_of(value)}) {'<=>' if self.null_safe else '='} k.{quoted(self.key)}"


@dataclass(frozen=True)
class Limit:
    view: str
    pairs: tuple[Pair, ...]


Limits = tuple[Limit, ...]


def limited(sql: str, columns: str, limits: Limits) -> str:
    """The rows of a query with the keys; `columns` is its select list."""
    for limit in limits:
        on = " AND ".join(pair.condition for pair in limit.pairs)
        sql = f"SELECT {columns} FROM ({sql}) AS a LEFT SEMI JOIN {limit.view} AS k ON {on}"
    return sql


def renamed(limits: Limits, by: dict[str, exp.Expr]) -> Limits:
    """The limits in terms of an operator's input."""
    return tuple(
        Limit(one.view, tuple(Pair(substitute(p.value, by), p.key, p.null_safe) for p in one.pairs)) for one in limits
    )


def split(limits: Limits, columns: Container[str]) -> tuple[Limits, Limits]:
    """What of the limits concerns only these columns, and the limits that are not covered by that."""
    inside: list[Limit] = []
    left: list[Limit] = []
    for one in limits:
        pairs = tuple(p for p in one.pairs if (names := used([p.value])) and all(n in columns for n in names))
        if pairs:
            inside.append(Limit(one.view, pairs))
        if len(pairs) < len(one.pairs):
            left.append(one)
    return tuple(inside), tuple(left)


def spread(limits: Limits, conditions: Sequence[exp.Expr]) -> Limits:
    """The limits, with all pairs that follow from equal values."""
    return tuple(Limit(one.view, _spread(one.pairs, conditions)) for one in limits)


def _spread(pairs: tuple[Pair, ...], conditions: Sequence[exp.Expr]) -> tuple[Pair, ...]:
    known = {(sql_of(pair.value), pair.key): pair for pair in pairs}
    waiting = list(pairs)
    while waiting:
        pair = waiting.pop()
        for one, other in equalities(conditions):
            for near, far in ((one, other), (other, one)):
                if near == pair.value and (sql_of(far), pair.key) not in known:
                    new = Pair(far, pair.key, null_safe=False)
                    known[sql_of(far), pair.key] = new
                    waiting.append(new)
    return tuple(known.values())


def equalities(conditions: Iterable[exp.Expr]) -> Iterable[tuple[exp.Expr, exp.Expr]]:
    """Both sides of each condition of the form a = b."""
    return [(one.this, one.expression) for one in conditions if isinstance(one, exp.EQ)]


def null_aware_pair(
    conditions: Iterable[exp.Expr], here: Container[str], there: Container[str]
) -> tuple[exp.Expr, exp.Expr] | None:
    """The values of two inputs that NOT IN compares: equal, or one of them null."""
    for one in conditions:
        if isinstance(one, exp.Or) and isinstance(one.expression, exp.Is):
            found = equal_pairs([one.this], here, there)
            if found and one.expression.this == exp.Paren(this=one.this):
                return found[0][:2]
    return None


def equal_pairs(
    conditions: Iterable[exp.Expr], here: Container[str], there: Container[str]
) -> list[tuple[exp.Expr, exp.Expr, bool]]:
    """The values of two inputs that conditions compare by = or <=>, and whether null equals null."""
    found = []
    for one in conditions:
        if not isinstance(one, exp.EQ | exp.NullSafeEQ):
            continue
        for near, far in ((one.this, one.expression), (one.expression, one.this)):
            near_names, far_names = used([near]), used([far])
            if near_names and far_names and all(n in here for n in near_names) and all(n in there for n in far_names):
                found.append((near, far, isinstance(one, exp.NullSafeEQ)))
    return found
