"""A table's files, as its metadata lists them."""

from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent

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


def list_files(table: Table, snapshot_id: int | None = None) -> TableFiles:
    """Every data file of the current (or the named) snapshot, from its manifests."""
    iceberg = table.iceberg
    snapshot = iceberg.current_snapshot() if snapshot_id is None else iceberg.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return TableFiles(())
    data: list[DataFile] = []
    with translated():
        for manifest in snapshot.manifests(iceberg.io):
            for entry in manifest.fetch_manifest_entry(iceberg.io, discard_deleted=True):
                if entry.data_file.content == DataFileContent.DATA:
                    data.append(_data_file(entry.data_file, manifest.partition_spec_id))
    return TableFiles(tuple(data))


def matching_files(table: Table, filter_json: str | None) -> tuple[DataFile, ...]:
    """The current data files in partitions that a filter (Iceberg expression JSON) may match."""
    row_filter: BooleanExpression = AlwaysTrue()
    if filter_json is not None:
        row_filter = BooleanExpression.model_validate_json(filter_json)
    with translated():
        tasks = table.iceberg.scan(row_filter=row_filter).plan_files()
        return tuple(_data_file(task.file, task.file.spec_id) for task in tasks)


def count_rows(table: Table) -> int:
    """The current row count; reads data only where delete files make the metadata's count too high."""
    with translated():
        return table.iceberg.scan().count()


def _data_file(file: IcebergDataFile, spec_id: int) -> DataFile:
    partition = tuple(file.partition[i] for i in range(len(file.partition)))
    return DataFile(file.file_path, file.file_size_in_bytes, file.record_count, (spec_id, *map(_hashable, partition)))


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
