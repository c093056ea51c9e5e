"""UNDO: reverse one earlier change of rows, and keep the changes that came later."""

import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

from service.catalog.lineage import edit_states, oldest_ancestor
from service.catalog.tables import Table
from service.commits.backups import backup_of
from service.commits.commit import CommitResult, Commits, retried_if_changed
from service.commits.compared import rows_to_read
from service.commits.holds import SnapshotHolds
from service.edits.edits import SHOWN, refuse_missing_required
from service.edits.plans import UndoPlan, UndoPlanner, UndoTarget, standing_undos
from service.edits.trace import UndoneChange
from service.edits.undo_few import find_few
from service.engine.iceberg.swap import Tag
from service.engine.jobs.edits.preview import RowSample
from service.engine.jobs.edits.reversal import UndoFigures
from service.engine.jobs.undo import FoundUndo, find_undo
from service.engine.session.engine import Engine, Session
from service.engine.session.tags import marked
from service.errors import InvalidRequest, RequestNotFound, UndoConflict, UndoTooLate
from service.ledger.ledger import NO_SNAPSHOT, UNFINISHED, Batch
from service.ledger.undo_records import UndoRecords
from service.model.call import Call
from service.model.names import EDIT_PROPERTY
from service.model.progress import RowProgress
from service.model.properties import edit_policy
from service.model.times import HOUR_MS, now_ms
from service.settings import EditSettings

OPERATION = "UNDO"
_MOST_NAMED = 20
REASON = "UNDO may need it"
# Every commit takes longer the more snapshots there are.
_MOST_STATES = 100
# Changes that leave every row as it is.
_LAYOUT_ONLY = ("COMPACT", "REPARTITION")


@dataclass(frozen=True)
class UndoCounts:
    """The numbers of rows and files of an UNDO."""

    removed: int = 0
    """Rows that the change had added."""
    restored: int = 0
    """Rows that it had removed."""
    files: int = 0
    operation: str = ""
    """The operation that was undone."""


@dataclass
class UndoProgress(RowProgress):
    """The progress of an UNDO. `records_done` counts the rows that were read to compare them, then those that were
    written again."""

    files_total: int | None = None
    """Data files that are rewritten or removed."""

    def end(self) -> None:
        """All of it is done."""
        self.done(self.records_total or 0)
        self.phase = "done"


@dataclass(frozen=True)
class UndoOutcome:
    commit: CommitResult
    counts: UndoCounts
    backup: str | None = None
    samples: tuple[RowSample, ...] | None = None


