"""A query as a tree of operators over bags of rows.

Every column of the tree has its own name, whatever table or operator it comes from, so that no two names collide when
operators are joined. An operator is a value of its own: one that is used twice, such as a common table expression, is
the same object.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

Expressions = dict[str, exp.Expr]


@dataclass(eq=False)
class Operator:
    """Its columns are those that other operators need, once `prune` has run; before, all."""

    needed: set[str] | None = field(default=None, init=False)
    """The columns that others read; None for all."""

    @property
    def inputs(self) -> "tuple[Operator, ...]":
        raise NotImplementedError

    @property
    def produced(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        produced = self.produced
        return produced if self.needed is None else tuple(c for c in produced if c in self.needed)


@dataclass(eq=False)
class SourceRows(Operator):
    """A source's rows; `names` has the source's name of each column."""

    number: int
    names: dict[str, str]
    required: frozenset[str] = frozenset()
    """The columns that are never null."""

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def produced(self) -> tuple[str, ...]:
        return tuple(self.names)


@dataclass(eq=False)
class Constants(Operator):
    """Rows that are in the query's text."""

    names: tuple[str, ...]
    rows: list[list[exp.Expr]]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def produced(self) -> tuple[str, ...]:
        return self.names


@dataclass(eq=False)
class Select(Operator):
    input: Operator
    expressions: Expressions

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def produced(self) -> tuple[str, ...]:
        return tuple(self.expressions)


@dataclass(eq=False)
class Filter(Operator):
    input: Operator
    conditions: list[exp.Expr]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def produced(self) -> tuple[str, ...]:
        return self.input.produced


@dataclass(eq=False)
class Union(Operator):
    """UNION ALL; `names` has the columns of the inputs that become each column."""

    parts: list[Operator]
    names: dict[str, tuple[str, ...]]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return tuple(self.parts)

    @property
    def produced(self) -> tuple[str, ...]:
        return tuple(self.names)


@dataclass(eq=False)
class InnerJoin(Operator):
    """The inner join of its inputs: all combinations of their rows for which all conditions are true."""

    parts: list[Operator]
    conditions: list[exp.Expr]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return tuple(self.parts)

    @property
    def produced(self) -> tuple[str, ...]:
        return tuple(c for part in self.parts for c in part.produced)


@dataclass(eq=False)
class Matched(Operator):
    """Each row of the left input with what it matches of the right one: LEFT JOIN, LEFT SEMI JOIN, LEFT ANTI JOIN."""

    kind: str
    """LEFT, LEFT SEMI or LEFT ANTI."""
    left: Operator
    right: Operator
    conditions: list[exp.Expr]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.left, self.right)

    @property
    def produced(self) -> tuple[str, ...]:
        return self.left.produced + (self.right.produced if self.kind == "LEFT" else ())


@dataclass(eq=False)
class Group(Operator):
    """GROUP BY columns of the input; without any, always one row. Without aggregates, DISTINCT."""

    input: Operator
    keys: tuple[str, ...]
    aggregates: Expressions
    whole: bool
    """Whether it has no GROUP BY, so that it has a row even if the input has none."""

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def produced(self) -> tuple[str, ...]:
        return (*self.keys, *self.aggregates)


@dataclass(eq=False)
class Windows(Operator):
    """The input's columns, and window functions over the rows with equal keys."""

    input: Operator
    keys: tuple[str, ...]
    functions: Expressions
    tie_break: frozenset[str]
    """The functions whose order is completed by all columns of the input."""
    comparable: bool
    """Whether no column is a map."""

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input,)

    @property
    def produced(self) -> tuple[str, ...]:
        return (*self.input.produced, *self.functions)


@dataclass(eq=False)
class SetOperation(Operator):
    """INTERSECT or EXCEPT; `names` has the left and the right column that become each column."""

    kind: str
    left: Operator
    right: Operator
    names: dict[str, tuple[str, str]]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.left, self.right)

    @property
    def produced(self) -> tuple[str, ...]:
        return tuple(self.names)


def never_null(value: exp.Expr, one: Operator) -> bool:
    """Whether a value is a column of a table, read row by row, that has no nulls."""
    while isinstance(value, exp.Column):
        name = value.name
        match one:
            case SourceRows():
                return name in one.required
            case Select():
                value, one = one.expressions[name], one.input
            case Filter():
                one = one.input
            case InnerJoin():
                one = next(part for part in one.parts if name in part.produced)
            case Matched() if name in one.left.produced:
                one = one.left
            case _:
                return False
    return False


def column(name: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=name, quoted=False))


def used(expressions: Iterable[exp.Expr]) -> set[str]:
    """The columns that expressions read."""
    return {node.name for one in expressions for node in one.find_all(exp.Column)}


def substitute(expression: exp.Expr, by: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression with columns replaced by others' expressions."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.name not in by:
            return node
        new = by[node.name].copy()
        return new if isinstance(new, exp.Column) else exp.Paren(this=new)

    return expression.copy().transform(replaced)


def walk(root: Operator) -> Iterator[Operator]:
    """Every operator once, inputs first."""
    seen: set[int] = set()

    def visit(one: Operator) -> Iterator[Operator]:
        if id(one) in seen:
            return
        seen.add(id(one))
        for each in one.inputs:
            yield from visit(each)
        yield one

    yield from visit(root)
