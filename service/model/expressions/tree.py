"""An expression as a tree whose every value has a kind; made by `parse_expression`, rendered by the engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from service.columns import Column
from service.expressions.kinds import Kind
from service.schema import ColumnType


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the text gives, in its kind; None is null."""

    kind: Kind
    value: bool | int | float | Decimal | str | date | datetime | None


@dataclass(frozen=True, slots=True)
class Named:
    """A column's value."""

    column: Column

    @property
    def kind(self) -> Kind:
        return self.column.type


@dataclass(frozen=True, slots=True)
class Call:
    """An operator (`+`, `and`, `in`, …) or a function of the documented table, with its arguments."""

    name: str
    arguments: "tuple[Node, ...]"
    kind: Kind


@dataclass(frozen=True, slots=True)
class Cast:
    """The value in another type; with `safe` null where it cannot be."""

    value: "Node"
    kind: ColumnType
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """The first branch whose condition holds, or which equals `of` where there is one."""

    of: "Node | None"
    branches: "tuple[tuple[Node, Node], ...]"
    otherwise: "Node | None"
    kind: Kind


Node: TypeAlias = Constant | Named | Call | Cast | Case


@dataclass(frozen=True, slots=True)
class Expression:
    """What a text computes of a row. `path` is where it stands in the request, for errors while it is computed.

    With `required` a null is such an error.
    """

    tree: Node
    text: str
    path: str
    required: bool = False

    @property
    def kind(self) -> Kind:
        """The type of its values, exact but for computed numbers."""
        return self.tree.kind

    @property
    def columns(self) -> frozenset[str]:
        """The names of the table's columns it reads; of a nested field, the column that holds it."""
        return frozenset(str(column.steps[0]) for column in self.references)

    @property
    def references(self) -> frozenset[Column]:
        return frozenset(node.column for node in nodes(self.tree) if isinstance(node, Named))


def rebound(tree: Node, found: Callable[[Column], Column]) -> Node:
    """The same tree over columns that are found elsewhere."""
    match tree:
        case Named(column):
            return Named(found(column))
        case Call(name, arguments, kind):
            return Call(name, tuple(rebound(part, found) for part in arguments), kind)
        case Cast(value, kind, safe):
            return Cast(rebound(value, found), kind, safe)
        case Case(of, branches, otherwise, kind):
            moved = tuple((rebound(condition, found), rebound(value, found)) for condition, value in branches)
            return Case(
                None if of is None else rebound(of, found),
                moved,
                None if otherwise is None else rebound(otherwise, found),
                kind,
            )
    return tree


def nodes(tree: Node) -> Iterator[Node]:
    """The tree's every node."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Call(_, arguments, _):
            return arguments
        case Cast(value, _, _):
            return (value,)
        case Case(of, branches, otherwise, _):
            listed = tuple(part for branch in branches for part in branch)
            return tuple(part for part in (of, *listed, otherwise) if part is not None)
    return ()
