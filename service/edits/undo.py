"""UNDO: one earlier change's rows taken back, and whatever came later kept."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from service.catalog.lineage import oldest
from service.catalog.tables import Table
from service.commits.ask import Ask
from service.commits.commit import Commits, Effect
from service.commits.holds import Holds
from service.commits.unsettled import NO_SNAPSHOT
from service.edits.backups import backup_of
from service.edits.edits import SHOWN
from service.edits.lacking import refuse_lacking
from service.edits.plans import Aim, Plan, Planner, standing_undos
from service.edits.trace import Undone
from service.engine.edit import Sample
from service.engine.engine import Engine
from service.engine.swap import Moved, Tag
from service.engine.undo import Reversed, UndoOrder, apply_undo, preview_undo
from service.errors import CommitConflict, InvalidRequest, RequestNotFound, UndoConflict, UndoTooLate
from service.ledger.ledger import UNFINISHED, Batch
from service.ledger.undos import UndoNotes
from service.names import EDIT_PROPERTY
from service.properties import edit_policy
from service.settings import EditSettings

OPERATION = "UNDO"
_HOUR_MS = 3_600_000
_NAMED = 20
# Changes that leave every row as it is.
_OF_LAYOUT = ("COMPACT", "REPARTITION")


@dataclass(frozen=True)
class Counts:
    """The figures of an UNDO."""

    removed: int = 0
    """Rows that the change had brought."""
    restored: int = 0
    """Rows that it had taken away."""
    files: int = 0
    operation: str = ""
    """What kind of change was taken back."""


@dataclass(frozen=True)
class Outcome:
    effect: Effect
    counts: Counts
    backup: str | None = None
    samples: tuple[Sample, ...] | None = None


@dataclass(frozen=True)
class Undos:
    """Takes changes back."""

    settings: EditSettings
    engine: Engine
    commits: Commits
    notes: UndoNotes
    holds: Holds

    def preview(self, table: Table, request_id: str, snapshot_id: int | None) -> Outcome:
        """What taking a change back would do."""
        with self.holds.building_on(table.uuid, oldest(table)):
            aim = self._aim(table, request_id, snapshot_id)
            plan = self._planner(table).plan(aim)
            found, samples = self.engine.run(preview_undo, plan.reversal, SHOWN)
            self._refuse(table, aim, plan, found)
        return Outcome(Effect(table, None), _counts(aim, found), samples=tuple(samples))

    def run(
        self, table: Table, request_id: str, snapshot_id: int | None, tag: Callable[[Table], Tag | None], ask: Ask
    ) -> Outcome:
        """Take a change back."""
        if self.commits.happened(ask):
            undoes = None
            aim = None
        else:
            aim = self._aim(table, request_id, snapshot_id)
            undoes = Undone(aim.batch.batch, request_id).text
        made = Counts()

        def change(current: Table, batch: str) -> None:
            nonlocal made
            assert aim is not None  # what happened before is not done again
            self._refuse_undone(current, aim)
            plan = self._planner(current).plan(aim)

            def check(found: Reversed) -> None:
                self._refuse(current, aim, plan, found)

            def said(found: Reversed) -> Mapping[str, str]:
                return {EDIT_PROPERTY: json.dumps(asdict(_counts(aim, found)))}

            order = UndoOrder(batch, said, check, self.commits.leave(batch, ask), tag(current))
            try:
                found = self.engine.run(apply_undo, plan.reversal, order)
            except Moved as e:
                raise CommitConflict(f"{e}; send the request again") from e
            made = _counts(aim, found)

        effect = self.commits.commit(table, OPERATION, ask, change, undoes=undoes)
        return _outcome(effect, made)

    def _aim(self, table: Table, request_id: str, snapshot_id: int | None) -> Aim:
        """The change that is meant; refused where it is none that can be taken back."""
        batch = self._batch(table, request_id, snapshot_id)
        if batch.operation in _OF_LAYOUT:
            raise InvalidRequest(
                f"request {request_id!r} was a {batch.operation}, which changed no row; there is nothing to undo",
                field="request_id",
            )
        hours = edit_policy(table.properties, self.settings).undo_retention_hours
        age_h = (time.time_ns() // 1_000_000 - batch.begun_ms) / _HOUR_MS
        if age_h >= hours:
            raise UndoTooLate(
                f"request {request_id!r} was made {age_h:.1f} hours ago, and changes of this table can be undone for "
                f"{hours} (undo_retention_hours); restore a backup, or change the rows anew",
                field="request_id",
                details={"undo_retention_hours": hours},
            )
        aim = Aim(batch, request_id)
        self._refuse_undone(table, aim)
        return aim

    def _batch(self, table: Table, request_id: str, snapshot_id: int | None) -> Batch:
        hours = edit_policy(table.properties, self.settings).undo_retention_hours
        # A month's changes take a while to look through.
        lately = time.time_ns() // 1_000_000 - hours * _HOUR_MS
        found = self.notes.by_request(table.uuid, request_id, lately) or self.notes.by_request(table.uuid, request_id)
        unfinished = [noted.batch for noted in found if noted.state in UNFINISHED]
        for batch in unfinished:
            self.commits.outcome(batch)
        if unfinished:
            found = self.notes.by_request(table.uuid, request_id, found[0].begun_ms)
        done = [b for b in found if b.state == "done" and b.snapshot_id not in (None, NO_SNAPSHOT)]
        if snapshot_id is not None:
            done = [b for b in done if b.snapshot_id == snapshot_id]
        if len(done) == 1 or (done and all(b.operation in _OF_LAYOUT for b in done)):
            return done[0]
        if done:
            ids = [b.snapshot_id for b in done]
            raise InvalidRequest(
                f"request id {request_id!r} was given to {len(done)} changes of table {table.name.table!r}; say which "
                f"by snapshot_id: {', '.join(map(str, ids[-_NAMED:]))}",
                field="snapshot_id",
                details={"snapshot_ids": ids[-_NAMED:]},
            )
        if found and snapshot_id is None:
            what = f"was a {found[-1].operation} that changed no row of table {table.name.table!r}"
            raise InvalidRequest(f"request {request_id!r} {what}; there is nothing to undo", field="request_id")
        made = "" if snapshot_id is None else f" that made snapshot {snapshot_id}"
        raise RequestNotFound(
            f"no change of table {table.name.table!r}{made} has the request id {request_id[:200]!r}; it is the "
            "metadata.request_id of the change's answer, and HISTORY lists those there are",
            field="request_id",
        )

    def _refuse_undone(self, table: Table, aim: Aim) -> None:
        for batch, undone in standing_undos(table, self.notes).items():
            if undone == Undone(aim.batch.batch, aim.request_id):
                by = self.notes.ids_of(batch)
                raise UndoConflict(
                    f"request {aim.request_id!r} was undone already, by request {', '.join(map(repr, by))}; undo that "
                    "one to have its rows back",
                    field="request_id",
                    details={"request_ids": by},
                )

    def _planner(self, table: Table) -> Planner:
        return Planner(table, self.notes, self.engine)

    def _refuse(self, table: Table, aim: Aim, plan: Plan, found: Reversed) -> None:
        planner = self._planner(table)
        ids: list[str] = [name for n in found.touched for name in planner.names(plan.suspects[n])]
        missing = found.came - found.removed
        if missing and not ids:
            ids = [name for commit in plan.deleting for name in planner.names(commit)]
        what = []
        if ids or missing:
            what.append("later changes touched its rows")
        if found.met is not None:
            ids += planner.bringers(aim, plan, found.met)
            what.append("rows that would come back meet later rows with the same key")
        if not what:
            refuse_lacking(table, OPERATION, found.lacking)
            return
        named = list(dict.fromkeys(ids))
        who = ", ".join(named[:_NAMED]) or "which cannot be told any more"
        raise UndoConflict(
            f"request {aim.request_id!r} cannot be undone: {' and '.join(what)} ({who}); undo those first, newest "
            "first, or change the rows by UPDATE or DELETE",
            field="request_id",
            details={"request_ids": named, "rows_missing": missing},
        )


def _counts(aim: Aim, found: Reversed) -> Counts:
    return Counts(found.removed, found.restored, len(found.files), aim.batch.operation)


def _outcome(effect: Effect, made: Counts) -> Outcome:
    if effect.snapshot is None:
        return Outcome(effect, made)
    return Outcome(effect, Counts(**json.loads(effect.snapshot.summary[EDIT_PROPERTY])), backup_of(effect.snapshot))
