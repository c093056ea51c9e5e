"""Apply the changes of several requests, one after the other, to the rows that have their keys. Without I/O.

Each request finds the rows as the earlier ones left them, so that its counts are those of requests that are made one
after the other; the table gets the sum of all of them in one commit.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.errors import FirnError
from service.model.edits import SENT_PREFIX
from service.model.keyed.changes import AddRows, KeyedChange, MatchRows, PutRows, RowCounts, RowPlace
from service.model.keyed.conditions import holds
from service.model.keyed.pool import PooledRow, RowPool, same

Key = tuple[Any, ...]


@dataclass(frozen=True)
class KeyedRows:
    """The rows of a table that have one of the keys of some changes, and where they are."""

    rows: pa.Table
    places: Sequence[RowPlace]


@dataclass(frozen=True)
class AppliedChange:
    """What one request did, or why it was refused; its files are those with rows of the table that it changed."""

    counts: RowCounts = field(default_factory=RowCounts)
    files: frozenset[str] = frozenset()
    removed: tuple[PooledRow, ...] = ()
    added: tuple[PooledRow, ...] = ()
    refusal: FirnError | None = None


@dataclass(frozen=True)
class AppliedChanges:
    """What several requests did: each on its own, and together."""

    changes: tuple[AppliedChange, ...]
    pool: RowPool
    gone: tuple[RowPlace, ...]
    """The places of rows that the table loses."""
    new: pa.Table
    """The rows that it gets."""

    def rows_of(self, side: str) -> tuple[list[int], pa.Table]:
        """How many rows each request `removed` or `added`, and these rows, one request after the other."""
        each = [getattr(change, side) for change in self.changes]
        return [len(rows) for rows in each], self.pool.take([row for rows in each for row in rows])


@dataclass(eq=False)
class _Row:
    base: int
    place: RowPlace | None = None
    replaced: dict[str, int] = field(default_factory=dict)
    alive: bool = True

    @property
    def pooled(self) -> PooledRow:
        return PooledRow(self.base, dict(self.replaced))

    @property
    def is_new(self) -> bool:
        """Whether the table must get it."""
        return self.alive and (self.place is None or bool(self.replaced))


class _Rows:
    """The rows at one moment, by each set of key columns."""

    def __init__(self, pool: RowPool, found: KeyedRows, key_sets: Iterable[tuple[str, ...]]) -> None:
        self.pool = pool
        self._by_key: dict[tuple[str, ...], dict[Key, dict[_Row, None]]] = {
            columns: defaultdict(dict) for columns in key_sets
        }
        self.every: list[_Row] = []
        for number, place in zip(pool.add(found.rows), found.places, strict=True):
            self.add(_Row(number, place))

    def add(self, row: _Row) -> None:
        self.every.append(row)
        self._list(row)

    def with_key(self, columns: tuple[str, ...], key: Key | None) -> list[_Row]:
        return [] if key is None else list(self._by_key[columns].get(key, ()))

    def value(self, row: _Row, column: str) -> Any:
        return self.pool.value(column, row.replaced.get(column, row.base))

    def delete(self, row: _Row) -> None:
        self._unlist(row)
        row.alive = False

    def replace(self, row: _Row, columns: Iterable[str], number: int) -> None:
        """Give a row the values of another in some columns."""
        self._unlist(row)
        row.replaced |= dict.fromkeys(columns, number)
        self._list(row)

    def _list(self, row: _Row) -> None:
        for columns, listed in self._by_key.items():
            if (key := self._key(row, columns)) is not None:
                listed[key][row] = None

    def _unlist(self, row: _Row) -> None:
        for columns, listed in self._by_key.items():
            if (key := self._key(row, columns)) is not None:
                del listed[key][row]

    def _key(self, row: _Row, columns: tuple[str, ...]) -> Key | None:
        key = tuple(self.value(row, column) for column in columns)
        return None if None in key else key


def apply_changes(schema: pa.Schema, found: KeyedRows, changes: Sequence[KeyedChange]) -> AppliedChanges:
    """Apply changes in their order; one that is refused does nothing."""
    key_sets = {tuple(keys.column_names) for change in changes if (keys := change.keys) is not None}
    rows = _Rows(RowPool(schema), found, key_sets)
    applied = []
    for change in changes:
        try:
            applied.append(_apply(rows, change))
        except FirnError as e:
            applied.append(AppliedChange(refusal=e))
    gone = tuple(row.place for row in rows.every if row.place is not None and (row.is_new or not row.alive))
    new = rows.pool.take([row.pooled for row in rows.every if row.is_new])
    return AppliedChanges(tuple(applied), rows.pool, gone, new)


def _apply(rows: _Rows, change: KeyedChange) -> AppliedChange:
    match change:
        case AddRows():
            return _added(rows, change.rows)
        case PutRows():
            return _put(rows, change)
        case MatchRows(new=None):
            return _deleted(rows, change)
        case MatchRows():
            return _set(rows, change)


def _added(rows: _Rows, new: pa.Table) -> AppliedChange:
    made = [_Row(number) for number in rows.pool.add(new)]
    for row in made:
        rows.add(row)
    return AppliedChange(RowCounts(inserted=len(made)), added=tuple(row.pooled for row in made))


def _put(rows: _Rows, change: PutRows) -> AppliedChange:
    how = change.how
    sent = {name: change.rows[SENT_PREFIX + name].to_pylist() for name in how.partly_sent}
    numbers = rows.pool.add(change.rows)
    met = [rows.with_key(how.keys, _key(rows.pool, how.keys, number)) for number in numbers]
    is_new = [not found for found in met]
    change.check_new(change.rows.filter(pa.array(is_new, pa.bool_())))
    inserted: list[_Row] = []
    before: list[PooledRow] = []
    after: list[PooledRow] = []
    files, updated, unchanged = set[str](), 0, 0
    for i, (number, found) in enumerate(zip(numbers, met, strict=True)):
        columns = [name for name in how.update if name not in sent or sent[name][i]]
        if not found:
            inserted.append(_Row(number))
        for row in found:
            if all(same(rows.value(row, name), rows.pool.value(name, number)) for name in columns):
                unchanged += 1
                continue
            updated += 1
            _note(row, files, before)
            rows.replace(row, columns, number)
            after.append(row.pooled)
    for row in inserted:
        rows.add(row)
    counts = RowCounts(len(inserted), updated, unchanged)
    return AppliedChange(counts, frozenset(files), tuple(before), (*after, *(row.pooled for row in inserted)))


def _set(rows: _Rows, change: MatchRows) -> AppliedChange:
    assert change.new is not None
    [number] = rows.pool.add(change.new)
    before: list[PooledRow] = []
    files, found = set[str](), _matching(rows, change)
    for row in found:
        _note(row, files, before)
        rows.replace(row, change.new.column_names, number)
    after = tuple(row.pooled for row in found)
    return AppliedChange(RowCounts(updated=len(found)), frozenset(files), tuple(before), after)


def _deleted(rows: _Rows, change: MatchRows) -> AppliedChange:
    before: list[PooledRow] = []
    files, found = set[str](), _matching(rows, change)
    for row in found:
        _note(row, files, before)
        rows.delete(row)
    return AppliedChange(RowCounts(deleted=len(found)), frozenset(files), tuple(before))


def _note(row: _Row, files: set[str], before: list[PooledRow]) -> None:
    """Note a row before it is changed."""
    before.append(row.pooled)
    if row.place is not None:
        files.add(row.place.file)


def _matching(rows: _Rows, change: MatchRows) -> list[_Row]:
    columns = tuple(change.keys.column_names)
    numbers = rows.pool.add(change.keys)
    found = dict.fromkeys(row for n in numbers for row in rows.with_key(columns, _key(rows.pool, columns, n)))
    return [row for row in found if holds(change.condition, lambda name, row=row: rows.value(row, name))]  # type: ignore[misc]


def _key(pool: RowPool, columns: tuple[str, ...], number: int) -> Key | None:
    """The key of a row of the pool; None if it has a null, with which no key is equal."""
    key = tuple(pool.value(name, number) for name in columns)
    return None if None in key else key
