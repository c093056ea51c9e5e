"""Restores the rows of a backup: removes files that only the table has, and rewrites rows that only the backup has.

A data file that was removed from a table is never added to it again. The format advises against it: a program that
expires old snapshots may delete a file with the snapshot that removed it, even if it was added again. So the rows are
written to new files, which also makes the old delete files unnecessary.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.position_deletes import Places
from service.engine.iceberg.replace import FileReplacement, replace_files
from service.engine.iceberg.row_replacement import RowReplacement, commit_rows
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import StagedFiles, readable, readable_files, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.iceberg.tables import as_if, current
from service.engine.session.java import each, iceberg_class
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.derived import fill
from service.engine.sql.past import under
from service.engine.sql.sql import identifier
from service.errors import CommitConflict, RowCountMismatch
from service.model.names import INGEST_COLUMNS, RESERVED_COLUMN_PREFIX
from service.model.schema.derived import DerivedColumn

# Rows are grouped by partition before they are written, so that many files become few. Sorting uses disk instead of
# heap, however many partitions there are.
_OPTIONS = {"distribution-mode": "hash", "fanout-enabled": "false"}


@dataclass(frozen=True)
class RestoreDifference:
    """How a state of a table differs from a backup, by data files."""

    backup_id: int
    current_id: int | None
    back: frozenset[str]
    """The backup's files with rows that the table lacks."""
    gone: frozenset[str]
    """The table's files with rows that the backup lacks."""
    rows_before: int
    rows_after: int
    """The backup's rows."""
    back_places: Places = field(default_factory=dict)
    """Rows of the backup that the table has deleted from files that both have."""
    gone_places: Places = field(default_factory=dict)
    """Rows of such files that the backup had deleted."""
    gone_rows: Mapping[str, int] | None = None
    """The rows of the files `gone`, by the metadata, if it says how many of them are deleted; else both places are
    unknown, and files with other delete files are among those that differ."""
    gone_live: int = 0
    """How many of these rows are not deleted."""

    @property
    def differs(self) -> bool:
        return bool(self.back or self.gone or self.back_places or self.gone_places)

    @property
    def rows_back(self) -> SnapshotFiles:
        """The rows that only the backup has."""
        return SnapshotFiles(self.backup_id, self.back, self.back_places)

    def without_files(self) -> "RestoreDifference":
        """The same, but without any differences."""
        return replace(self, back=frozenset(), gone=frozenset(), back_places={}, gone_places={})


@dataclass(frozen=True)
class RestoreJob:
    """A restore to commit."""

    table: str
    uuid: str
    schema_id: int
    difference: RestoreDifference
    batch: str
    gate: Gate
    tag: Tag | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    late: tuple[DerivedColumn, ...] = ()
    """Derived columns that the backup did not have."""


def compare(session: SparkSession, table: str, backup_id: int, current_id: int | None) -> RestoreDifference:
    """How a state differs from a backup, if either has delete files."""
    iceberg = current(session, table)
    held, now = _apart(iceberg, backup_id, current_id)
    before, after = (_count(session, iceberg, snapshot_id) for snapshot_id in (current_id, backup_id))
    return RestoreDifference(backup_id, current_id, held.paths, now.paths, before, after)


def apart(session: SparkSession, table: str, one_id: int, other_id: int) -> tuple[SnapshotFiles, SnapshotFiles]:
    """The files that only one of two snapshots has, or has with other delete files."""
    return _apart(current(session, table), one_id, other_id)


def _apart(iceberg: Any, one_id: int, other_id: int | None) -> tuple[SnapshotFiles, SnapshotFiles]:
    one, other = _deletes_of(iceberg, one_id), _deletes_of(iceberg, other_id)
    only_one, only_other = one.items() - other.items(), other.items() - one.items()
    return (
        SnapshotFiles(one_id, frozenset(path for path, _ in only_one)),
        SnapshotFiles(other_id or 0, frozenset(path for path, _ in only_other)),
    )


def restore(session: SparkSession, job: RestoreJob) -> int:
    """Restore a backup's rows in one commit on the state that was compared, and return the new snapshot's id.

    Raises CommitConflict if the table has changed since, and RowCountMismatch if the table would not have as many rows
    as the backup.
    """
    difference = job.difference
    target = CommitTarget(session, job.table, job.uuid, job.schema_id)
    iceberg = target.load()
    head = iceberg.currentSnapshot()
    _check_parent(difference, None if head is None else head.snapshotId())
    staged = _written(session, iceberg, job)
    if difference.gone_rows is not None:
        return commit_rows(target, _replacement(job, difference.gone_rows, staged), job.gate)
    old = void = None
    if difference.current_id is not None:
        old = scan_tasks.files_of(scan_tasks.tasks(iceberg, difference.current_id, difference.gone))
        void = _void(iceberg, difference.current_id, difference.gone)
    what = FileReplacement(
        job.batch,
        difference.current_id,
        old,
        staged.files,
        partial(_check_rows, session, iceberg, difference),
        void_deletes=void,
        in_parallel=True,
        summary=job.summary,
        tag=job.tag,
    )
    return replace_files(target, iceberg, what, job.gate, staged.discard)


