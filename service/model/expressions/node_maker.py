"""Make the nodes of an expression's tree, and limit their number, depth and growth."""

from collections.abc import Sequence
from typing import NoReturn

from service.errors import FirnError
from service.model.expressions.kinds import Kind
from service.model.expressions.tree import Constant, FunctionCall, Node, children

MAX_NODES = 2_000
MAX_HEIGHT = 200
MAX_GROWTH = 20_000
_REPLACING = ("replace", "regexp_replace")
_JOINING = ("concat", "concat_ws")


class NodeMaker:
    """Makes nodes; errors say where in the text the problem is. `path` is the expression's place in the request."""

    def __init__(self, path: str, error: type[FirnError]) -> None:
        self.path = path
        self.error = error
        self._made: list[Node] = []
        self._heights: dict[int, int] = {}
        self._growth: dict[int, int] = {}

    def refuse(self, place: int, problem: str, suggestion: str | None = None) -> NoReturn:
        raise self.error(f"{self.path}: at character {place + 1}: {problem}", field=self.path, suggestion=suggestion)

    def made(self, node: Node, place: int) -> Node:
        """Count a node and return it; `place` is its position in the text."""
        parts = children(node)
        # Nodes are kept so that their ids stay unique.
        self._made.append(node)
        if len(self._made) > MAX_NODES:
            self.refuse(place, f"the expression has more than {MAX_NODES} parts; simplify it")
        height = 1 + max((self._heights[id(part)] for part in parts), default=0)
        if height > MAX_HEIGHT:
            self.refuse(place, f"more than {MAX_HEIGHT} operations build on each other; compute it in steps")
        growth = self._grown(node, parts)
        if growth > MAX_GROWTH:
            self.refuse(place, "with so many replacements a text could become huge; nest fewer of them")
        self._heights[id(node)], self._growth[id(node)] = height, growth
        return node

    def operation(self, name: str, arguments: Sequence[Node], kind: Kind, place: int) -> Node:
        return self.made(FunctionCall(name, tuple(arguments), kind), place)

    def _grown(self, node: Node, parts: Sequence[Node]) -> int:
        """How many times longer than the longest text that it reads a node's text can be."""
        each = [self._growth[id(part)] for part in parts]
        if isinstance(node, FunctionCall) and node.name in _JOINING:
            return sum(each)
        if (
            isinstance(node, FunctionCall)
            and node.name in _REPLACING
            and isinstance(parts[-1], Constant)
            and len(parts) == 3
        ):
            return each[0] * (1 + len(str(parts[-1].value)))
        return max(each, default=1)
