"""A table's data files, from its metadata."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from uuid import UUID

from cachetools import LRUCache
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record, StructProtocol
from pyiceberg.utils.concurrent import ExecutorFactory

from service.catalog.files.manifests import live_deletes, live_files
from service.catalog.tables import Table
from service.catalog.translate import translated


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of a snapshot; `group` is equal for files that a compaction may merge."""

    path: str
    bytes: int
    rows: int
    group: tuple[Any, ...]
    deleted: int = 0
    """How many of its rows are deleted by delete files for this file alone."""
    deletes: tuple[str, ...] = ()
    """The paths of these."""
    sequence_number: int = 0
    """Grows with every commit, so a file with a greater number has newer rows. A rewrite may keep an older number."""

    @property
    def live_rows(self) -> int:
        """How many rows are not deleted by these delete files."""
        return self.rows - self.deleted


@dataclass(frozen=True)
class TableFiles:
    """The data files of a snapshot."""

    data: tuple[DataFile, ...]
    deletes: int = 0
    """The number of delete files."""
    dangling: int = 0
    """How many of these apply to one data file only, which is gone."""
    counted: bool = True
    """Whether `deleted` counts the deleted rows of each data file exactly, and their places can be read in process: no
    delete file applies to several files, no file has several, and all are Parquet or Puffin."""

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.data)

    @property
    def live_rows(self) -> int:
        """How many rows are not deleted, if they are counted."""
        return sum(f.live_rows for f in self.data)


T = TypeVar("T")
# How the names of files with deletion vectors end.
PUFFIN = ".puffin"


class ManifestCache(Generic[T]):
    """The entries of manifests by path, which never change: up to a number of entries in all, for any thread."""

    def __init__(self, most_entries: int) -> None:
        self._lock = threading.Lock()
        self._by_path: LRUCache[str, tuple[T, ...]] = LRUCache(most_entries, getsizeof=lambda found: len(found) + 1)

    def get(self, path: str) -> tuple[T, ...] | None:
        with self._lock:
            return self._by_path.get(path)

    def put(self, path: str, entries: tuple[T, ...]) -> None:
        with self._lock, suppress(ValueError):  # more entries than there is room for
            self._by_path[path] = entries


# One for the process, because the paths of manifests are globally unique. A file takes about 300 bytes.
_known: ManifestCache[DataFile] = ManifestCache(100_000)
# The manifests of manifest lists: PyIceberg reads a list each time, which takes 1 to 2 ms.
_known_lists: ManifestCache[ManifestFile] = ManifestCache(20_000)
_known_deletes: ManifestCache[tuple[str | None, int, str]] = ManifestCache(100_000)


def list_files(table: Table, snapshot_id: int | None = None) -> TableFiles:
    """Every data file of the current (or the given) snapshot; each manifest is read only once."""
    snapshot = _snapshot(table, snapshot_id)
    if snapshot is None:
        return TableFiles(())
    with translated():
        manifests, io = manifests_of(table, snapshot), table.iceberg.io
        files = _data_files(manifests, io)
        deleting = [manifest for manifest in manifests if _has_deletes(manifest)]
        return _with_deletes(files, deleting, io) if deleting else TableFiles(tuple(files))


def matching_files(table: Table, filter_json: str | None, snapshot_id: int | None = None) -> tuple[DataFile, ...]:
    """The data files of the current (or the given) snapshot in partitions that a filter, an Iceberg expression in JSON,
    may match."""
    with translated():
        expression = None if filter_json is None else BooleanExpression.model_validate_json(filter_json)
        return files_in_partitions(table, expression, snapshot_id)


def files_in_partitions(
    table: Table, expression: BooleanExpression | None, snapshot_id: int | None = None
) -> tuple[DataFile, ...]:
    """The same for PyIceberg's own expressions."""
    files = list_files(table, snapshot_id).data
    if expression is None:
        return files
    with translated():
        matches = _PartitionFilter(table, expression)
        return tuple(file for file in files if matches(file.group))


