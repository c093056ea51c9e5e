"""RESTORE_BACKUP: make a table hold what a backup or any earlier snapshot holds, by one more change of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from service.catalog.as_of import snapshot_as_of
from service.catalog.files.data_files import has_deletes, list_files
from service.catalog.lineage import derived_since, required_since, row_changes_between
from service.catalog.tables import Snapshot, Table
from service.commits.backups import backup_of, find
from service.commits.commit import Commits, retried_if_changed
from service.commits.compared import differing_rows
from service.commits.holds import SnapshotHolds
from service.edits.edits import refuse_missing_required
from service.engine.iceberg.scan_tasks import NO_FILES, SnapshotFiles
from service.engine.iceberg.swap import Tag
from service.engine.jobs.restore import RestoreDifference, RestoreJob, compare, count_writers, restore
from service.engine.session.engine import Engine
from service.engine.sql.past import count_nulls
from service.model.as_of import AsOf
from service.model.call import Call
from service.model.names import RESTORED_PROPERTY
from service.model.schema.ranges import ranges_of

OPERATION = "RESTORE_BACKUP"
NOT_DONE = "the table holds what the backup holds already"
# Fewer bytes of one partition are written into one file.
_ONE_FILE_BYTES = 64 << 20
_HELD = "the table holds what it held then already"
_BEFORE, _AFTER = RESTORED_PROPERTY, "firn-records-after"


@dataclass(frozen=True)
class RestoreOutcome:
    """What a restore did, or would do."""

    restored: bool
    reason: str | None
    records_before: int
    records_after: int
    files_removed: int
    files_added: int
    """In a preview it may be an estimate: the number of files that have the rows now."""
    backup: str | None
    snapshot_id: int | None
    made: Snapshot | None = None
    """The snapshot of the change, if there is one."""
    is_estimate: bool = False
    """Whether `files_added` is."""


@dataclass(frozen=True)
class RestoreTarget:
    """Which earlier state to restore, and what to check and record."""

    operation: str
    state: Callable[[Table], int]
    """The snapshot, given the table as it is once its lock is held."""
    check: Callable[[Table], None] = lambda current: None
    """Raises if the table must not be changed, given the table as it is once its lock is held."""
    summary: Callable[[Table], Mapping[str, str]] = lambda current: {}
    """Entries of the new snapshot's summary besides the counts."""
    not_done: str = NOT_DONE
    """The reason to give if the rows are the same already."""


@dataclass(frozen=True)
class Restores:
    """Restores tables to earlier states."""

    engine: Engine
    commits: Commits
    holds: SnapshotHolds

    def preview(self, table: Table, target: RestoreTarget, call: Call) -> RestoreOutcome:
        """What `run` would do."""
        target.check(table)
        with self.holds.reading(table.uuid, table.current_snapshot_id):
            found = self.differing(table, target.state(table), call)
            self._check(table, found, target, call)
            outcome = _not_done(table, found, "this was a dry run", target)
            added = self._files_to_add(table, found, call)
            return replace(outcome, is_estimate=True) if added is None else replace(outcome, files_added=added)

    def run(self, table: Table, target: RestoreTarget, tag: Tag | None, call: Call) -> RestoreOutcome:
        """Make the table hold an earlier state, unless it does."""
        found: RestoreDifference | None = None

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            nonlocal found
            target.check(current)
            found = self.differing(current, target.state(current), call)
            if not found.differs:
                return
            self._check(current, found, target, call)
            counts = {_BEFORE: str(found.rows_before), _AFTER: str(found.rows_after)}
            job = RestoreJob(
                current.spark_name,
                current.uuid,
                current.schema_id,
                found,
                batch,
                self.commits.commit_gate(batch, call),
                tag,
                {**counts, **target.summary(current)},
                derived_since(current, found.backup_id),
            )
            self.engine.run_for(call, restore, job)

        commit = self.commits.commit(table, target.operation, call, change)
        if commit.snapshot is None:
            assert found is not None  # without a commit it was looked for
            return _not_done(commit.after, found, target.not_done, target)
        # The outcome is what the snapshot says: a lost response is made again from that.
        snapshot = commit.snapshot
        return RestoreOutcome(
            True,
            None,
            snapshot.counted(_BEFORE),
            snapshot.counted(_AFTER),
            snapshot.counted("deleted-data-files"),
            snapshot.counted("added-data-files"),
            backup_of(snapshot),
            snapshot.snapshot_id,
            snapshot,
        )

    def differing(self, table: Table, backup_id: int, call: Call) -> RestoreDifference:
        """How the table differs from an earlier state of it; not at all if no rows have changed since."""
        current_id = table.current_snapshot_id
        apart = None if current_id is None else differing_rows(table, backup_id, current_id)
        kept, now = list_files(table, backup_id), list_files(table)
        if current_id is not None and apart is None:
            found = self.engine.run_for(call, compare, table.spark_name, backup_id, current_id)
        else:
            back, gone = apart or (SnapshotFiles(backup_id, frozenset(f.path for f in kept.data)), NO_FILES)
            removed = [file for file in now.data if file.path in gone.paths]
            found = RestoreDifference(
                *(backup_id, current_id, back.paths, gone.paths, now.live_rows, kept.live_rows),
                back_places=back.places,
                gone_places=gone.places,
                gone_rows={file.path: file.rows for file in removed},
                gone_live=sum(file.live_rows for file in removed),
            )
        return found.without_files() if row_changes_between(table, backup_id) == 0 else found

    def _files_to_add(self, table: Table, found: RestoreDifference, call: Call) -> int | None:
        """How many files a restore would write; None if only writing them shows that."""
        if not found.rows_back.touched:
            return 0
        back = [file for file in list_files(table, found.backup_id).data if file.path in found.back]
        if (
            sum(file.bytes for file in back) > _ONE_FILE_BYTES
            or has_deletes(table, found.backup_id)
            or found.back_places
        ):
            return None
        late = derived_since(table, found.backup_id)
        if not table.stored_partition:
            name, schema_id = table.spark_name, table.schema_id
            return self.engine.run_for(call, count_writers, name, schema_id, found, late)
        # The rows of a partition are written by one task, into one file.
        partitions = {file.group for file in back}
        moved = late or any(spec_id != table.spec_id for spec_id, *_ in partitions)
        return None if moved or ranges_of(table.properties) else len(partitions)

    def _check(self, table: Table, found: RestoreDifference, target: RestoreTarget, call: Call) -> None:
        """Raise if rows that come back have no value for a required column."""
        required = required_since(table)
        if found.rows_back.touched and required:
            lacking = self.engine.run_for(call, count_nulls, table.spark_name, found.rows_back, required)
            refuse_missing_required(table, target.operation, lacking)


def of_backup(name: str) -> RestoreTarget:
    """The state that a backup keeps."""
    return RestoreTarget(OPERATION, lambda current: find(current, name).snapshot_id)


def of_state(as_of: AsOf) -> RestoreTarget:
    """Any state of the table. After an earlier attempt with the same key, a time still means what it meant then."""
    return RestoreTarget(OPERATION, lambda current: snapshot_as_of(current, as_of).snapshot_id, not_done=_HELD)


def _not_done(table: Table, found: RestoreDifference, reason: str, target: RestoreTarget) -> RestoreOutcome:
    return RestoreOutcome(
        False,
        reason if found.differs else target.not_done,
        found.rows_before,
        found.rows_after,
        len(found.gone),
        len(found.rows_back.touched),
        None,
        table.current_snapshot_id,
    )
