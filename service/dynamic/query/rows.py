"""Operators as SQL: the rows of each at the snapshot of this refresh (NEW) or of the last one (OLD)."""

from collections.abc import Iterable, Mapping, Set
from typing import Literal

from sqlglot import exp

from service.dynamic.query.dialect import quoted, sql_of
from service.dynamic.query.limits import Limit, Limits, Pair, equal_pairs, limited, renamed, split, spread
from service.dynamic.query.operators import (
    Constants,
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
    column,
    used,
    walk,
)
from service.model.dynamic.plan import WEIGHT, Step, new, old

Version = Literal["new", "old"]
NO_COLUMN = "present"
"""The column of rows of which no column is needed."""


def names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns)) or f"1 AS {NO_COLUMN}"


def select_list(expressions: dict[str, exp.Expr], columns: Iterable[str]) -> str:
    return ", ".join(f"{sql_of(expressions[c])} AS {quoted(c)}" for c in columns) or f"1 AS {NO_COLUMN}"


def all_true(conditions: Iterable[exp.Expr]) -> str:
    return " AND ".join(f"({sql_of(one)})" for one in conditions)


class Rows:
    """Writes operators as SQL, and the views that this needs as steps."""

    def __init__(self, root: Operator, changed: Set[int]) -> None:
        self.steps: list[Step] = []
        self._given: dict[int, str] = {}
        self._changed = {
            id(one): any(isinstance(each, SourceRows) and each.number in changed for each in walk(one))
            for one in walk(root)
        }

    def changes(self, one: Operator) -> bool:
        """Whether a source below the operator has changed."""
        return self._changed[id(one)]

    def view(self, prefix: str, sql: str) -> str:
        """A new view of a query."""
        name = f"{prefix}{len(self.steps)}"
        self.steps.append(Step(name, sql))
        return name

    def rows(self, one: Operator, version: Version, limits: Limits = ()) -> str:
        """The operator's rows, with the keys that the limits name."""
        if id(one) in self._given:
            return self._given[id(one)]
        if not self.changes(one):
            version = "new"
        match one:
            case SourceRows():
                view = new(one.number) if version == "new" else old(one.number)
                fields = ", ".join(f"{quoted(one.names[c])} AS {quoted(c)}" for c in one.columns)
                return limited(f"SELECT {fields} FROM {view}", names(one.columns), limits)
            case Constants():
                rows = ", ".join(f"({', '.join(map(sql_of, row))})" for row in one.rows)
                sql = f"SELECT {names(one.columns)} FROM VALUES {rows} AS a ({', '.join(map(quoted, one.names))})"
                return limited(sql, names(one.columns), limits)
            case Select():
                below = self.rows(one.input, version, renamed(limits, one.expressions))
                return f"SELECT {select_list(one.expressions, one.columns)} FROM ({below}) AS a"
            case Filter():
                below = self.rows(one.input, version, limits)
                return f"SELECT {names(one.columns)} FROM ({below}) AS a WHERE {all_true(one.conditions)}"
            case Union():
                return " UNION ALL ".join(
                    self.part(one, i, self.rows(part, version, renamed(limits, _columns(one.names, i))))
                    for i, part in enumerate(one.parts)
                )
            case InnerJoin():
                return self._join(one, version, limits)
            case Matched():
                return self._matched(one, version, limits)
            case Group() | Windows():
                return self._keyed(one, version, limits)
            case SetOperation():
                left, right = (
                    self.rows(each, version, renamed(limits, _columns(one.names, i)))
                    for i, each in enumerate(one.inputs)
                )
                return f"{self.part(one, 0, left)} {one.kind} {self.part(one, 1, right)}"
        raise AssertionError(one)

    def over(self, root: Operator, core: Operator, sql: str) -> str:
        """The rows of the root if those of an operator below it are the given ones."""
        self._given[id(core)] = sql
        found = self.rows(root, "new")
        del self._given[id(core)]
        return found

    def part(self, one: Union | SetOperation, i: int, sql: str, weight: str = "") -> str:
        """The ith input's rows, with the names of the operator."""
        fields = ", ".join(f"{quoted(one.names[c][i])} AS {quoted(c)}" for c in one.columns) or f"1 AS {NO_COLUMN}"
        return f"SELECT {fields}{weight} FROM ({sql}) AS a"

    def _join(self, one: InnerJoin, version: Version, limits: Limits) -> str:
        wide = spread(limits, one.conditions)
        _, above = split(limits, ())
        inside = [split(wide, set(part.columns))[0] for part in one.parts]
        whole = [i for i, each in enumerate(inside) if sum(len(x.pairs) for x in each)]
        exact = [i for i in whole if all(any(_covers(x, each) for x in inside[i]) for each in limits)]
        start = next(iter(exact or whole), 0)
        first = self.rows(one.parts[start], version, inside[start])
        rest = [(part, version, inside[i]) for i, part in enumerate(one.parts) if i != start]
        sql = self.chain(first, one.parts[start].columns, rest, one, small=bool(whole))
        return sql if exact else limited(sql, names(one.columns), above)

    def chain(
        self,
        first: str,
        columns: Iterable[str],
        rest: list[tuple[Operator, Version, Limits]],
        join: InnerJoin,
        *,
        small: bool,
        weight: bool = False,
    ) -> str:
        """A join from its first rows outward: next comes an input that shares an equal value with those before it.

        If the first rows are few, inputs that are not simply tables are limited to the keys of the rows before them.
        """
        here, sql, waiting = set(columns), f"({first}) AS a", list(join.conditions)
        where = [each for each in waiting if used([each]) <= here]
        waiting = [each for each in waiting if each not in where]
        rest = list(rest)
        number = 0
        while rest:
            part, version, limits = rest.pop(_next(here, rest, waiting))
            pairs = equal_pairs(waiting, here, set(part.columns))
            if small and pairs and not limits and not simple(part):
                view = self.view("j", _selected(sorted(here), weight, sql, where))
                sql, where = f"{view} AS a", []
                limits = (self.limit(view, pairs),)
            number += 1
            here |= set(part.columns)
            on = [each for each in waiting if used([each]) <= here]
            waiting = [each for each in waiting if each not in on]
            kind = f"JOIN ({self.rows(part, version, limits)}) AS b{number}"
            sql += f" {kind} ON {all_true(on)}" if on else f" CROSS {kind}"
            here = here & {*join.columns, *used(waiting)}
        return _selected(join.columns, weight, sql, where)

    def limit(self, view: str, pairs: list[tuple[exp.Expr, exp.Expr, bool]]) -> Limit:
        """The limit to the keys of a view: its value (first) of each pair equals the other operator's."""
        if all(isinstance(near, exp.Column) for near, _, _ in pairs):
            return Limit(view, tuple(Pair(far, near.name, null_safe) for near, far, null_safe in pairs))
        fields = ", ".join(f"{sql_of(near)} AS k{i}" for i, (near, _, _) in enumerate(pairs))
        keys = self.view("k", f"SELECT DISTINCT {fields} FROM {view} AS a")
        return Limit(keys, tuple(Pair(far, f"k{i}", null_safe) for i, (_, far, null_safe) in enumerate(pairs)))

    def _matched(self, one: Matched, version: Version, limits: Limits) -> str:
        inside, above = split(limits, set(one.left.columns))
        left = self.rows(one.left, version, inside)
        right_limits: Limits = ()
        if inside:
            right_limits, _ = split(spread(inside, one.conditions), set(one.right.columns))
            if not right_limits:
                view = self.view("l", left)
                left = f"SELECT * FROM {view}"
                right_limits = self.right_limits(one, view)
        sql = self.matched(one, left, self.rows(one.right, version, right_limits))
        return limited(sql, names(one.columns), above)

    def right_limits(self, one: Matched, view: str) -> Limits:
        """The limit of the right input to what a view of left rows can match."""
        pairs = equal_pairs(one.conditions, set(one.left.columns), set(one.right.columns))
        return (self.limit(view, pairs),) if pairs else ()

    def matched(self, one: Matched, left: str, right: str, weight: str = "") -> str:
        on = all_true(one.conditions) or "TRUE"
        return f"SELECT {names(one.columns)}{weight} FROM ({left}) AS a {one.kind} JOIN ({right}) AS b ON {on}"

    def _keyed(self, one: Group | Windows, version: Version, limits: Limits) -> str:
        inside, above = split(limits, one.keys)
        below = self.rows(one.input, version, inside)
        if isinstance(one, Group):
            by = f" GROUP BY {names(one.keys)}" if one.keys else ""
            expressions = {**{key: column(key) for key in one.keys}, **one.aggregates}
            sql = f"SELECT {select_list(expressions, one.columns)} FROM ({below}) AS a{by}"
        else:
            functions = {name: self._ordered(one, name) for name in one.functions}
            expressions = {**{c: column(c) for c in one.input.columns}, **functions}
            sql = f"SELECT {select_list(expressions, one.columns)} FROM ({below}) AS a"
        return limited(sql, names(one.columns), above)

    def _ordered(self, one: Windows, name: str) -> exp.Expr:
        function = one.functions[name]
        if name not in one.tie_break:
            return function
        function = function.copy()
        order = function.args.get("order") or exp.Order(expressions=[])
        known = {sql_of(each.this) for each in order.expressions}
        more = [
            exp.Ordered(this=column(c), nulls_first=True)
            for c in one.input.columns
            if c not in known and c not in one.keys
        ]
        function.set("order", exp.Order(expressions=[*order.expressions, *more]))
        return function


