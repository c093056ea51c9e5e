"""ROLLBACK: a table made to hold what it held at an earlier snapshot, as one more change of it."""

from dataclasses import dataclass

from service.catalog.lineage import ancestors, changes_since
from service.catalog.tables import Table
from service.commits.ask import Ask
from service.commits.holds import Holds
from service.edits.restore import Aim, Restored, Restores
from service.engine.swap import Tag
from service.errors import PlanStale
from service.moments import Moment

OPERATION = "ROLLBACK"
NOT_DONE = "the table holds what it held then already"
_TO, _UNDONE = "firn-rolled-back-to", "firn-rolled-back-changes"


@dataclass(frozen=True)
class Wanted:
    """Which state is to be the table's again, and from which it is to be left."""

    state: Moment
    field: str
    """Where the request names it."""
    expected_id: int | None = None
    """The snapshot that was looked at before: since then no rows must have changed."""


@dataclass(frozen=True)
class RolledBack:
    """What a rollback came to, or would."""

    restored: Restored
    to_id: int
    from_id: int | None
    """The state that was left."""
    changes: int | None
    """How many commits that changed rows lie between the two; None where the one was not built on the other, or nobody
    knows."""


@dataclass(frozen=True)
class Rollbacks:
    """Takes tables back to what they held."""

    restores: Restores
    holds: Holds

    def run(self, table: Table, wanted: Wanted, tag: Tag | None, ask: Ask, *, dry_run: bool) -> RolledBack:
        """Make the table hold what it held at a snapshot, unless it does; or see what that would do."""
        aim = aimed(wanted)
        # An attempt before, with the same key, may be all there is to tell of a snapshot that has expired since.
        target = None if ask.earlier else aim.state(table)
        with self.holds.reading(table.uuid, target):
            if dry_run:
                restored = self.restores.would_be(table, aim)
                return _told(table, restored, aim)
            return _told(table, self.restores.make(table, aim, tag, ask), aim)


def aimed(wanted: Wanted) -> Aim:
    """The state that a rollback goes back to, and what is looked at before."""

    def state(current: Table) -> int:
        return current.snapshot_as_of(wanted.state, wanted.field).snapshot_id

    def check(current: Table) -> None:
        if wanted.expected_id is None:
            return
        changes = changes_since(current, wanted.expected_id)
        if changes != 0:
            raise PlanStale(
                f"{_stale(current, wanted.expected_id, changes)}; nothing was rolled back; look at what came since, "
                f"and send expected_snapshot_id: {current.current_snapshot_id}",
                field="expected_snapshot_id",
            )

    def said(current: Table) -> dict[str, str]:
        changes = changes_since(current, state(current))
        return {_TO: str(state(current))} | ({} if changes is None else {_UNDONE: str(changes)})

    return Aim(OPERATION, state, check, said, NOT_DONE)


def _stale(table: Table, expected_id: int, changes: int | None) -> str:
    """Why a snapshot that was looked at says no more what a rollback would leave."""
    if changes is not None:
        return f"rows were changed since snapshot {expected_id}"
    if expected_id in ancestors(table):
        return f"whether rows were changed since snapshot {expected_id} is unknown, as snapshots between have expired"
    return f"the table is not built on snapshot {expected_id}"


def _told(table: Table, restored: Restored, aim: Aim) -> RolledBack:
    if restored.made is None:
        target = aim.state(table)
        return RolledBack(restored, target, restored.snapshot_id, changes_since(table, target))
    said = restored.made.summary
    changes = int(said[_UNDONE]) if _UNDONE in said else None
    return RolledBack(restored, int(said[_TO]), restored.made.parent_id, changes)
