"""A batch of WRITEs and edits: one row in the ledger, one Spark job, one commit; then the responses."""

import logging
from collections.abc import Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced

import pyarrow as pa

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.tables import Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.commits.small_files import NOT_CHECKED, SmallFileChecks
from service.engine.iceberg.swap import TableChanged
from service.engine.jobs.append import append, replace_rows
from service.engine.session.engine import Engine
from service.errors import (
    CatalogUnavailable,
    CommitConflict,
    EngineUnavailable,
    FirnError,
    KeyBusy,
    LedgerUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
    TooManyRequests,
    Unavailable,
)
from service.metrics.metrics import Metrics
from service.model.keyed.records import RequestPart, RequestRows, rows_of, rows_written
from service.model.properties import edit_policy
from service.model.row_marks import RowShares, share_rows
from service.model.times import HOUR_MS, now_ms
from service.settings import EditSettings
from service.writes.entry import PendingWrite, WriteOutcome, together
from service.writes.keyed.edit import PendingEdit, SharedEditOutcome
from service.writes.keyed.plan import KeyFiles, SharedPlan, plan_batch
from service.writes.queue import Pending

log = logging.getLogger("firn.writes")
MIXED = "MIXED"
"""The operation of a batch whose requests have several."""

# Failures that are never the fault of one entry.
_NOT_OF_ONE_ENTRY = (
    *(OutcomeUnknown, CommitConflict, TableNotFound, TooManyRequests),
    *(EngineUnavailable, CatalogUnavailable, LedgerUnavailable, ShuttingDown),
)
# If this many entries in a row fail alone because something is unavailable, the others would fail, too.
_MOST_UNAVAILABLE = 3
# If this many fail for another reason, the reason is not theirs, or there are too many of them to search for.
_MOST_REFUSED = 30


@dataclass(frozen=True)
class CommittedBatch:
    """Entries that share a snapshot. `parts` say what each did, if there are edits among them."""

    batch: str | None
    """None if no entry changed anything, and so nothing was committed."""
    entries: Sequence[Pending]
    snapshot_id: int | None
    parts: Sequence[RequestPart] = ()

    @property
    def recorded(self) -> list[int]:
        """The positions of the entries that the batch is recorded with."""
        if self.batch is None:
            return []
        return [i for i in range(len(self.entries)) if not self.parts or self.parts[i].counts.changes_rows]


@dataclass
class BatchResults:
    """What became of entries: committed together, to be tried again as the table has changed, or to be made alone."""

    committed: list[CommittedBatch] = field(default_factory=list)
    uncommitted: list[Pending] = field(default_factory=list)
    alone: list[PendingEdit] = field(default_factory=list)
    table: Table | None = None
    """The table as it was last read."""