@dataclass(frozen=True)
class Undos:
    """Undoes changes of tables."""

    settings: EditSettings
    engine: Engine
    commits: Commits
    notes: UndoRecords
    holds: SnapshotHolds

    def preview(self, table: Table, request_id: str, snapshot_id: int | None, call: Call) -> UndoOutcome:
        """What undoing a change would do."""
        with self.holds.building_on(table.uuid, oldest_ancestor(table)):
            target = self._target(table, request_id, snapshot_id)
            progress, jobs = call.progress(UndoProgress), f"undo-{uuid.uuid4().hex}"
            with self.engine.lend(call) as session, marked(session, jobs):
                planner = self._planner(table, session)
                plan = planner.plan(target)
                with self._found(planner, plan, call, jobs) as found:
                    samples = found.samples(SHOWN)
                self._check(planner, target, plan, found.figures)
        progress.end()
        return UndoOutcome(CommitResult(table, None), _counts(target, found.figures), samples=tuple(samples))

    def run(
        self, table: Table, request_id: str, snapshot_id: int | None, tag: Callable[[Table], Tag | None], call: Call
    ) -> UndoOutcome:
        """Undo a change."""
        undoes = target = None
        if not self.commits.earlier_batch(call):
            target = self._target(table, request_id, snapshot_id)
            undoes = UndoneChange(target.batch.batch, request_id).text
        made, progress = UndoCounts(), call.progress(UndoProgress)

        @retried_if_changed()
        def change(current: Table, batch: str) -> None:
            nonlocal made
            assert target is not None  # what happened before is not done again
            self._refuse_undone(current, target)
            backup, jobs = tag(current), f"undo-{batch}"
            with self.engine.lend(call) as session, marked(session, jobs):
                planner = self._planner(current, session)
                plan = planner.plan(target)
                with self._found(planner, plan, call, jobs) as found:
                    self._check(planner, target, plan, found.figures)
                    made = _counts(target, found.figures)
                    if found.figures.changes_rows:
                        progress.phase, progress.files_total = "rewriting", made.files
                        progress.restart()
                        progress.expect(found.rows_to_write, partial(self.engine.rows_written, jobs))
                        summary = {EDIT_PROPERTY: json.dumps(asdict(made))}
                        found.publish(batch, summary, self.commits.commit_gate(batch, call), backup)

        commit = self.commits.commit(table, OPERATION, call, change, undoes=undoes)
        progress.end()
        if commit.snapshot is None:
            return UndoOutcome(commit, made)
        made = UndoCounts(**json.loads(commit.snapshot.summary[EDIT_PROPERTY]))
        return UndoOutcome(commit, made, backup_of(commit.snapshot))

    @contextmanager
    def _found(self, planner: UndoPlanner, plan: UndoPlan, call: Call, jobs: str) -> Iterator[FoundUndo]:
        """What an UNDO does, with progress by the rows that the Spark jobs with a tag have read."""
        progress = call.progress(UndoProgress)
        progress.phase = "comparing"
        few = find_few(planner.table, plan.reversal, call.check)
        if few is None:
            progress.restart()
            rows = rows_to_read(planner.table, plan.reversal.read)
            progress.expect(rows, partial(self.engine.rows_read, jobs))
        with find_undo(planner.session, plan.reversal, few) as found:
            yield found

    def _planner(self, table: Table, session: Session) -> UndoPlanner:
        row_level = edit_policy(table.properties, self.settings).row_level
        return UndoPlanner(table, self.notes, session, row_level)

    def keeps(self, table: Table) -> dict[int, str]:
        """The snapshots before and after the newest changes that can be undone, each with the reason why it stays."""
        hours = edit_policy(table.properties, self.settings).undo_retention_hours
        states = dict.fromkeys(edit_states(table, now_ms() - hours * HOUR_MS) if hours else (), REASON)
        return dict(itertools.islice(states.items(), _MOST_STATES))

    def _target(self, table: Table, request_id: str, snapshot_id: int | None) -> UndoTarget:
        """The change to undo; raises if it cannot be undone."""
        batch = self._batch(table, request_id, snapshot_id)
        if batch.operation in _LAYOUT_ONLY:
            raise InvalidRequest(
                f"request {request_id!r} was a {batch.operation}, which changed no row; there is nothing to undo",
                field="request_id",
            )
        hours = edit_policy(table.properties, self.settings).undo_retention_hours
        age_h = (now_ms() - batch.begun_ms) / HOUR_MS
        if age_h >= hours:
            raise UndoTooLate(
                f"request {request_id!r} was made {age_h:.1f} hours ago, and changes of this table can be undone for "
                f"{hours} (undo_retention_hours); restore a backup, or change the rows again",
                field="request_id",
                details={"undo_retention_hours": hours},
            )
        target = UndoTarget(batch, request_id)
        self._refuse_undone(table, target)
        return target

    def _batch(self, table: Table, request_id: str, snapshot_id: int | None) -> Batch:
        hours = edit_policy(table.properties, self.settings).undo_retention_hours
        # Searching the changes of a month takes a while.
        lately = now_ms() - hours * HOUR_MS
        found = self.notes.by_request(table.uuid, request_id, lately) or self.notes.by_request(table.uuid, request_id)
        unfinished = [noted.batch for noted in found if noted.state in UNFINISHED]
        for batch in unfinished:
            self.commits.batches.committed(batch)
        if unfinished:
            found = self.notes.by_request(table.uuid, request_id, found[0].begun_ms)
        done = [b for b in found if b.state == "done" and b.snapshot_id not in (None, NO_SNAPSHOT)]
        if snapshot_id is not None:
            done = [b for b in done if b.snapshot_id == snapshot_id]
        if len(done) == 1 or (done and all(b.operation in _LAYOUT_ONLY for b in done)):
            return done[0]
        if done:
            ids = [b.snapshot_id for b in done]
            raise InvalidRequest(
                f"request id {request_id!r} was given to {len(done)} changes of table {table.name.table!r}; choose "
                f"one by snapshot_id: {', '.join(map(str, ids[-_MOST_NAMED:]))}",
                field="snapshot_id",
                details={"snapshot_ids": [str(i) for i in ids[-_MOST_NAMED:]]},
            )
        if found and snapshot_id is None:
            what = f"was a {found[-1].operation} that changed no row of table {table.name.table!r}"
            raise InvalidRequest(f"request {request_id!r} {what}; there is nothing to undo", field="request_id")
        made = "" if snapshot_id is None else f" that made snapshot {snapshot_id}"
        raise RequestNotFound(
            f"no change of table {table.name.table!r}{made} has the request id {request_id[:200]!r}; it is the "
            "metadata.request_id of the change's response, and HISTORY lists them",
            field="request_id",
        )

    def _refuse_undone(self, table: Table, target: UndoTarget) -> None:
        for batch, undone in standing_undos(table, self.notes).items():
            if undone == UndoneChange(target.batch.batch, target.request_id):
                by = self.notes.ids_of(batch)
                raise UndoConflict(
                    f"request {target.request_id!r} was undone already, by request {', '.join(map(repr, by))}; undo "
                    "that one to restore this change",
                    field="request_id",
                    details={"request_ids": by},
                )

    def _check(self, planner: UndoPlanner, target: UndoTarget, plan: UndoPlan, found: UndoFigures) -> None:
        """Raise if the change must not be undone."""
        ids: list[str] = [name for n in found.touched for name in planner.names(plan.suspects[n])]
        missing = found.came - found.removed
        if missing and not ids:
            ids = [name for commit in plan.later if commit.adds_deletes for name in planner.names(commit)]
        what = []
        if ids or missing:
            what.append("later changes touched its rows")
        if found.met is not None:
            ids += planner.adding_requests(target, plan, found.met)
            what.append("rows that would come back meet later rows with the same key")
        if not what:
            refuse_missing_required(planner.table, OPERATION, found.lacking)
            return
        named = list(dict.fromkeys(ids))
        who = ", ".join(named[:_MOST_NAMED]) or "which is no longer known"
        raise UndoConflict(
            f"request {target.request_id!r} cannot be undone: {' and '.join(what)} ({who}); undo those first, newest "
            "first, or change the rows by UPDATE or DELETE",
            field="request_id",
            details={"request_ids": named, "records_missing": missing},
        )


def _counts(target: UndoTarget, found: UndoFigures) -> UndoCounts:
    return UndoCounts(found.removed, found.restored, len(found.files), target.operation)
