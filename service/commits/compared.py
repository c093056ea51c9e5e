"""The rows in which two states of a table may differ, by metadata: whole files, and places in files of both. If they
are few, they are read in this process."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.data_files import DataFile, TableFiles, list_files
from service.catalog.files.few import FewRows
from service.catalog.files.positions import rows_between
from service.catalog.lineage import commits_between
from service.catalog.tables import Table
from service.engine.iceberg.scan_tasks import NO_FILES, SnapshotFiles
from service.engine.jobs.dynamic.job import SnapshotRange
from service.engine.session.rows import plain_columns
from service.model.schema.types import TableSchema


def differing_rows(table: Table, one_id: int, other_id: int) -> tuple[SnapshotFiles, SnapshotFiles] | None:
    """The rows that only one of two snapshots has, by files and places. Rewritten rows are among both.

    None if a snapshot has delete files that may apply to several files: then only reading them shows what they delete.
    """
    one, other = list_files(table, one_id), list_files(table, other_id)
    if not (one.counted and other.counted):
        return None
    return _only(table, one_id, one, other), _only(table, other_id, other, one)


def changes_between(table: Table, old_id: int | None, new_id: int | None) -> tuple[SnapshotRange, ...]:
    """The ranges from an earlier snapshot to a later one in which rows may have changed; none if no row has.

    The history is cut at rewrites, whose files have the rows of others; if snapshots in between have expired, it is
    one range. Then rewritten rows are read, too, on both sides.
    """
    if new_id is None or old_id == new_id:
        return ()
    ranges = (_range(table, *ends) for ends in _without_rewrites(table, old_id, new_id))
    return tuple(one for one in ranges if one.differing is None or any(side.touched for side in one.differing))


def _range(table: Table, old_id: int | None, new_id: int) -> SnapshotRange:
    if old_id is not None:
        return SnapshotRange(old_id, new_id, differing_rows(table, old_id, new_id))
    paths = frozenset(file.path for file in list_files(table, new_id).data)
    return SnapshotRange(None, new_id, (NO_FILES, SnapshotFiles(new_id, paths)))


def _without_rewrites(table: Table, old_id: int | None, new_id: int) -> Iterator[tuple[int | None, int]]:
    """The first and last snapshots of each part of the history between two rewrites."""
    commits = None if old_id is None else commits_between(table, old_id, new_id)
    if commits is None:
        yield old_id, new_id
        return
    start = end = old_id
    for commit in reversed(commits):
        if commit.rewrites:
            if end is not None and start != end:
                yield start, end
            start = end = commit.snapshot_id
        else:
            end = commit.snapshot_id
    if end is not None and start != end:
        yield start, end


def few_rows(
    table: Table,
    schema_id: int,
    schema: TableSchema,
    sides: Iterable[SnapshotFiles],
    check: Callable[[], object] = lambda: None,
) -> list[pa.Table] | None:
    """The rows of some states of a table, with columns of one of its schemas; None if Spark should read them."""
    reader = FewRows(table, schema_id, plain_columns(schema), check)
    try:
        return [read_rows_of(reader, side) for side in sides]
    except (TooManyRows, UnreadableFile):
        return None


def read_rows_of(reader: FewRows, files: SnapshotFiles) -> pa.Table:
    """The rows that some files of a snapshot name."""
    whole, some = reader.whole(files.snapshot_id, files.paths), reader.places(files.places)
    return pa.concat_tables([whole.rows, some.rows])


def rows_to_read(table: Table, sides: Iterable[SnapshotFiles]) -> int:
    """How many rows Spark reads of these files, by the metadata."""
    return sum(file.rows for side in sides for file in files_of(table, side))


def files_of(table: Table, side: SnapshotFiles) -> list[DataFile]:
    """The data files that some files of a snapshot name, whole or in part."""
    touched = side.touched
    return [file for file in list_files(table, side.snapshot_id).data if file.path in touched] if touched else []


def _only(table: Table, snapshot_id: int, one: TableFiles, other: TableFiles) -> SnapshotFiles:
    shared = {file.path for file in other.data}
    paths = frozenset(file.path for file in one.data if file.path not in shared)
    return SnapshotFiles(snapshot_id, paths, rows_between(table, one, other))