def _replacement(job: RestoreJob, removed: Mapping[str, int], staged: StagedFiles) -> RowReplacement:
    found = job.difference
    gone = found.gone_live + sum(len(positions) for positions in found.gone_places.values())
    kept = found.rows_before - gone

    def check(snapshot: Any) -> None:
        _check_parent(found, snapshot.parentId())  # what came since the comparison must not be covered
        if kept + staged.records != found.rows_after:
            raise RowCountMismatch("the restored table", found.rows_after, kept + staged.records)

    return RowReplacement(
        *(job.batch, found.current_id, staged, found.rows_after - kept, found.gone_places, removed),
        summary=job.summary,
        tag=job.tag,
        check=check,
    )


def _check_parent(difference: RestoreDifference, snapshot_id: int | None) -> None:
    if snapshot_id != difference.current_id:
        raise CommitConflict("another writer changed the table in the meantime; send the request again")


def _check_rows(session: SparkSession, iceberg: Any, difference: RestoreDifference, snapshot: Any) -> None:
    """Check that a snapshot directly follows the compared state, and has as many rows as the backup."""
    _check_parent(difference, snapshot.parentId())
    rows = _live_rows(iceberg, snapshot)
    if rows is None:
        base = iceberg.operations().current()
        new = base.buildFrom(base).setBranchSnapshot(snapshot, "main").build()
        rows = _count(session, as_if(iceberg, new), snapshot.snapshotId())
    if rows != difference.rows_after:
        raise RowCountMismatch("the restored table", difference.rows_after, rows)


def _written(session: SparkSession, iceberg: Any, job: RestoreJob) -> StagedFiles:
    """Write the rows that only the backup has, with the table's current columns and partitioning."""
    if not job.difference.rows_back.touched:
        return StagedFiles(iceberg.io(), ())
    with _rows_back(session, iceberg, job.schema_id, job.difference, job.late) as rows:
        return stage_rows(iceberg, rows, _OPTIONS)


def count_writers(
    session: SparkSession, table: str, schema_id: int, difference: RestoreDifference, late: tuple[DerivedColumn, ...]
) -> int:
    """How many tasks would write the rows that only the backup has, if the table is not partitioned. Runs no job."""
    with _rows_back(session, current(session, table), schema_id, difference, late) as rows:
        return int(rows._jdf.queryExecution().toRdd().getNumPartitions())


@contextmanager
def _rows_back(
    session: SparkSession,
    iceberg: Any,
    schema_id: int,
    difference: RestoreDifference,
    late: tuple[DerivedColumn, ...],
) -> Iterator[DataFrame]:
    """The rows that only the backup has, with the table's current columns."""
    with readable_files(session, under(iceberg, schema_id), difference.rows_back) as source:
        names = [str(column.name()) for column in each(iceberg.schema().columns())]
        kept = [
            identifier(name) for name in names if name in INGEST_COLUMNS or not name.startswith(RESERVED_COLUMN_PREFIX)
        ]
        yield fill(session.sql(f"SELECT {', '.join(kept)} FROM {source}"), late)


def _void(iceberg: Any, snapshot_id: int, gone: frozenset[str]) -> Any:
    """The delete files of a state that only apply to data files that are removed."""
    found, io = iceberg_class("util.DeleteFileSet").create(), iceberg.io()
    for manifest in each(iceberg.snapshot(snapshot_id).deleteManifests(io)):
        reader = iceberg_class("ManifestFiles").readDeleteManifest(manifest, io, iceberg.specs())
        try:
            found.addAll(iceberg_class("util.DeleteFileSet").of(reader))
        finally:
            reader.close()
    if not found.isEmpty():
        for task in each(scan_tasks.tasks(iceberg, snapshot_id)):
            if str(task.file().location()) not in gone:
                found.removeAll(task.deletes())
    return found


def _live_rows(iceberg: Any, snapshot: Any) -> int | None:
    """A snapshot's number of rows by its manifests; None if there are delete files."""
    io = iceberg.io()
    if any(m.hasAddedFiles() or m.hasExistingFiles() for m in each(snapshot.deleteManifests(io))):
        return None
    return sum(int(m.addedRowsCount()) + int(m.existingRowsCount()) for m in each(snapshot.dataManifests(io)))


def _count(session: SparkSession, iceberg: Any, snapshot_id: int | None) -> int:
    """A state's number of rows; Spark counts those of files to which delete files apply."""
    if snapshot_id is None:
        return 0
    tasks = list(each(scan_tasks.tasks(iceberg, snapshot_id)))
    known = sum(int(task.file().recordCount()) for task in tasks if task.deletes().isEmpty())
    unsure = [task for task in tasks if not task.deletes().isEmpty()]
    if not unsure:
        return known
    with readable(iceberg, unsure) as source:
        return known + session.table(source).count()


def _deletes_of(iceberg: Any, snapshot_id: int | None) -> dict[str, frozenset[tuple[str, int | None]]]:
    """For each data file of a state, the delete files that apply to it."""
    if snapshot_id is None:
        return {}
    return {
        str(task.file().location()): frozenset((str(d.location()), d.contentOffset()) for d in each(task.deletes()))
        for task in each(scan_tasks.tasks(iceberg, snapshot_id))
    }
