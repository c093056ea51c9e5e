"""Which columns each operator has to give to others; sources are read in no more."""

from collections.abc import Iterable

from service.dynamic.query.operators import (
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
    used,
    walk,
)


def prune(root: Operator) -> None:
    """Set `needed` of every operator below the root, all of whose columns are needed."""
    operators = list(walk(root))
    for one in operators:
        one.needed = set()
    root.needed = set(root.produced)
    for one in reversed(operators):
        if isinstance(one, SourceRows) and not one.needed:
            one.needed = {one.produced[0]}
        for each, names in _reads(one):
            assert each.needed is not None
            each.needed |= set(names) & set(each.produced)


def _reads(one: Operator) -> Iterable[tuple[Operator, Iterable[str]]]:
    """What an operator reads of its inputs."""
    needed = one.needed or set()
    match one:
        case Select():
            yield one.input, used(one.expressions[c] for c in one.columns)
        case Filter():
            yield one.input, needed | used(one.conditions)
        case Union():
            for i, part in enumerate(one.parts):
                yield part, (one.names[c][i] for c in one.columns)
        case InnerJoin() | Matched():
            for each in one.inputs:
                yield each, needed | used(one.conditions)
        case Group():
            yield one.input, {*one.keys, *used(one.aggregates[c] for c in one.aggregates if c in needed)}
        case Windows():
            functions = used(one.functions[c] for c in one.functions if c in needed)
            yield one.input, {*needed, *one.keys, *functions}
        case SetOperation():
            one.needed = set(one.names)
            yield one.left, (left for left, _ in one.names.values())
            yield one.right, (right for _, right in one.names.values())