def simple(one: Operator) -> bool:
    """Whether an operator only reads a table row by row, so that a join with it needs no limit."""
    return isinstance(one, SourceRows) or (isinstance(one, Select | Filter) and simple(one.input))


def _selected(columns: Iterable[str], weight: bool, sql: str, where: list[exp.Expr]) -> str:
    fields = f"{', '.join(map(quoted, columns))}, {WEIGHT}".removeprefix(", ") if weight else names(columns)
    return f"SELECT {fields} FROM {sql}" + (f" WHERE {all_true(where)}" if where else "")


def _covers(part: Limit, whole: Limit) -> bool:
    return part.view == whole.view and {p.key for p in part.pairs} >= {p.key for p in whole.pairs}


def _columns(columns: Mapping[str, tuple[str, ...]], i: int) -> dict[str, exp.Expr]:
    return {name: column(inputs[i]) for name, inputs in columns.items()}


def _next(here: set[str], rest: list[tuple[Operator, Version, Limits]], waiting: list[exp.Expr]) -> int:
    """Which of the inputs comes next."""
    for i, (part, _, _) in enumerate(rest):
        if equal_pairs(waiting, here, set(part.columns)):
            return i
    for i, (part, _, _) in enumerate(rest):
        if any((names := used([c])) & here and names <= here | set(part.columns) for c in waiting):
            return i
    return 0
