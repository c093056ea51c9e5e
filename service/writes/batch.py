"""A batch of WRITEs: one row in the ledger, one Spark job, one commit; then its responses, stored and sent."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from service.commits.commit import Commits
from service.commits.small_files import NOT_CHECKED, SmallFileChecks
from service.engine.iceberg.swap import TableChanged
from service.engine.jobs.append import append
from service.engine.session.engine import Engine
from service.errors import (
    CatalogUnavailable,
    CommitConflict,
    EngineUnavailable,
    KeyBusy,
    LedgerUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
    TooManyRequests,
    Unavailable,
)
from service.metrics.metrics import Metrics
from service.model.properties import edit_policy
from service.model.row_marks import RowShares, share_rows
from service.model.times import HOUR_MS, now_ms
from service.settings import EditSettings
from service.writes.entry import PendingWrite, WriteOutcome, together

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
class CommittedWrites:
    """Entries that share a snapshot."""

    batch: str
    entries: list[PendingWrite]
    snapshot_id: int


@dataclass(frozen=True)
class WriteBatches:
    """Commits batches. The caller holds the table's lock."""

    engine: Engine
    commits: Commits
    small_files: SmallFileChecks
    metrics: Metrics = field(default_factory=Metrics)
    edits: EditSettings = field(default_factory=EditSettings)

    def commit(self, entries: list[PendingWrite]) -> tuple[list[CommittedWrites], list[PendingWrite]]:
        """Commit the entries, together if possible; returns what was committed, and the entries that were not because
        the table has changed. All others get their failure here.

        A batch that fails is split until the entries at fault are found.
        """
        committed: list[CommittedWrites] = []
        failed_alone: list[type[Exception]] = []
        waiting = [entries]
        while waiting:
            part = waiting.pop()
            try:
                committed.append(self._committed(part))
                failed_alone.clear()
            except TableChanged:
                return committed, [entry for p in [part, *reversed(waiting)] for entry in p]
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
        return committed, []

    def respond(self, done: CommittedWrites) -> None:
        """Store the responses of the entries that have keys, then send all of them."""
        table, count, records = done.entries[0].table, len(done.entries), sum(entry.count for entry in done.entries)
        assert table is not None
        checks = self.small_files.check_batch(table, count)
        bodies = [
            entry.reply(WriteOutcome(entry.count, done.snapshot_id, count, records, checks.get(i, NOT_CHECKED)))
            for i, entry in enumerate(done.entries)
        ]
        stored = {e.call.key.id: body for e, body in zip(done.entries, bodies, strict=True) if e.call.key}
        if stored:
            self.commits.batches.end(done.batch, done.snapshot_id, stored, (table.uuid, count))
        for entry, body in zip(done.entries, bodies, strict=True):
            entry.response.set_result(body)
        if not stored:
            self.commits.batches.end_in_background(done.batch, done.snapshot_id, (table.uuid, count))
        self.commits.notify(table)

    def _committed(self, entries: list[PendingWrite]) -> CommittedWrites:
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
        return CommittedWrites(batch, entries, snapshot_id)


def refuse(entries: Sequence[PendingWrite], failure: Exception) -> None:
    """End entries with a failure."""
    for entry in entries:
        entry.response.set_exception(failure)
