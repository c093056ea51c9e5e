"""A table's files, as its metadata lists them."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

from service.catalog.manifests import live_files
from service.catalog.tables import Table
from service.catalog.translate import translated


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of a snapshot; `group` is equal for files that a compaction may merge."""

    path: str
    bytes: int
    rows: int
    group: tuple[Any, ...]


@dataclass(frozen=True)
class TableFiles:
    """What a snapshot consists of."""

    data: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.data)


class Known:
    """What manifests list, by their paths: a manifest never changes. At most so many files; the least used go first."""

    def __init__(self, most_files: int) -> None:
        self._most = most_files
        self._lock = threading.Lock()
        self._by_path: OrderedDict[str, tuple[DataFile, ...]] = OrderedDict()
        self._weight = 0

    def get(self, path: str) -> tuple[DataFile, ...] | None:
        with self._lock:
            found = self._by_path.get(path)
            if found is not None:
                self._by_path.move_to_end(path)
            return found

    def put(self, path: str, files: tuple[DataFile, ...]) -> None:
        with self._lock:
            if path in self._by_path or len(files) >= self._most:
                return
            self._by_path[path] = files
            self._weight += len(files) + 1
            while self._weight > self._most:
                _, gone = self._by_path.popitem(last=False)
                self._weight -= len(gone) + 1


# One for the process, as manifests' paths are unique in the world. A file takes about 300 bytes.
_known = Known(100_000)


def list_files(table: Table, snapshot_id: int | None = None) -> TableFiles:
    """Every data file of the current (or the named) snapshot; only manifests that are new to us are read."""
    snapshot = _snapshot(table, snapshot_id)
    if snapshot is None:
        return TableFiles(())
    with translated():
        return TableFiles(tuple(_data_files(snapshot.manifests(table.iceberg.io), table.iceberg.io)))


def matching_files(table: Table, filter_json: str | None) -> tuple[DataFile, ...]:
    """The current data files in partitions that a filter (Iceberg expression JSON) may match."""
    if filter_json is None:
        return list_files(table).data
    row_filter = BooleanExpression.model_validate_json(filter_json)
    with translated():
        tasks = table.iceberg.scan(row_filter=row_filter).plan_files()
        return tuple(_planned(task.file) for task in tasks)


def count_rows(table: Table) -> int:
    """The current row count; reads data only where delete files make the metadata's count too high."""
    snapshot = _snapshot(table, None)
    if snapshot is None:
        return 0
    with translated():
        manifests = snapshot.manifests(table.iceberg.io)
        if any(_has_deletes(manifest) for manifest in manifests):
            return table.iceberg.scan().count()
        return sum(file.rows for file in _data_files(manifests, table.iceberg.io))


def has_deletes(table: Table) -> bool:
    """Whether some rows of the current data files are deleted by files beside them."""
    snapshot = _snapshot(table, None)
    with translated():
        return snapshot is not None and any(map(_has_deletes, snapshot.manifests(table.iceberg.io)))


def _snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    iceberg = table.iceberg
    return iceberg.current_snapshot() if snapshot_id is None else iceberg.snapshot_by_id(snapshot_id)


def _has_deletes(manifest: ManifestFile) -> bool:
    lists_live = manifest.has_added_files() or manifest.has_existing_files()
    return manifest.content == ManifestContent.DELETES and lists_live


def _data_files(manifests: list[ManifestFile], io: FileIO) -> Iterator[DataFile]:
    listing = [m for m in manifests if m.content == ManifestContent.DATA]
    found = {m.manifest_path: _known.get(m.manifest_path) for m in listing}
    new = [m for m in listing if found[m.manifest_path] is None]
    read = ExecutorFactory.get_or_create().map if len(new) > 1 else map
    for manifest, files in zip(new, read(lambda m: _read(m, io), new), strict=True):
        _known.put(manifest.manifest_path, files)
        found[manifest.manifest_path] = files
    for files_of_one in found.values():
        yield from files_of_one or ()


def _read(manifest: ManifestFile, io: FileIO) -> tuple[DataFile, ...]:
    spec_id = manifest.partition_spec_id
    groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    files: list[DataFile] = []
    for path, size, rows, partition in live_files(io.new_input(manifest.manifest_path)):
        group = (spec_id, *map(_hashable, partition))
        files.append(DataFile(path, size, rows, groups.setdefault(group, group)))
    return tuple(files)


def _planned(file: IcebergDataFile) -> DataFile:
    partition = tuple(file.partition[i] for i in range(len(file.partition)))
    group = (file.spec_id, *map(_hashable, partition))
    return DataFile(file.file_path, file.file_size_in_bytes, file.record_count, group)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
