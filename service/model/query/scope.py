"""The names in a query: columns of its tables, qualified by the table's alias if several tables have such a column."""

from collections.abc import Sequence
from typing import Any

from service.errors import InvalidFilter, InvalidQuery, UnknownField
from service.model.filters.conditions import FLIPPED, check_join
from service.model.filters.predicates import Order
from service.model.query.model import Join, JoinCondition, JoinKind, TableSource
from service.model.schema.columns import Column, find_column, known_names

_CONDITION_FIELDS = ("left", "right", "operator")


class Scope:
    """The tables that a query has read so far."""

    def __init__(self, sources: Sequence[TableSource]) -> None:
        self.sources = tuple(sources)

    def resolve(self, name: str, path: str) -> Column:
        """The column of a name; UnknownField if there is none, InvalidQuery if there are several."""
        found: dict[tuple[Any, ...], Column] = {}
        alias, _, rest = name.partition(".")
        for source in self.sources:
            bare = find_column(source.schema, name, source.alias)
            qualified = find_column(source.schema, rest, source.alias) if rest and alias == source.alias else None
            for column in (bare, qualified):
                if column is not None:
                    found[source.alias, column.steps] = Column(name, column.steps, column.type, source.alias)
        if len(found) > 1:
            choices = [f"{alias}.{'.'.join(str(s) for s in steps)}" for alias, steps in found]
            raise InvalidQuery.at(path, f"{name!r} is ambiguous; write {' or '.join(choices)}", choices[0])
        if not found:
            raise UnknownField.unknown(path, name, "a column here", self.names())
        return next(iter(found.values()))

    def names(self) -> list[str]:
        """Every name, for suggestions; with several tables, also the qualified names."""
        names = [name for source in self.sources for name in known_names(source.schema)]
        if len(self.sources) > 1:
            names += [f"{s.alias}.{name}" for s in self.sources for name in known_names(s.schema)]
        return list(dict.fromkeys(names))

    def add(self, source: TableSource, path: str) -> "Scope":
        if source.alias.casefold() in (s.alias.casefold() for s in self.sources):
            raise InvalidQuery.at(path, f"two tables of this query are called {source.alias!r}; give one an alias")
        return Scope((*self.sources, source))


def read_join(before: Scope, source: TableSource, kind: JoinKind, on: Any, path: str) -> Join:
    """Read the join of a table to those before it."""
    where = f"{path}.on"
    conditions = _Conditions(before, source).parse(on, where)
    if not conditions:
        raise InvalidQuery.at(where, "there is no condition; name a column that both tables have")
    return Join(source, kind, tuple(conditions))


class _Conditions:
    def __init__(self, before: Scope, source: TableSource) -> None:
        self.before = before
        self.joined = Scope([source])

    def parse(self, on: Any, path: str) -> list[JoinCondition]:
        if isinstance(on, list):
            return [c for i, item in enumerate(on) for c in self.parse(item, f"{path}[{i}]")]
        if isinstance(on, str):
            return [self.condition(on, "eq", on, path)]
        if not isinstance(on, dict):
            problem = 'expected the name of a column, {"left": …, "right": …}, a list of these, or {left: right}'
            raise InvalidQuery.at(path, problem)
        if isinstance(on.get("left"), str) and isinstance(on.get("right"), str):
            return [self.from_object(on, path)]
        if not all(isinstance(right, str) for right in on.values()):
            raise InvalidQuery.at(path, "expected the name of a right column for each left column")
        return [self.condition(left, "eq", right, f"{path}.{left}") for left, right in on.items()]

    def from_object(self, on: dict[str, Any], path: str) -> JoinCondition:
        for key in on:
            if key not in _CONDITION_FIELDS:
                raise UnknownField.unknown(f"{path}.{key}", key, "a field of a join condition", _CONDITION_FIELDS)
        operator = on.get("operator", "eq")
        if operator not in FLIPPED:
            raise InvalidQuery.unknown(f"{path}.operator", operator, "an operator of a join", FLIPPED)
        return self.condition(on["left"], operator, on["right"], path)

    def condition(self, left: str, operator: Order, right: str, path: str) -> JoinCondition:
        try:
            found = JoinCondition(self.before.resolve(left, path), operator, self.joined.resolve(right, path))
        except UnknownField as unknown:
            try:  # the sides may be swapped
                sides = self.before.resolve(right, path), self.joined.resolve(left, path)
            except UnknownField:
                raise unknown from None
            found = JoinCondition(sides[0], FLIPPED[operator], sides[1])
        try:
            check_join(found.left, operator, found.right, path)
        except InvalidFilter as e:
            raise InvalidQuery(e.message, field=path) from e
        return found
