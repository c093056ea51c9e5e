"""ROLLBACK: make a table hold what it held at an earlier snapshot, by one more change of it."""

from dataclasses import dataclass, replace

from service.catalog.as_of import snapshot_as_of
from service.catalog.lineage import ancestors, row_changes_between
from service.catalog.tables import Table
from service.commits.holds import SnapshotHolds
from service.edits.replayed import ReplayedRows
from service.edits.restore import RestoreOutcome, Restores, RestoreTarget
from service.engine.iceberg.swap import Tag
from service.errors import PlanStale
from service.model.as_of import AsOf
from service.model.call import Call

OPERATION = "ROLLBACK"
NOT_DONE = "the table holds what it held then already"
_TO, _UNDONE = "firn-rolled-back-to", "firn-rolled-back-changes"


@dataclass(frozen=True)
class RollbackTarget:
    """Which state to go back to, and since which state nothing may have changed."""

    as_of: AsOf
    expected_id: int | None = None
    """No rows may have changed since this snapshot."""


@dataclass(frozen=True)
class RollbackOutcome:
    """What a rollback did, or would do."""

    restored: RestoreOutcome
    to_id: int
    from_id: int | None
    """The state that it replaced."""
    changes: int | None
    """How many commits changed rows between the two; None if one was not built on the other, or it is unknown."""
    warnings: tuple[str, ...] = ()
    """About replayed rows that it takes away."""


@dataclass(frozen=True)
class Rollbacks:
    """Rolls tables back."""

    restores: Restores
    holds: SnapshotHolds
    replayed: ReplayedRows

    def run(
        self, table: Table, wanted: RollbackTarget, tag: Tag | None, call: Call, *, dry_run: bool
    ) -> RollbackOutcome:
        """Make the table hold what it held at a snapshot, unless it does; or preview that."""
        target = rollback_target(wanted)
        # After an earlier attempt with the same key, the snapshot may have expired.
        held = None if call.earlier else target.state(table)
        with self.holds.reading(table.uuid, held):
            restored = (
                self.restores.preview(table, target, call) if dry_run else self.restores.run(table, target, tag, call)
            )
            outcome = _outcome(table, restored, target)
        if not (dry_run or restored.restored):
            return outcome
        warnings = self.replayed.lost_by_return(table, outcome.to_id, outcome.from_id)
        return replace(outcome, warnings=tuple(warnings))


def rollback_target(wanted: RollbackTarget) -> RestoreTarget:
    """The state that a rollback goes back to, and what is checked before it."""

    def state(current: Table) -> int:
        return snapshot_as_of(current, wanted.as_of).snapshot_id

    def check(current: Table) -> None:
        if wanted.expected_id is None:
            return
        changes = row_changes_between(current, wanted.expected_id)
        if changes != 0:
            raise PlanStale(
                f"{_stale(current, wanted.expected_id, changes)}; nothing was rolled back; look at the later changes, "
                f"and send expected_snapshot_id: {current.current_snapshot_id}",
                field="expected_snapshot_id",
            )

    def summary(current: Table) -> dict[str, str]:
        changes = row_changes_between(current, state(current))
        return {_TO: str(state(current))} | ({} if changes is None else {_UNDONE: str(changes)})

    return RestoreTarget(OPERATION, state, check, summary, NOT_DONE)


def _stale(table: Table, expected_id: int, changes: int | None) -> str:
    """Why the expected snapshot no longer shows what a rollback would discard."""
    if changes is not None:
        return f"rows were changed since snapshot {expected_id}"
    if expected_id in ancestors(table):
        return f"whether rows were changed since snapshot {expected_id} is unknown, as snapshots between have expired"
    return f"the table is not built on snapshot {expected_id}"


def _outcome(table: Table, restored: RestoreOutcome, target: RestoreTarget) -> RollbackOutcome:
    if restored.made is None:
        to_id = target.state(table)
        return RollbackOutcome(restored, to_id, restored.snapshot_id, row_changes_between(table, to_id))
    summary = restored.made.summary
    changes = int(summary[_UNDONE]) if _UNDONE in summary else None
    return RollbackOutcome(restored, int(summary[_TO]), restored.made.parent_id, changes)