class _PartitionFilter:
    """Whether a partition may hold rows that a filter matches; it ignores the statistics of files."""

    def __init__(self, table: Table, row_filter: BooleanExpression) -> None:
        self._iceberg = table.iceberg
        self._filter = row_filter
        self._by_spec: dict[int, Callable[[StructProtocol], bool]] = {}
        self._known: dict[tuple[Any, ...], bool] = {}

    def __call__(self, group: tuple[Any, ...]) -> bool:
        if group not in self._known:
            spec_id, *values = group
            if spec_id not in self._by_spec:
                self._by_spec[spec_id] = self._of(self._iceberg.specs()[spec_id])
            self._known[group] = self._by_spec[spec_id](Record(*map(_compared, values)))
        return self._known[group]

    def _of(self, spec: PartitionSpec) -> Callable[[StructProtocol], bool]:
        schema = self._iceberg.schema()
        projected = inclusive_projection(schema, spec)(self._filter)
        return expression_evaluator(Schema(*spec.partition_type(schema).fields), projected, case_sensitive=True)


def count_rows(table: Table) -> int:
    """The current row count; reads data only if there are delete files of which the metadata does not say which rows
    they delete."""
    files = list_files(table)
    if files.counted:
        return files.live_rows
    with translated():
        return table.iceberg.scan().count()


def has_deletes(table: Table, snapshot_id: int | None = None) -> bool:
    """Whether the current (or the given) snapshot has delete files."""
    snapshot = _snapshot(table, snapshot_id)
    with translated():
        return snapshot is not None and any(map(_has_deletes, manifests_of(table, snapshot)))


def manifests_of(table: Table, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot; each list is read only once."""
    found = _known_lists.get(snapshot.manifest_list)
    if found is None:
        found = tuple(snapshot.manifests(table.iceberg.io))
        _known_lists.put(snapshot.manifest_list, found)
    return found


def _snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    iceberg = table.iceberg
    return iceberg.current_snapshot() if snapshot_id is None else iceberg.snapshot_by_id(snapshot_id)


def _has_deletes(manifest: ManifestFile) -> bool:
    lists_live = manifest.has_added_files() or manifest.has_existing_files()
    return manifest.content == ManifestContent.DELETES and lists_live


def _data_files(manifests: Sequence[ManifestFile], io: FileIO) -> Iterator[DataFile]:
    listing = [m for m in manifests if m.content == ManifestContent.DATA]
    return _listed(listing, _known, lambda manifest: _read(manifest, io))


def is_readable(delete_file: str) -> bool:
    """Whether a delete file's positions can be read in process."""
    return delete_file.endswith((".parquet", PUFFIN))


def _with_deletes(files: Iterable[DataFile], deleting: list[ManifestFile], io: FileIO) -> TableFiles:
    def read(manifest: ManifestFile) -> tuple[tuple[str | None, int, str], ...]:
        return tuple(live_deletes(io.new_input(manifest.manifest_path)))

    deleted, own, count, counted = Counter[str](), defaultdict[str, list[str]](list), 0, True
    for path, rows, delete_file in _listed(deleting, _known_deletes, read):
        count += 1
        if path is None:
            counted = False
            continue
        deleted[path] += rows
        own[path].append(delete_file)
    counted = counted and all(len(some) == 1 and is_readable(some[0]) for some in own.values())
    data = tuple(
        replace(file, deleted=deleted[file.path], deletes=tuple(own.pop(file.path))) if file.path in own else file
        for file in files
    )
    return TableFiles(data, count, sum(map(len, own.values())), counted)


def _listed(
    manifests: list[ManifestFile], known: ManifestCache[T], read: Callable[[ManifestFile], tuple[T, ...]]
) -> Iterator[T]:
    """The entries of manifests; those that are not cached are read in parallel."""
    found = {m.manifest_path: known.get(m.manifest_path) for m in manifests}
    new = [m for m in manifests if found[m.manifest_path] is None]
    each = ExecutorFactory.get_or_create().map if len(new) > 1 else map
    for manifest, listed in zip(new, each(read, new), strict=True):
        known.put(manifest.manifest_path, listed)
        found[manifest.manifest_path] = listed
    for listed_by_one in found.values():
        yield from listed_by_one or ()


def _read(manifest: ManifestFile, io: FileIO) -> tuple[DataFile, ...]:
    spec_id = manifest.partition_spec_id
    groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    files: list[DataFile] = []
    for path, size, rows, partition, number in live_files(io.new_input(manifest.manifest_path)):
        group = groups.setdefault(key := (spec_id, *map(_hashable, partition)), key)
        number = (manifest.sequence_number or 0) if number is None else number
        files.append(DataFile(path, size, rows, group, sequence_number=number))
    return tuple(files)


def _compared(value: Any) -> Any:
    """A partition value as PyIceberg's expressions expect it: they compare uuids as bytes, though it reads UUIDs."""
    return value.bytes if isinstance(value, UUID) else value


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
