"""The change of a query in terms of the few operations that are computed in this process, if it is made of them."""

from collections.abc import Set
from typing import cast

from sqlglot import exp

from service.dynamic.query.adding import Adding
from service.dynamic.query.dialect import sql_of
from service.dynamic.query.direct.conditions import NotDirect, condition
from service.dynamic.query.limits import equal_pairs
from service.dynamic.query.operators import Filter, InnerJoin, Operator, Select, SourceRows, Union, walk
from service.dynamic.query.result import above
from service.model.dynamic.direct import (
    AddedArgument,
    AddedGroups,
    AddedKind,
    DeltaRows,
    DirectChange,
    DirectCondition,
    DirectRows,
    JoinedRows,
    MatchingRows,
    RenamedRows,
    UnitedRows,
)

_WIDE = "DECIMAL(19, 0)"


def direct_change(root: Select, how: Adding | None, changed: Set[int]) -> DirectChange | None:
    """The change of the root by rows, or by adding to its groups; None if Spark has to compute it."""
    try:
        return _Direct(root, changed).rows(root) if how is None else _added(root, how, changed)
    except NotDirect:
        return None


class _Direct:
    """Reads the changes of operators, as `Changes` writes them as SQL."""

    def __init__(self, root: Operator, changed: Set[int]) -> None:
        self._changed = {
            id(one): any(isinstance(each, SourceRows) and each.number in changed for each in walk(one))
            for one in walk(root)
        }

    def rows(self, one: Operator) -> DirectRows:
        match one:
            case SourceRows():
                return DeltaRows(one.number, _read(one))
            case Select():
                return RenamedRows(self.rows(one.input), {name: _column(one.expressions[name]) for name in one.columns})
            case Filter():
                kept = MatchingRows(self.rows(one.input), tuple(map(condition, one.conditions)))
                return RenamedRows(kept, {name: name for name in one.columns})
            case Union():
                return UnitedRows(
                    tuple(
                        RenamedRows(self.rows(part), {name: one.names[name][i] for name in one.columns})
                        for i, part in enumerate(one.parts)
                        if self._changed[id(part)]
                    )
                )
            case InnerJoin():
                return UnitedRows(tuple(self._joined(one, i) for i, each in enumerate(one.parts) if self._is(each)))
        raise NotDirect

    def _is(self, one: Operator) -> bool:
        return self._changed[id(one)]

    def _joined(self, one: InnerJoin, start: int) -> DirectRows:
        """The change of one input with the rows of all others: those before it as they are, those after it as they
        were."""
        found, here = self.rows(one.parts[start]), set(one.parts[start].columns)
        waiting, rest = list(one.conditions), [i for i in range(len(one.parts)) if i != start]
        while rest:
            at, pairs = next(
                ((i, some) for i in rest if (some := equal_pairs(waiting, here, set(one.parts[i].columns)))),
                (None, []),
            )
            if at is None or any(null_safe for _, _, null_safe in pairs):
                raise NotDirect
            rest.remove(at)
            part = one.parts[at]
            source, columns, conditions = _scanned(part)
            equal = tuple((_column(near), _column(far)) for near, far, _ in pairs)
            old = at > start and self._is(part)
            found = JoinedRows(found, source, old, columns, conditions, equal)
            here |= set(part.columns)
            done = [each for each in waiting if isinstance(each, exp.EQ) and _is_among(each, equal)]
            waiting = [each for each in waiting if each not in done]
        if waiting:
            found = MatchingRows(found, tuple(map(condition, waiting)))
        return RenamedRows(found, {name: name for name in one.columns})


def _scanned(one: Operator) -> tuple[int, dict[str, str], tuple[DirectCondition, ...]]:
    """A source that is read row by row: its number, its columns by the names that the operator gives them, and the
    conditions for its rows."""
    match one:
        case SourceRows():
            return one.number, _read(one), ()
        case Select():
            number, columns, conditions = _scanned(one.input)
            if conditions:  # they name columns that are renamed here
                raise NotDirect
            return number, {name: columns[_column(one.expressions[name])] for name in one.columns}, ()
        case Filter():
            number, columns, conditions = _scanned(one.input)
            return number, columns, (*conditions, *map(condition, one.conditions))
    raise NotDirect


def _read(one: SourceRows) -> dict[str, str]:
    return {name: one.names[name] for name in one.columns}


def _column(value: exp.Expr) -> str:
    """The column that a value is."""
    if not isinstance(value, exp.Column):
        raise NotDirect
    return value.name


def _is_among(one: exp.EQ, pairs: tuple[tuple[str, str], ...]) -> bool:
    sides = tuple(side.name for side in (one.this, one.expression) if isinstance(side, exp.Column))
    return sides in pairs or sides[::-1] in pairs


def _added(root: Select, how: Adding, changed: Set[int]) -> AddedGroups:
    core = how.core
    columns = {}
    for shown in root.columns:
        name = shown
        for one in above(root, core):
            assert isinstance(one, Select)
            name = _column(one.expressions[name])
        columns[shown] = name
    arguments = tuple(map(_argument, how.arguments))
    rows = _Direct(root, changed).rows(core.input)
    kept = ((name, *how.kinds[name]) for name in how.kinds if name in columns.values())  # not an unselected average
    kinds = {name: (cast(AddedKind, kind), number) for name, kind, number in kept}
    return AddedGroups(rows, core.keys, arguments, kinds, columns)


def _argument(value: exp.Expr) -> AddedArgument:
    """The column that is an aggregate's argument: also one of whole numbers that are added as decimals."""
    if isinstance(value, exp.Cast) and sql_of(value.to) == _WIDE:
        return AddedArgument(_column(value.this), is_whole=True)
    return AddedArgument(_column(value))
