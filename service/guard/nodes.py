"""The trees in the JSON of Spark's plans: lists of nodes in pre-order, with further trees in the nodes' fields."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_PLAN = (".plans.", ".execution.")


@dataclass(slots=True)
class Node:
    """A node of a plan, or of an expression."""

    name: str
    fields: dict[str, Any]
    children: list["Node"]

    def trees(self, field: str) -> list["Node"]:
        """The trees in a field: one, or a list of them."""
        return list(trees_in(self.fields.get(field)))

    def all_trees(self) -> Iterator["Node"]:
        """The trees in all fields."""
        for value in self.fields.values():
            if isinstance(value, list | dict):
                yield from trees_in(value)

    @property
    def expr_id(self) -> int:
        """The id by which other nodes refer to what this one names; -1 if it has none."""
        return id_of(self.fields.get("exprId"))


def id_of(value: Any) -> int:
    """The number in the JSON of an expression's id; -1 if there is none."""
    return int(value["id"]) if isinstance(value, dict) and "id" in value else -1


def class_name(node: dict[str, Any]) -> str:
    """The class of a node without its package."""
    return str(node["class"]).rpartition(".")[2]


def is_tree(value: Any) -> bool:
    """Whether a value in the JSON is a tree."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "class" in value[0]


def is_plan_class(name: str) -> bool:
    """Whether a full class name is that of a plan, not of an expression."""
    return any(part in name for part in _PLAN) or name.endswith("Relation")


def tree(nodes: Sequence[dict[str, Any]]) -> Node:
    """The tree of a list of nodes in pre-order."""
    root = Node("", {}, [])
    # The node whose children follow next is last, with the number of those that are still missing.
    open_nodes: list[tuple[Node, int]] = [(root, 1)]
    for fields in nodes:
        parent, missing = open_nodes.pop()
        if missing > 1:
            open_nodes.append((parent, missing - 1))
        node = Node(class_name(fields), fields, [])
        parent.children.append(node)
        if fields["num-children"]:
            open_nodes.append((node, fields["num-children"]))
    return root.children[0]


def trees_in(value: Any) -> Iterator[Node]:
    """The trees in a value of the JSON, but not those in the fields of these."""
    if is_tree(value):
        yield tree(value)
    elif isinstance(value, list):
        for item in value:
            yield from trees_in(item)
    elif isinstance(value, dict) and "class" not in value:
        for item in value.values():
            if isinstance(item, list | dict):
                yield from trees_in(item)
