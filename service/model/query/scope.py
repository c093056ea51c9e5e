"""The names in a query: columns of its tables, after the table's alias, or alone if only one table has the column."""

from collections.abc import Sequence
from typing import Any

from service.errors import InvalidFilter, InvalidQuery, UnknownField, did_you_mean
from service.model.filters.conditions import FLIPPED, check_join
from service.model.filters.predicates import Order
from service.model.query.model import Join, JoinCondition, JoinKind, TableSource
from service.model.schema.columns import Column, find_column, known_names

_CONDITION = ("left", "right", "operator")


class Scope:
    """The tables read so far."""

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
            raise InvalidQuery(
                f"{path}: {name!r} could mean {' or '.join(choices)}; say which", field=path, suggestion=choices[0]
            )
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
            raise InvalidQuery(
                f"{path}: two tables of this query are called {source.alias!r}; give one an alias", field=path
            )
        return Scope((*self.sources, source))


def read_join(before: Scope, source: TableSource, kind: JoinKind, on: Any, path: str) -> Join:
    """Read the join of a table to those before it."""
    where = f"{path}.on"
    conditions = _Conditions(before, source).all(on, where)
    if not conditions:
        raise InvalidQuery(f"{where} has no condition; name a column that both tables have", field=where)
    return Join(source, kind, tuple(conditions))


class _Conditions:
    def __init__(self, before: Scope, source: TableSource) -> None:
        self.before = before
        self.joined = Scope([source])

    def all(self, on: Any, path: str) -> list[JoinCondition]:
        if isinstance(on, list):
            return [c for i, item in enumerate(on) for c in self.all(item, f"{path}[{i}]")]
        if isinstance(on, str):
            return [self.condition(on, "eq", on, path)]
        if not isinstance(on, dict):
            raise InvalidQuery(
                f'{path} must be a column\'s name, {{"left": …, "right": …}}, a list of such, or a map of left to '
                "right columns",
                field=path,
            )
        if isinstance(on.get("left"), str) and isinstance(on.get("right"), str):
            return [self.listed(on, path)]
        if not all(isinstance(right, str) for right in on.values()):
            raise InvalidQuery(f"{path} must map each left column to the name of a right column", field=path)
        return [self.condition(left, "eq", right, f"{path}.{left}") for left, right in on.items()]

    def listed(self, on: dict[str, Any], path: str) -> JoinCondition:
        for key in on:
            if key not in _CONDITION:
                near, words = did_you_mean(key, _CONDITION)
                where = f"{path}.{key}"
                raise UnknownField(f"{where} is not a field of a join condition; {words}", field=where, suggestion=near)
        operator = on.get("operator", "eq")
        if operator not in FLIPPED:
            near, words = did_you_mean(str(operator), FLIPPED)
            where = f"{path}.operator"
            raise InvalidQuery(f"{where}: {operator!r} is not an operator of a join; {words}", field=where)
        return self.condition(on["left"], operator, on["right"], path)

    def condition(self, left: str, operator: Order, right: str, path: str) -> JoinCondition:
        try:
            found = JoinCondition(self.before.resolve(left, path), operator, self.joined.resolve(right, path))
        except UnknownField:
            # The sides may be the other way round.
            swapped = self.swapped(left, operator, right, path)
            if swapped is None:
                raise
            found = swapped
        try:
            check_join(found.left, operator, found.right, path)
        except InvalidFilter as e:
            raise InvalidQuery(e.message, field=path) from e
        return found

    def swapped(self, left: str, operator: Order, right: str, path: str) -> JoinCondition | None:
        try:
            return JoinCondition(self.before.resolve(right, path), FLIPPED[operator], self.joined.resolve(left, path))
        except UnknownField:
            return None
