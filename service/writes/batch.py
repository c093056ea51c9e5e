"""A batch of WRITEs: one note, one Spark job, one commit, one note of the answers; then the answers."""

import logging
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from service.catalog.tables import Table
from service.commits.commit import TRIES, Commits
from service.engine.append import append
from service.engine.engine import Engine
from service.engine.swap import Moved
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
from service.marks import shares
from service.metrics.metrics import Metrics
from service.properties import edit_policy
from service.settings import EditSettings
from service.upkeep.upkeep import NOT_CHECKED, Upkeep
from service.writes.entry import Entry, Written, together

log = logging.getLogger("firn.writes")

_HOUR_MS = 3_600_000

# So many in a row that fail alone, each for want of something they share: the others would fail likewise.
_HOPELESS = 3
# So many in a row for another reason: the reason is not theirs, or there are more of them than can be looked for.
_HOPELESS_REFUSED = 30


@dataclass(frozen=True)
class Committed:
    """Entries that share a snapshot."""

    batch: str
    entries: list[Entry]
    snapshot_id: int

    @property
    def records(self) -> int:
        return sum(entry.count for entry in self.entries)


class Batches:
    """Commits batches; it is called by whoever holds the table's turn."""

    def __init__(
        self,
        engine: Engine,
        commits: Commits,
        upkeep: Upkeep,
        metrics: Metrics | None = None,
        edits: EditSettings | None = None,
    ) -> None:
        self._engine = engine
        self._edits = edits or EditSettings()
        self._commits = commits
        self._upkeep = upkeep
        self._metrics = metrics or Metrics()
        # The note is written while Spark writes the files; only the commit waits for it.
        self._notes = ThreadPoolExecutor(4, thread_name_prefix="firn-notes")

    def commit(self, entries: list[Entry]) -> list[Committed]:
        """Commit the entries, together if they can be; those that cannot are answered here.

        Moved when their table has changed. A batch that fails is split until the guilty are found.
        """
        made: list[Committed] = []
        failed_alone: list[type[Exception]] = []
        waiting = [entries]
        while waiting:
            part = waiting.pop()
            try:
                made.append(self._committed(part))
                failed_alone.clear()
            except Moved:
                left = [entry for p in [part, *reversed(waiting)] for entry in p]
                if len(left) < len(entries):
                    # Some were committed or refused; the others go with what the table is now.
                    raise PartlyMoved(made, left) from None
                raise
            except KeyBusy as e:
                # Whose key it is goes; without one that is named, it is the whole part's failure.
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

    def answer(self, done: Committed) -> None:
        """Note what the entries are answered, then answer them."""
        table = done.entries[0].table
        assert table is not None
        checks = self._upkeep.check_batch(table, len(done.entries))
        count, records = len(done.entries), done.records
        bodies: list[bytes] = []
        for i, entry in enumerate(done.entries):
            check = checks.get(i, NOT_CHECKED)
            bodies.append(entry.reply(Written(entry.count, done.snapshot_id, count, records, check)))
        answers = {e.ask.key.id: body for e, body in zip(done.entries, bodies, strict=True) if e.ask.key}
        if answers:
            self._commits.end(done.batch, done.snapshot_id, answers, (table.uuid, count))
        for entry, body in zip(done.entries, bodies, strict=True):
            entry.answer.set_result(body)
        if not answers:
            # Nobody waits for this note: without it, as after a close, the table's history is asked.
            with suppress(RuntimeError):
                self._notes.submit(self._commits.end, done.batch, done.snapshot_id, None, (table.uuid, count))
        self._commits.tell(table)

    def close(self) -> None:
        self._notes.shutdown(wait=False)

    def _committed(self, entries: list[Entry]) -> Committed:
        for attempt in range(1, TRIES + 1):
            started = time.monotonic()
            try:
                done = self._once(entries)
            except CommitConflict as e:
                if attempt == TRIES:
                    self._metrics.conflict("WRITE")
                    raise
                self._metrics.retried("WRITE")
                log.info("a batch of %d on %s was beaten, trying again: %s", len(entries), entries[0].name, e.message)
            else:
                self._metrics.committed("WRITE", time.monotonic() - started)
                self._metrics.batch(len(entries), done.records)
                return done
        raise AssertionError("unreachable")

    def _once(self, entries: list[Entry]) -> Committed:
        table = entries[0].table
        assert table is not None
        batch, rows = uuid.uuid4().hex, together(entries)
        try:
            note = self._notes.submit(self._note, batch, table, entries, rows)
        except RuntimeError as e:  # closed meanwhile
            raise ShuttingDown("the service is stopping; send this request to it again once it is back") from e

        def before_commit() -> None:
            note.result()
            self._commits.must_be_ours(batch)

        try:
            snapshot_id = self._engine.run(
                append,
                table.spark_name,
                rows,
                batch,
                uuid=table.uuid,
                schema_id=table.schema_id,
                derived=table.derived,
                before_commit=before_commit,
            )
        except Exception as e:
            snapshot_id = self._despite(batch, table, note_failed=note.exception() is not None, failure=e)
        return Committed(batch, entries, snapshot_id)

    def _note(self, batch: str, table: Table, entries: list[Entry], rows: pa.Table) -> None:
        """Note a batch; where it is shared, also whose its rows are, for as long as a WRITE can be undone."""
        counts = [entry.count for entry in entries]
        hours = edit_policy(table.properties, self._edits).undo_retention_hours if len(entries) > 1 else 0
        until_ms = time.time_ns() // 1_000_000 + hours * _HOUR_MS
        whose = shares(rows, counts, table.schema_id, until_ms) if hours else None
        self._commits.begin(batch, table, "WRITE", [entry.ask for entry in entries], sum(counts), whose)

    def _despite(self, batch: str, table: Table, *, note_failed: bool, failure: Exception) -> int:
        """The snapshot of a batch whose job failed after its commit; else the failure."""
        if note_failed:
            raise failure  # nothing was committed
        if isinstance(failure, Moved):
            self._commits.end(batch, None)
            raise failure
        try:
            snapshot = self._commits.found(batch, table.name, failure)
        except TableNotFound:
            raise
        except OutcomeUnknown as e:
            raise e from failure
        if snapshot is None:
            raise failure
        log.warning("batch %s on %s committed although its job failed", batch, table.name, exc_info=failure)
        return snapshot.snapshot_id


class PartlyMoved(Exception):
    """Some entries were committed or refused; the table changed before the others were."""

    def __init__(self, made: list[Committed], left: list[Entry]) -> None:
        super().__init__()
        self.made = made
        self.left = left


def refuse(entries: Sequence[Entry], failure: Exception) -> None:
    for entry in entries:
        entry.answer.set_exception(failure)


def _divisible(failure: Exception) -> bool:
    """Whether a batch may fail because of one of its entries."""
    shared = OutcomeUnknown | CommitConflict | TableNotFound | TooManyRequests
    return not isinstance(failure, shared | EngineUnavailable | CatalogUnavailable | LedgerUnavailable | ShuttingDown)
