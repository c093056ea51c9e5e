"""Find the rows of a table that have some keys, in this process: a key index that is rebuilt from the files.

Only files are opened that can hold a key, by their partition and by the least and greatest key in the manifests. Files
never change, so the key columns of those that were read stay in memory: a key that is known to be new costs no reading.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.manifest import ManifestContent
from pyiceberg.types import PrimitiveType
from pyiceberg.utils.concurrent import ExecutorFactory

from service.catalog.files.columns import TooManyRows, UnreadableFile, read_columns
from service.catalog.files.data_files import DataFile, files_in_partitions, list_files, manifests_of
from service.catalog.files.manifests import file_bounds
from service.catalog.files.positions import positions as positions_of
from service.catalog.tables import Table
from service.catalog.translate import translated
from service.model.keyed.pool import plain_values

Key = tuple[Any, ...]
Bounds = dict[int, tuple[bytes | None, bytes | None]]

# Fewer files are read without looking for their least and greatest keys, which are in the manifests.
_FEW_FILES = 4
# More values are read by Spark.
_MOST_VALUES = 8_000_000
# More rows than this are changed by Spark.
_MOST_HITS = 20_000
_CACHE_BYTES = 128 << 20
# Types by whose least and greatest values files are skipped, and those by which partitions are.
_BOUNDED = frozenset({"int", "long", "string", "date", "timestamp", "timestamptz"})
_PARTITIONED = frozenset({"int", "long", "string", "date"})


@dataclass(frozen=True)
class KeyHits:
    """Where the rows with some keys are: for each set of key columns and each key, positions by file."""

    by_key: Mapping[tuple[str, ...], Mapping[Key, Mapping[str, Sequence[int]]]]
    files: Mapping[str, DataFile]
    """The files with hits."""
    scanned_files: int
    """Files that may have held one of the keys."""
    deletes_by_place: bool = False
    """Whether the table can have more delete files with positions."""
    deleted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The positions of rows of these files that delete files delete."""
    all_files: Sequence[DataFile] = ()
    """All data files of the state, of which most may have no hits."""

    def files_of(self, keys: pa.Table) -> frozenset[str]:
        """The files that hold rows with some of the keys that were looked up."""
        found = self.by_key[tuple(keys.column_names)]
        return frozenset(path for key in key_tuples(keys) for path in found.get(key, ()))

    def positions(self, files: Iterable[str]) -> dict[str, list[int]]:
        """The positions of all hits in some files, in order."""
        at: dict[str, set[int]] = {path: set() for path in files}
        for found in self.by_key.values():
            for places in found.values():
                for path, positions in places.items():
                    if path in at:
                        at[path].update(positions)
        return {path: sorted(positions) for path, positions in at.items() if positions}


@dataclass(frozen=True)
class _KeyColumns:
    """The key columns of a file, with the least and greatest value of the first; None if it has no values."""

    rows: pa.Table
    ends: tuple[Any, Any] | None

    @property
    def bytes(self) -> int:
        return int(self.rows.nbytes) + 500


