"""Which joins are by equal columns, as the conditions in and above them say."""

from collections.abc import Iterable, Iterator, Sequence, Set

from service.guard.nodes import Node

Pair = tuple[frozenset[int], frozenset[int]]


def equal_columns(conditions: Iterable[Node]) -> list[Pair]:
    """The pairs of sets of columns whose values all of these conditions compare for equality."""
    return [pair for condition in conditions for pair in _pairs(condition)]


def inner_joins(join: Node) -> Iterator[Node]:
    """A join, and the inner joins that are its sides: their order in the text means nothing."""
    yield join
    if _is_inner(join):
        for child in join.children:
            if child.name == "Join" and _is_inner(child):
                yield from inner_joins(child)


def joined_sides(join: Node) -> list[Node]:
    """What a join and the inner joins that are its sides join."""
    joins = list(inner_joins(join))
    return [child for one in joins for child in one.children if not any(child is other for other in joins)]


def connected(sides: Sequence[Set[int]], pairs: Iterable[Pair]) -> list[set[int]]:
    """The groups of sides that are joined by equal columns, by their places."""
    groups = [{place} for place in range(len(sides))]
    for one, other in pairs:
        places = [_place(columns, sides) for columns in (one, other)]
        if None not in places:
            found = [group for group in groups if group & set(places)]
            groups = [group for group in groups if group not in found] + [set().union(*found)]
    return groups


def _place(columns: frozenset[int], sides: Sequence[Set[int]]) -> int | None:
    """The side that has all of these columns."""
    return next((place for place, side in enumerate(sides) if columns and columns <= side), None)


def _is_inner(join: Node) -> bool:
    kind = join.fields.get("joinType")
    return isinstance(kind, dict) and str(kind.get("object", "")).rpartition(".")[2] in ("Inner$", "Cross$")


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


def filters(plan: Node) -> Iterator[Node]:
    """The conditions of a plan."""
    if plan.name == "Filter":
        yield from plan.trees("condition")
    for child in plan.children:
        yield from filters(child)


def has_outer_equality(condition: Node) -> bool:
    """Whether a subquery compares a column for equality with one that is outside of it."""
    if condition.name in ("EqualTo", "EqualNullSafe"):
        return any(child.name == "OuterReference" for child in condition.children)
    return condition.name == "And" and any(map(has_outer_equality, condition.children))
