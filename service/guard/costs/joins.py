"""Which joins are by equal columns, as the conditions in and above them say."""

from collections.abc import Iterable, Sequence, Set

from service.guard.nodes import Node

Pair = tuple[frozenset[int], frozenset[int]]


def equal_columns(conditions: Iterable[Node]) -> list[Pair]:
    """The pairs of sets of columns whose values all of these conditions compare for equality."""
    return [pair for condition in conditions for pair in _pairs(condition)]


def is_joined(pairs: Sequence[Pair], left: Set[int], right: Set[int]) -> bool:
    """Whether one of the pairs has columns of one side only, and of the other side only."""
    return any(
        one and other and ((one <= left and other <= right) or (one <= right and other <= left)) for one, other in pairs
    )


def _pairs(node: Node) -> list[Pair]:
    if node.name in ("EqualTo", "EqualNullSafe") and len(node.children) == 2:
        one, other = (frozenset(_columns(child)) for child in node.children)
        return [(one, other)]
    if node.name == "And":
        return [pair for child in node.children for pair in _pairs(child)]
    if node.name == "Or":
        first, *others = (_pairs(child) for child in node.children)
        return [pair for pair in first if all(_has(pair, other) for other in others)]
    return []


def _has(pair: Pair, pairs: Sequence[Pair]) -> bool:
    return pair in pairs or (pair[1], pair[0]) in pairs


def _columns(node: Node) -> Iterable[int]:
    if node.name == "AttributeReference":
        yield node.expr_id
    for child in node.children:
        yield from _columns(child)
