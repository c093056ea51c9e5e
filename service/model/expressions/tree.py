"""An expression as a tree in which every value has a kind; `parse_expression` makes it, the engine renders it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from service.model.expressions.kinds import Kind
from service.model.schema.columns import Column
from service.model.schema.types import ColumnType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal of the text, with its kind; None is null."""

    kind: Kind
    value: bool | int | float | Decimal | str | date | datetime | None


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A column's value."""

    column: Column

    @property
    def kind(self) -> Kind:
        return self.column.type


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """An operator (`+`, `and`, `in`, …) or a documented function, with its arguments."""

    name: str
    arguments: "tuple[Node, ...]"
    kind: Kind


@dataclass(frozen=True, slots=True)
class Cast:
    """The value in another type; with `safe`, null if it cannot be converted."""

    value: "Node"
    kind: ColumnType
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, or equals `of` if that is given."""

    of: "Node | None"
    branches: "tuple[tuple[Node, Node], ...]"
    otherwise: "Node | None"
    kind: Kind


Node: TypeAlias = Constant | ColumnValue | FunctionCall | Cast | Case


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. `path` is its place in the request, for errors while it is computed.

    With `required`, null is such an error.
    """

    tree: Node
    text: str
    path: str
    required: bool = False

    @property
    def kind(self) -> Kind:
        """The type of its values; not exact for computed numbers."""
        return self.tree.kind

    @property
    def columns(self) -> frozenset[str]:
        """The names of the top-level columns that it reads."""
        return frozenset(str(column.steps[0]) for column in self.references)

    @property
    def references(self) -> frozenset[Column]:
        return frozenset(node.column for node in all_nodes(self.tree) if isinstance(node, ColumnValue))


def rebind(tree: Node, found: Callable[[Column], Column]) -> Node:
    """The same tree with each column replaced by what `found` returns for it."""
    match tree:
        case ColumnValue(column):
            return ColumnValue(found(column))
        case FunctionCall(name, arguments, kind):
            return FunctionCall(name, tuple(rebind(part, found) for part in arguments), kind)
        case Cast(value, kind, safe):
            return Cast(rebind(value, found), kind, safe)
        case Case(of, branches, otherwise, kind):
            moved = tuple((rebind(condition, found), rebind(value, found)) for condition, value in branches)
            of, otherwise = (None if part is None else rebind(part, found) for part in (of, otherwise))
            return Case(of, moved, otherwise, kind)
    return tree


def all_nodes(tree: Node) -> Iterator[Node]:
    """Every node of the tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case FunctionCall(_, arguments, _):
            return arguments
        case Cast(value, _, _):
            return (value,)
        case Case(of, branches, otherwise, _):
            listed = tuple(part for branch in branches for part in branch)
            return tuple(part for part in (of, *listed, otherwise) if part is not None)
    return ()
