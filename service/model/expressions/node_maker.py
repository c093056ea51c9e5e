"""Makes the nodes of one expression's tree and bounds them; a refusal says where in the text it arose."""

from collections.abc import Sequence
from typing import NoReturn

from service.errors import FirnError
from service.expressions.kinds import Kind
from service.expressions.tree import Call, Constant, Node, children

MAX_NODES = 2_000
MAX_HEIGHT = 200
MAX_GROWTH = 20_000
_REPLACING = ("replace", "regexp_replace")
_JOINING = ("concat", "concat_ws")


class Maker:
    """`path` is where the expression stands in the request."""

    def __init__(self, path: str, error: type[FirnError]) -> None:
        self.path = path
        self.error = error
        self._made: list[Node] = []
        self._heights: dict[int, int] = {}
        self._growth: dict[int, int] = {}

    def refuse(self, place: int, problem: str, suggestion: str | None = None) -> NoReturn:
        raise self.error(f"{self.path}: at character {place + 1}: {problem}", field=self.path, suggestion=suggestion)

    def made(self, node: Node, place: int) -> Node:
        """The same node, counted; `place` is where in the text it arose."""
        parts = children(node)
        # All are kept, so that no other node gets one's id.
        self._made.append(node)
        if len(self._made) > MAX_NODES:
            self.refuse(place, f"the expression has more than {MAX_NODES} parts; say it in fewer")
        height = 1 + max((self._heights[id(part)] for part in parts), default=0)
        if height > MAX_HEIGHT:
            self.refuse(place, f"more than {MAX_HEIGHT} operations build on each other; compute it in steps")
        growth = self._grown(node, parts)
        if growth > MAX_GROWTH:
            self.refuse(place, "replaced so often, a text could become huge; replace less within other replacements")
        self._heights[id(node)], self._growth[id(node)] = height, growth
        return node

    def operation(self, name: str, arguments: Sequence[Node], kind: Kind, place: int) -> Node:
        return self.made(Call(name, tuple(arguments), kind), place)

    def _grown(self, node: Node, parts: Sequence[Node]) -> int:
        """How many times as long as the longest text it reads a node's own text may be, at worst."""
        each = [self._growth[id(part)] for part in parts]
        if isinstance(node, Call) and node.name in _JOINING:
            return sum(each)
        if isinstance(node, Call) and node.name in _REPLACING and isinstance(parts[-1], Constant) and len(parts) == 3:
            return each[0] * (1 + len(str(parts[-1].value)))
        return max(each, default=1)