@dataclass
class _KeyCache:
    """The key columns of files, which never change: up to a number of bytes, for any thread."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _found: LRUCache[Any, _KeyColumns] = field(
        default_factory=lambda: LRUCache(_CACHE_BYTES, getsizeof=lambda columns: columns.bytes)
    )

    def get(self, key: Any) -> _KeyColumns | None:
        with self._lock:
            return self._found.get(key)

    def put(self, key: Any, found: _KeyColumns) -> None:
        with self._lock, suppress(ValueError):  # larger than the whole cache
            self._found[key] = found


# For the process: the paths of files are globally unique.
_cache = _KeyCache()
_bounds: LRUCache[str, dict[str, Bounds]] = LRUCache(100_000, getsizeof=lambda found: len(found) + 1)
_bounds_lock = threading.Lock()


def key_tuples(keys: pa.Table) -> list[Key]:
    """The keys of some rows, comparable with those of KeyHits."""
    return list(zip(*(plain_values(column) for column in keys.columns), strict=True))


def find_keys(table: Table, lookups: Sequence[pa.Table]) -> KeyHits:
    """Find the rows of the table's current state that have keys. Each look-up has other columns; nulls match nothing.

    Raises UnreadableFile or TooManyRows if this is better done by Spark.
    """
    by_key: dict[tuple[str, ...], dict[Key, dict[str, list[int]]]] = {}
    found: dict[str, DataFile] = {}
    scanned: set[str] = set()
    for keys in lookups:
        hits = by_key[tuple(keys.column_names)] = {}
        files = {file.path: file for file in _in_partitions(table, keys)}
        search = _Search(keys)
        for path, columns in _key_columns(table, list(files.values()), keys.schema, search):
            scanned.add(path)
            for key, position in search.hits(columns):
                hits.setdefault(key, {}).setdefault(path, []).append(position)
                found[path] = files[path]
    deleted = _deleted_positions(table, found.values())
    if deleted:
        by_key = {columns: _without(hits, deleted) for columns, hits in by_key.items()}
        left = {path for hits in by_key.values() for places in hits.values() for path in places}
        found = {path: file for path, file in found.items() if path in left}
    return KeyHits(by_key, found, len(scanned), table.deletes_by_place, deleted, list_files(table).data)


def _deleted_positions(table: Table, files: Iterable[DataFile]) -> dict[str, frozenset[int]]:
    """The positions of the deleted rows of some files of the current state; files without any are left out."""
    state = list_files(table)
    if not state.deletes:
        return {}
    if not state.counted or not table.deletes_by_place:
        raise UnreadableFile("the table has delete files that only Spark reads")
    return {f.path: frozenset(positions_of(table, f.path, f.deletes).to_pylist()) for f in files if f.deletes}


def _without(
    hits: dict[Key, dict[str, list[int]]], deleted: Mapping[str, frozenset[int]]
) -> dict[Key, dict[str, list[int]]]:
    """The hits that are not deleted."""
    live: dict[Key, dict[str, list[int]]] = {}
    for key, places in hits.items():
        for path, positions in places.items():
            left = [position for position in positions if position not in deleted.get(path, ())]
            if left:
                live.setdefault(key, {})[path] = left
    return live


def read_files(
    table: Table, paths: Iterable[str], columns: pa.Schema, positions: Mapping[str, Sequence[int]] | None = None
) -> dict[str, pa.Table]:
    """Columns of all rows of some files, or of those at the positions of each file, in increasing order."""
    io, schema = table.iceberg.io, table.iceberg.schema()
    some, at = list(paths), positions or {}
    each = ExecutorFactory.get_or_create().map if len(some) > 1 else map
    return dict(zip(some, each(lambda path: read_columns(io, path, columns, schema, at.get(path)), some), strict=True))


class _Search:
    """The keys of one look-up, ready to be searched for in many files."""

    def __init__(self, keys: pa.Table) -> None:
        self._values = [pc.drop_null(pc.unique(column)) for column in keys.columns]
        self._keys = {key for key in key_tuples(keys) if None not in key}
        firsts = {key[0] for key in self._keys}
        self._sorted = None if any(isinstance(first, bool) for first in firsts) else sorted(firsts)
        self._most = _MOST_HITS

    @property
    def finds_nothing(self) -> bool:
        return not self._keys

    def may_be_between(self, ends: tuple[Any, Any] | None) -> bool:
        """Whether a key may be in a file by the ends of its first key column."""
        if ends is None or self._sorted is None:
            return True
        at = bisect_left(self._sorted, ends[0])
        return at < len(self._sorted) and bool(self._sorted[at] <= ends[1])

    def hits(self, found: _KeyColumns) -> Iterator[tuple[Key, int]]:
        """The keys in a file, with the positions of their rows."""
        rows = found.rows
        if not rows.num_rows or not self.may_be_between(found.ends):
            return
        hit = None
        for column, values in zip(rows.columns, self._values, strict=True):
            one = pc.is_in(column, value_set=values)
            hit = one if hit is None else pc.and_(hit, one)
        positions = pc.indices_nonzero(hit)
        self._most -= len(positions)
        if self._most < 0:
            raise TooManyRows
        for key, position in zip(key_tuples(rows.take(positions)), positions.to_pylist(), strict=True):
            if key in self._keys:
                yield key, position


def _key_columns(
    table: Table, files: Sequence[DataFile], columns: pa.Schema, search: _Search
) -> Iterator[tuple[str, _KeyColumns]]:
    """The key columns of the files that may hold a key; those that are not known are read."""
    if search.finds_nothing:
        return
    # By their ids: another column may get the name of one that was renamed or dropped.
    schema = table.iceberg.schema()
    ids = [(schema.find_field(column.name).field_id, column.type) for column in columns]
    known = {file.path: _cache.get((file.path, *ids)) for file in files}
    new = [file for file in files if known[file.path] is None]
    if len(new) > _FEW_FILES:
        new = _in_bounds(table, new, columns.names[0], search)
    if sum(file.rows for file in new) * len(columns) > _MOST_VALUES:
        raise TooManyRows
    for path, rows in read_files(table, [file.path for file in new], columns).items():
        known[path] = read = _KeyColumns(rows.combine_chunks(), _ends(rows.column(0)))
        _cache.put((path, *ids), read)
    yield from ((path, found) for path, found in known.items() if found is not None)


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    if pa.types.is_boolean(column.type):
        return None
    ends = pc.min_max(column)
    if not ends["min"].is_valid:
        return None
    low, high = plain_values(pa.array([ends["min"].as_py(), ends["max"].as_py()], column.type))
    return low, high


def _in_partitions(table: Table, keys: pa.Table) -> tuple[DataFile, ...]:
    """The files in partitions that may hold one of the keys."""
    schema = table.iceberg.schema()
    expression: BooleanExpression = AlwaysTrue()
    # PyIceberg declares only terms, but takes names and plain values.
    among = cast(Any, In)
    for name in keys.column_names:
        kind = str(schema.find_field(name).field_type)
        values = set(keys[name].to_pylist()) - {None}
        if kind in _PARTITIONED and values and any(part.field == name for part in table.past_partition):
            expression = And(expression, among(name, values))
    return files_in_partitions(table, None if isinstance(expression, AlwaysTrue) else expression)


def _in_bounds(table: Table, files: Sequence[DataFile], column: str, search: _Search) -> list[DataFile]:
    """The files whose least and greatest value of a column leave room for a key."""
    field = table.iceberg.schema().find_field(column)
    if str(field.field_type) not in _BOUNDED:
        return list(files)
    bounds = _every_bound(table)
    kept = []
    for file in files:
        low, high = bounds.get(file.path, {}).get(field.field_id, (None, None))
        ends = None
        if low is not None and high is not None:
            kind = cast(PrimitiveType, field.field_type)
            ends = (from_bytes(kind, low), from_bytes(kind, high))
        if search.may_be_between(ends):
            kept.append(file)
    return kept


def _every_bound(table: Table) -> dict[str, Bounds]:
    """The bounds of the columns of each data file; each manifest is read only once."""
    snapshot, io = table.iceberg.current_snapshot(), table.iceberg.io
    found: dict[str, Bounds] = {}
    if snapshot is None:
        return found
    with translated():
        for manifest in manifests_of(table, snapshot):
            if manifest.content != ManifestContent.DATA:
                continue
            with _bounds_lock:
                listed = _bounds.get(manifest.manifest_path)
            if listed is None:
                listed = dict(file_bounds(io.new_input(manifest.manifest_path)))
                with _bounds_lock, suppress(ValueError):
                    _bounds[manifest.manifest_path] = listed
            found |= listed
    return found
