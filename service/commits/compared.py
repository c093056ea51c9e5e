"""The rows in which two states of a table may differ, by metadata: whole files, and places in files of both."""

from service.catalog.files.data_files import TableFiles, list_files
from service.catalog.files.positions import rows_between
from service.catalog.tables import Table
from service.engine.iceberg.scan_tasks import SnapshotFiles


def differing_rows(table: Table, one_id: int, other_id: int) -> tuple[SnapshotFiles, SnapshotFiles] | None:
    """The rows that only one of two snapshots has, by files and places. Rewritten rows are among both.

    None if a snapshot has delete files that may apply to several files: then only reading them shows what they delete.
    """
    one, other = list_files(table, one_id), list_files(table, other_id)
    if not (one.counted and other.counted):
        return None
    return _only(table, one_id, one, other), _only(table, other_id, other, one)


def _only(table: Table, snapshot_id: int, one: TableFiles, other: TableFiles) -> SnapshotFiles:
    shared = {file.path for file in other.data}
    paths = frozenset(file.path for file in one.data if file.path not in shared)
    return SnapshotFiles(snapshot_id, paths, rows_between(table, one, other))
