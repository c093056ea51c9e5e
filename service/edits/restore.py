"""A table made to hold what a backup, or any earlier snapshot, holds, as one more change of it; its history stays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.catalog.files import has_deletes, list_files
from service.catalog.lineage import changes_since, derived_since, required_since
from service.catalog.tables import Snapshot, Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.commits.holds import Holds
from service.edits.backups import backup_of, find
from service.edits.lacking import refuse_lacking
from service.engine.engine import Engine
from service.engine.past import nulls_among
from service.engine.pick import Files
from service.engine.restore import Difference, Restore, compare, restore
from service.engine.swap import Moved, Tag
from service.errors import CommitConflict
from service.names import RESTORED_PROPERTY

OPERATION = "RESTORE_BACKUP"
NOT_DONE = "the table holds what the backup holds already"
_BEFORE, _AFTER = RESTORED_PROPERTY, "firn-records-after"


@dataclass(frozen=True)
class Restored:
    """What a restore came to, or would."""

    restored: bool
    reason: str | None
    records_before: int
    records_after: int
    files_removed: int
    files_added: int
    backup: str | None
    snapshot_id: int | None
    made: Snapshot | None = None
    """The snapshot of the change, where it was made."""


@dataclass(frozen=True)
class Aim:
    """Which earlier state a table is to be made to hold, and what is asked and said of that."""

    operation: str
    state: Callable[[Table], int]
    """The snapshot, of the table as it is in its turn."""
    check: Callable[[Table], None] = lambda current: None
    """Refuses to go on from the table as it is in its turn."""
    said: Callable[[Table], Mapping[str, str]] = lambda current: {}
    """What the new snapshot's summary is to say beside the counts."""
    not_done: str = NOT_DONE
    """Why nothing is done where the rows are the same."""


@dataclass(frozen=True)
class Restores:
    """Restores tables from their backups."""

    engine: Engine
    commits: Commits
    holds: Holds

    def preview(self, table: Table, name: str) -> Restored:
        """What the restore of a backup would do."""
        return self.would_be(table, of_backup(name))

    def run(self, table: Table, name: str, tag: Tag | None, ask: Ask) -> Restored:
        """Make the table hold what its backup of this name holds, unless it does."""
        return self.make(table, of_backup(name), tag, ask)

    def would_be(self, table: Table, aim: Aim) -> Restored:
        """What `make` would do."""
        aim.check(table)
        with self.holds.reading(table.uuid, table.current_snapshot_id):
            found = self.differing(table, aim.state(table))
            self._refuse_lacking(table, found, aim)
            return _not_done(table, found, "this was a dry run", aim)

    def make(self, table: Table, aim: Aim, tag: Tag | None, ask: Ask) -> Restored:
        """Make the table hold an earlier state, unless it does."""
        found: Difference | None = None

        def change(current: Table, batch: str) -> None:
            nonlocal found
            aim.check(current)
            found = self.differing(current, aim.state(current))
            if not (found.back or found.gone):
                return
            self._refuse_lacking(current, found, aim)

            said = {_BEFORE: str(found.rows_before), _AFTER: str(found.rows_after), **aim.said(current)}
            leave = self.commits.leave(batch, ask)
            name, uuid, schema_id = current.spark_name, current.uuid, current.schema_id
            late = derived_since(current, found.backup_id)
            order = Restore(name, uuid, schema_id, found, batch, leave, tag, said, late)
            try:
                self.engine.run(restore, order)
            except Moved as e:
                raise CommitConflict(f"{e}; send the request again") from e

        effect = self.commits.commit(table, aim.operation, ask, change)
        if effect.snapshot is None:
            assert found is not None  # without a commit it was looked for
            return _not_done(effect.after, found, aim.not_done, aim)
        return _done(effect.snapshot)

    def difference(self, table: Table, name: str) -> Difference:
        """What tells the table from what its backup of this name holds."""
        return self.differing(table, find(table, name).snapshot_id)

    def differing(self, table: Table, backup_id: int) -> Difference:
        """What tells the table from an earlier state of it; none where the rows must be the same."""
        current_id = table.current_snapshot_id
        if has_deletes(table, backup_id) or has_deletes(table):
            found = self.engine.run(compare, table.spark_name, backup_id, current_id)
        else:
            kept = {file.path: file.rows for file in list_files(table, backup_id).data}
            now = {file.path: file.rows for file in list_files(table).data}
            back, gone = frozenset(kept.keys() - now.keys()), frozenset(now.keys() - kept.keys())
            found = Difference(backup_id, current_id, back, gone, sum(now.values()), sum(kept.values()))
        if changes_since(table, backup_id) == 0:
            return found.without_files()
        return found

    def _refuse_lacking(self, table: Table, found: Difference, aim: Aim) -> None:
        required = required_since(table)
        if found.back and required:
            files = Files(found.backup_id, found.back)
            refuse_lacking(table, aim.operation, self.engine.run(nulls_among, table.spark_name, files, required))


def of_backup(name: str) -> Aim:
    """The state that a backup keeps."""
    return Aim(OPERATION, lambda current: find(current, name).snapshot_id)


def _not_done(table: Table, found: Difference, reason: str, aim: Aim) -> Restored:
    return Restored(
        False,
        reason if found.back or found.gone else aim.not_done,
        found.rows_before,
        found.rows_after,
        len(found.gone),
        len(found.back),
        None,
        table.current_snapshot_id,
    )


def _done(snapshot: Snapshot) -> Restored:
    """What the snapshot says of the restore that made it: that outlives an answer that was lost."""
    return Restored(
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
