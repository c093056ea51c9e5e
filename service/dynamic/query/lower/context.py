"""What the reading of a query as operators has at hand, and how it stops."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from service.dynamic.query.compiled import NotIncremental
from service.dynamic.query.dialect import place, sql_of
from service.dynamic.query.operators import Group, Operator, Select, SourceRows
from service.dynamic.query.rows import Rows
from service.dynamic.query.sql_types import has_map
from service.errors import InvalidQuery
from service.model.names import INGEST_COLUMNS
from service.model.schema.types import ColumnType, Field, fold_case

Named = tuple[str, str]
"""A column's name in the query, and its name in the tree of operators."""
Types = Callable[[str], tuple[Field, ...]]


class Unsupported(Exception):
    """The query cannot be refreshed incrementally."""

    def __init__(self, why: NotIncremental) -> None:
        super().__init__(why.message)
        self.why = why


@dataclass(frozen=True)
class Relation:
    """A table or subquery in FROM, by the parts of its name; an alias is one part."""

    path: tuple[str, ...]
    columns: tuple[Named, ...]

    def is_called(self, names: Sequence[str]) -> bool:
        """Whether these are the last parts of its name, or all of them."""
        return len(self.path) >= len(names) and all(map(same_name, self.path[-len(names) :], names))


@dataclass
class NameScope:
    """The names that an expression can use."""

    relations: list[Relation]
    visible: list[Named]
    """The columns that `*` stands for, and that names without a table find."""
    outer: "NameScope | None" = None
    block: "SelectBlock | None" = None
    """The SELECT that it belongs to."""
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    """The select list's own names so far, for those that are no columns."""


@dataclass
class Lowered:
    """A query as an operator."""

    operator: Operator
    outputs: list[tuple[str | None, str]]
    """The columns of the result: name, if it has one, and column of the operator."""
    outer: list[exp.Expr]
    """The conditions that also read columns of the query around it."""
    empty: exp.Expr | None = None
    """Of an aggregate without GROUP BY that is grouped by the columns it shares with the query around it: its value
    if no row is found."""


@dataclass
class Cte:
    query: exp.Expr
    columns: tuple[str, ...]
    visible: "dict[str, Cte]"
    lowered: Lowered | None = None


@dataclass
class WindowCall:
    name: str
    keys: tuple[exp.Expr, ...]
    function: exp.Expr
    tie_break: bool


@dataclass
class SelectBlock:
    """One SELECT while it is read."""

    operator: Operator
    scope: NameScope
    ctes: dict[str, Cte]
    outer: list[exp.Expr] = field(default_factory=list)
    group: Group | None = None
    """Set once rows have become groups."""
    group_keys: list[tuple[exp.Expr, str]] = field(default_factory=list)
    """The values that are grouped by, and their columns."""
    windows: list[WindowCall] | None = None
    """The window functions found so far; None where there can be none."""
    named_windows: dict[str, exp.Window] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scope.block is None:
            self.scope.block = self


@dataclass
class Context:
    text: str
    sources: dict[tuple[str | None, str], tuple[int, Sequence[Field]]]
    """By namespace and table: the number and the columns."""
    types: Types
    query: "Callable[[Context, exp.Expr, dict[str, Cte], NameScope | None], Lowered]"
    """Reads a query; here because expressions contain queries and queries contain expressions."""
    internal: set[str] = field(default_factory=set)
    """The columns that `*` does not mean: internal ones of ingestion tables."""
    classes: dict[str, None] = field(default_factory=dict)
    """The operators found so far, in order."""
    _count: int = 0
    _types: dict[tuple[Operator, str], ColumnType] = field(default_factory=dict)

    @property
    def has_maps(self) -> bool:
        """Whether there may be a column with a map: a source has one, or the query makes one."""
        return "map" in self.text.lower() or any(
            has_map(field.type) for _, fields in self.sources.values() for field in fields
        )

    def fresh(self, name: str) -> str:
        """A new name of a column."""
        self._count += 1
        return f"c{self._count}_{re.sub(r'[^a-z0-9_]', '', name.lower())[:30]}".rstrip("_")

    def refuse(self, code: str, message: str, node: exp.Expr | None) -> NoReturn:
        line, column = place(self.text, node) if node is not None else (None, None)
        raise Unsupported(NotIncremental(code, message, line, column))

    def unsupported(self, node: exp.Expr, what: str | None = None) -> NoReturn:
        shown = what or f"{type(node).__name__}: {node.sql('spark', comments=False)[:80]}"
        self.refuse("UNSUPPORTED", f"{shown} is not supported in an incremental refresh", node)

    def check_args(self, node: exp.Expr, *known: str) -> None:
        """Refuse parts of a node that are not known here."""
        for name, value in node.args.items():
            if value not in (None, [], False) and name not in known:
                part = value if isinstance(value, exp.Expr) and place(self.text, value)[0] else node
                self.unsupported(part, f"{name.strip('_').upper()} in {type(node).__name__.upper()}")

    def wrong(self, problem: str, node: exp.Expr) -> NoReturn:
        line, column = place(self.text, node)
        raise InvalidQuery(f"{problem} (line {line}, column {column})", field="query")

    def value_types(self, one: Operator, values: Sequence[exp.Expr]) -> list[ColumnType]:
        """The types of values over the operator's columns, analysed together."""
        texts = [sql_of(value) for value in values]
        missing = {text: value for text, value in zip(texts, values, strict=True) if (one, text) not in self._types}
        select = Select(one, {f"v{i}": value.copy() for i, value in enumerate(missing.values())})
        for text, kind in zip(missing, self.column_types(select).values(), strict=True):
            self._types[one, text] = kind
        return [self._types[one, text] for text in texts]

    def column_types(self, one: Operator) -> dict[str, ColumnType]:
        """The types of the operator's columns."""
        columns = one.produced
        if not columns:
            return {}
        found = self.types(Rows(one, frozenset()).rows(one, "new"))
        return {name: field.type for name, field in zip(columns, found, strict=True)}

    def source(self, key: tuple[str | None, str]) -> tuple[SourceRows, list[Named]]:
        """Another reading of a source."""
        number, fields = self.sources[key]
        named = [(each.name, self.fresh(each.name)) for each in fields]
        self.internal |= {new for name, new in named if name in INGEST_COLUMNS}
        required = frozenset(new for (_, new), each in zip(named, fields, strict=True) if each.required)
        return SourceRows(number, {new: name for name, new in named}, required), named


def same_name(one: str, other: str) -> bool:
    return fold_case(one) == fold_case(other)