@dataclass(frozen=True)
class WriteBatches:
    """Commits batches. The caller holds the table's lock."""

    engine: Engine
    commits: Commits
    small_files: SmallFileChecks
    metrics: Metrics = field(default_factory=Metrics)
    edits: EditSettings = field(default_factory=EditSettings)
    holds: SnapshotHolds = field(default_factory=SnapshotHolds)
    keys: KeyFiles = field(default_factory=KeyFiles)

    def commit(self, entries: Sequence[Pending]) -> BatchResults:
        """Commit the entries, together if possible. Those that fail get their failure here.

        A batch that fails is split until the entries at fault are found.
        """
        results = BatchResults()
        failed_alone: list[type[Exception]] = []
        waiting = [entries]
        while waiting:
            part = waiting.pop()
            try:
                writes = [entry for entry in part if isinstance(entry, PendingWrite)]
                results.committed.append(
                    self._committed(writes) if len(writes) == len(part) else self._with_edits(part, results)
                )
                failed_alone.clear()
            except TableChanged:
                results.uncommitted.extend(entry for p in [part, *reversed(waiting)] for entry in p)
                return results
            except (UnreadableFile, TooManyRows) as e:
                log.info("Spark makes the edits of a batch of %d requests: %s", len(part), e)
                results.alone.extend(entry for entry in part if isinstance(entry, PendingEdit))
                waiting += [writes] if writes else []
            except KeyBusy as e:
                # Only the entries with these keys fail; if none is named, all do.
                busy = [entry for entry in part if entry.call.key and entry.call.key.id in e.keys]
                refuse(busy or part, e)
                if busy and len(busy) < len(part):
                    waiting.append([entry for entry in part if entry not in busy])
            except Exception as e:
                most_alone = _MOST_UNAVAILABLE if isinstance(e, Unavailable) else _MOST_REFUSED
                if len(part) > 1 and not isinstance(e, _NOT_OF_ONE_ENTRY) and failed_alone.count(type(e)) < most_alone:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                else:
                    failed_alone.append(type(e))
                    refuse(part, e)
        return results

    def respond(self, done: CommittedBatch) -> None:
        """Store the responses of the entries that have keys, then send all of them."""
        if not done.entries:
            return
        table, recorded = done.entries[0].table, done.recorded
        assert table is not None
        count = len(recorded)
        records = rows_written(done.parts) if done.parts else sum(entry.count for entry in done.entries)
        checks = self.small_files.check_batch(table, count) if recorded else {}
        check = {position: checks.get(n, NOT_CHECKED) for n, position in enumerate(recorded)}
        bodies = [
            entry.reply(SharedEditOutcome(done.parts[i], done.snapshot_id, check.get(i, NOT_CHECKED)))
            if isinstance(entry, PendingEdit)
            else entry.reply(WriteOutcome(entry.count, done.snapshot_id, count, records, check.get(i, NOT_CHECKED)))
            for i, entry in enumerate(done.entries)
        ]
        stored = {key.id: bodies[i] for i in recorded if (key := done.entries[i].call.key)}
        if stored and done.batch and done.snapshot_id:
            self.commits.batches.end(done.batch, done.snapshot_id, stored, (table.uuid, count))
        kept = set(recorded)
        for i in recorded:
            done.entries[i].response.set_result(bodies[i])
        unchanged = [i for i in range(len(bodies)) if i not in kept]
        if unchanged:
            calls = [(done.entries[i].operation, done.entries[i].call) for i in unchanged]
            self.commits.batches.note_unchanged(table, calls)
        for i in unchanged:
            self._respond_unchanged(done.entries[i], bodies[i])
        if done.batch and done.snapshot_id:
            if not stored:
                self.commits.batches.end_in_background(done.batch, done.snapshot_id, (table.uuid, count))
            self.commits.notify(table)

    def _respond_unchanged(self, entry: Pending, body: bytes) -> None:
        """Respond to an entry that changed nothing, which no batch is recorded with."""
        try:
            entry.response.set_result(self.commits.store_response(entry.call, body))
        except FirnError as e:  # another instance has the key
            refuse([entry], e)

    def _with_edits(self, entries: Sequence[Pending], results: BatchResults) -> CommittedBatch:
        """Commit a batch that has edits. Entries that are refused get their refusal here, and those that need a commit
        of their own are added to the results."""
        table = entries[0].table
        assert table is not None
        with self.commits.among_instances(table), self.holds.rewriting(table.uuid) as may_rewrite:
            results.table = current = self._current(entries)
            row_level = edit_policy(current.properties, self.edits).row_level
            if row_level == "auto" and not may_rewrite:
                row_level = "merge_on_read"
            try:
                # A change in progress would have to be made again if files that it concerns were merged.
                merges = not self.holds.is_built_on(table.uuid)
                plan = plan_batch(current, entries, self.keys, row_level, merges=merges)
            except (UnicodeDecodeError, pa.ArrowException) as e:  # such as text that other engines wrote
                raise UnreadableFile(str(e)) from e
            if plan.changing:
                batch, snapshot_id = self._commit_plan(current, plan)
                done = CommittedBatch(batch, plan.entries, snapshot_id, plan.parts)
            else:
                done = CommittedBatch(None, plan.entries, current.current_snapshot_id, plan.parts)
        results.alone += plan.alone
        for entry, refusal in plan.refused:
            refuse([entry], refusal)
        return done

    def _current(self, entries: Sequence[Pending]) -> Table:
        """The table as it is now; TableChanged if entries must be checked against it again."""
        seen = [entry.table for entry in entries if entry.table is not None]
        try:
            current = self.commits.current(seen[0])
        except TableNotFound as e:
            raise TableChanged(f"{seen[0].name} was dropped or replaced") from e
        if any((table.schema_id, table.derived) != (current.schema_id, current.derived) for table in seen):
            raise TableChanged(f"the schema of {current.name} has changed")
        return current

    def _commit_plan(self, table: Table, plan: SharedPlan) -> tuple[str, int]:
        changing = plan.changing
        entries, parts = [plan.entries[i] for i in changing], [plan.parts[i] for i in changing]
        operations = {entry.operation for entry in entries}

        def replace(batch: str) -> int:
            return self.engine.run(
                replace_rows,
                table.spark_name,
                plan.what,
                batch,
                uuid=table.uuid,
                schema_id=table.schema_id,
                gate=lambda: self.commits.must_be_ours(batch),
            )

        def rows() -> RequestRows | None:
            """The rows that each request moved, for as long as it can be undone. Those of a single one are in files."""
            hours = edit_policy(table.properties, self.edits).undo_retention_hours if len(entries) > 1 else 0
            changes = replaced(plan.applied, changes=tuple(plan.applied.changes[i] for i in changing))
            return rows_of(changes, table.schema_id, now_ms() + hours * HOUR_MS) if hours else None

        made = self.commits.commit_shared(
            table,
            operations.pop() if len(operations) == 1 else MIXED,
            [entry.call for entry in entries],
            replace,
            parts=parts,
            rows=rows,
        )
        self.metrics.batch(len(entries), rows_written(parts))
        return made

    def _committed(self, entries: list[PendingWrite]) -> CommittedBatch:
        table, rows = entries[0].table, together(entries)
        assert table is not None

        def write(batch: str) -> int:
            return self.engine.run(
                append,
                table.spark_name,
                rows,
                batch,
                uuid=table.uuid,
                schema_id=table.schema_id,
                derived=table.derived,
                gate=lambda: self.commits.must_be_ours(batch),
            )

        def shares() -> RowShares | None:
            """Which rows of a shared batch belong to which request, for as long as a WRITE can be undone."""
            hours = edit_policy(table.properties, self.edits).undo_retention_hours if len(entries) > 1 else 0
            until_ms = now_ms() + hours * HOUR_MS
            return share_rows(rows, [entry.count for entry in entries], table.schema_id, until_ms) if hours else None

        calls = [entry.call for entry in entries]
        batch, snapshot_id = self.commits.commit_shared(
            table, "WRITE", calls, write, records=rows.num_rows, shares=shares
        )
        self.metrics.batch(len(entries), rows.num_rows)
        return CommittedBatch(batch, entries, snapshot_id)


def refuse(entries: Sequence[Pending], failure: Exception) -> None:
    """End entries with a failure."""
    for entry in entries:
        with suppress(InvalidStateError):  # an edit that was cancelled in the meantime
            entry.response.set_exception(failure)
