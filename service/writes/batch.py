"""A batch of WRITEs: one note, one Spark job, one commit, one note of the responses; then the responses."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

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
from service.settings import EditSettings
from service.writes.entry import PendingWrite, WriteOutcome, together

_HOUR_MS = 3_600_000

# If this many entries in a row fail alone because something is unavailable, the others would fail, too.
_HOPELESS = 3
# If this many fail for another reason, the reason is not theirs, or there are too many of them to search for.
_HOPELESS_REFUSED = 30


@dataclass(frozen=True)
class CommittedWrites:
    """Entries that share a snapshot."""

    batch: str
    entries: list[PendingWrite]
    snapshot_id: int

    @property
    def records(self) -> int:
        return sum(entry.count for entry in self.entries)


class WriteBatches:
    """Commits batches. The caller holds the table's lock."""

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        upkeep: SmallFileChecks,
        metrics: Metrics | None = None,
        edits: EditSettings | None = None,
    ) -> None:
        self._engine = engine
        self._edits = edits or EditSettings()
        self._commits = commits
        self._upkeep = upkeep
        self._metrics = metrics or Metrics()

    def commit(self, entries: list[PendingWrite]) -> list[CommittedWrites]:
        """Commit the entries, together if possible. Those that cannot be committed get their failure here.

        TableChanged or PartlyMoved if the table was changed. A batch that fails is split until the entries at fault are
        found.
        """
        made: list[CommittedWrites] = []
        failed_alone: list[type[Exception]] = []
        waiting = [entries]
        while waiting:
            part = waiting.pop()
            try:
                made.append(self._committed(part))
                failed_alone.clear()
            except TableChanged:
                left = [entry for p in [part, *reversed(waiting)] for entry in p]
                if len(left) < len(entries):
                    raise PartlyMoved(made, left) from None
                raise
            except KeyBusy as e:
                # Only the entries with these keys fail; if none is named, all do.
                free = [entry for entry in part if not entry.has_one_of(e.keys)]
                refuse([entry for entry in part if entry.has_one_of(e.keys)] or part, e)
                if 0 < len(free) < len(part):
                    waiting.append(free)
            except Exception as e:
                hopeless = failed_alone.count(type(e)) >= (
                    _HOPELESS if isinstance(e, Unavailable) else _HOPELESS_REFUSED
                )
                if len(part) > 1 and _divisible(e) and not hopeless:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                    continue
                failed_alone.append(type(e))
                refuse(part, e)
        return made

    def answer(self, done: CommittedWrites) -> None:
        """Store the responses of the entries that have keys, then give all entries theirs."""
        table = done.entries[0].table
        assert table is not None
        checks = self._upkeep.check_batch(table, len(done.entries))
        count, records = len(done.entries), done.records
        bodies: list[bytes] = []
        for i, entry in enumerate(done.entries):
            check = checks.get(i, NOT_CHECKED)
            bodies.append(entry.reply(WriteOutcome(entry.count, done.snapshot_id, count, records, check)))
        answers = {e.call.key.id: body for e, body in zip(done.entries, bodies, strict=True) if e.call.key}
        if answers:
            self._commits.batches.end(done.batch, done.snapshot_id, answers, (table.uuid, count))
        for entry, body in zip(done.entries, bodies, strict=True):
            entry.answer.set_result(body)
        if not answers:
            self._commits.batches.end_in_background(done.batch, done.snapshot_id, (table.uuid, count))
        self._commits.notify(table)

    def _committed(self, entries: list[PendingWrite]) -> CommittedWrites:
        table, rows = entries[0].table, together(entries)
        assert table is not None

        def write(batch: str) -> int:
            return self._engine.run(
                append,
                table.spark_name,
                rows,
                batch,
                uuid=table.uuid,
                schema_id=table.schema_id,
                derived=table.derived,
                gate=lambda: self._commits.must_be_ours(batch),
            )

        def whose() -> RowShares | None:
            """Whose the rows of a shared batch are, for as long as a WRITE can be undone."""
            hours = edit_policy(table.properties, self._edits).undo_retention_hours if len(entries) > 1 else 0
            until_ms = time.time_ns() // 1_000_000 + hours * _HOUR_MS
            return share_rows(rows, [entry.count for entry in entries], table.schema_id, until_ms) if hours else None

        batch, snapshot_id = self._commits.commit_shared(
            table,
            "WRITE",
            [entry.call for entry in entries],
            write,
            records=sum(entry.count for entry in entries),
            shares=whose,
        )
        done = CommittedWrites(batch, entries, snapshot_id)
        self._metrics.batch(len(entries), done.records)
        return done


class PartlyMoved(Exception):
    """The table was changed after some entries, but not those `left`, were committed or refused."""

    def __init__(self, made: list[CommittedWrites], left: list[PendingWrite]) -> None:
        super().__init__()
        self.made = made
        self.left = left


def refuse(entries: Sequence[PendingWrite], failure: Exception) -> None:
    """End entries with a failure."""
    for entry in entries:
        entry.answer.set_exception(failure)


def _divisible(failure: Exception) -> bool:
    """Whether a batch may fail because of one of its entries."""
    shared = OutcomeUnknown | CommitConflict | TableNotFound | TooManyRequests
    return not isinstance(failure, shared | EngineUnavailable | CatalogUnavailable | LedgerUnavailable | ShuttingDown)
