"""WRITEs, and edits of rows by key: requests that change a table at the same time share a commit."""

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

from cachetools import LRUCache

from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.commits.holds import SnapshotHolds
from service.commits.small_files import NOT_CHECKED, SmallFileChecks
from service.engine.session.engine import Engine
from service.errors import CommitConflict, FirnError, ShuttingDown
from service.fairness.crowd import Crowd
from service.fairness.threads import FairThreads
from service.ledger.ledger import Batch
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.keyed.records import rows_written
from service.model.names import TableName
from service.settings import Settings
from service.writes.batch import BatchResults, WriteBatches, refuse
from service.writes.entry import SMALL, PendingWrite, Reply, WriteOutcome
from service.writes.keyed.edit import PendingEdit, SharedEditOutcome
from service.writes.keyed.plan import KeyFiles
from service.writes.queue import Pending, Queue

_QUEUES = 10_000  # idle queues are kept, too: they know how many clients to expect
_TABLES = 1000  # as last seen, so that a small WRITE is checked without reading metadata
_RECHECKS = 3
# Checking the records of a longer request would keep the event loop from answering others.
_LARGE_EDIT = 32 * 1024


class Writes:
    """Takes records, and commits them in batches. A waiting WRITE holds no thread."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        small_files: SmallFileChecks,
        metrics: Metrics | None = None,
        holds: SnapshotHolds | None = None,
        keys: KeyFiles | None = None,
        crowd: Crowd | None = None,
    ) -> None:
        self._settings = settings.writes
        self._catalog = catalog
        self._commits = commits
        metrics = metrics or Metrics()
        holds, keys = holds or SnapshotHolds(), keys or KeyFiles()
        self._batches = WriteBatches(engine, commits, small_files, metrics, settings.iceberg.edits, holds, keys)
        # While it is held, a stopping service may refuse entries, whose callers may append again on this thread.
        self._lock = threading.RLock()
        # A table may have changed since: whatever is done with it checks that again.
        self._seen: LRUCache[TableName, Table] = LRUCache(_TABLES)
        # By name, too: some WRITEs still name a table as it was called before it was renamed.
        self._queues: dict[tuple[str, TableName], Queue] = {}
        share = settings.limits.tenant_share
        self._checking = FairThreads(4, "firn-intake", share, crowd)
        # Most of them wait for the lock of their table.
        self._alone = FairThreads(settings.limits.edit_threads, "firn-alone", share, crowd)
        self._committing = FairThreads(settings.spark.sessions, "firn-commit", share, crowd)
        metrics.read("firn_write_queue_requests", lambda: self.waiting)
        metrics.read("firn_write_queue_tables", lambda: sum(not queue.idle for queue in self._every_queue()))

    def append(self, name: TableName, records: list[Any], size: int, call: Call, reply: Reply) -> "Future[bytes]":
        """Check the records, then commit them with whatever else waits. If one does not fit, none is written.

        Returns at once. `size` is about the bytes they take. `reply` makes the response body, which is stored under the
        call's key before the future has it. The future may also end in a FirnError.
        """
        entry = PendingWrite(name, call, records, size, reply)
        with self._lock:
            seen = self._seen.get(name)
        if seen is None or call.earlier or not 0 < len(records) <= SMALL:
            self._check_later(entry)
            return entry.response
        try:
            entry.fit(seen)
        except FirnError:  # the table may have changed since
            self._check_later(entry)
        else:
            self._queue(entry)
        return entry.response

    def edit(self, entry: PendingEdit) -> "Future[bytes]":
        """Commit an edit with whatever else waits, or in a commit of its own if it cannot share one.

        Returns at once. It can be cancelled until its batch begins. The response is stored under the call's key.
        """
        entry.call.on_cancel(entry.cancel)
        with self._lock:
            seen = self._seen.get(entry.name)
        if not self._settings.shared_edits and not entry.call.earlier:
            self._start_alone(entry)
        elif seen is None or entry.call.earlier or entry.size > _LARGE_EDIT:
            self._check_later(entry)
        else:
            try:
                shares = entry.fit(seen)
            except FirnError:  # the table may have changed since
                self._check_later(entry)
            else:
                self._queue_or_start(entry, shares)
        return entry.response

    @property
    def waiting(self) -> int:
        """How many WRITEs and edits wait for a commit, of all tables."""
        return sum(queue.waiting for queue in self._every_queue())

    def close(self) -> None:
        self._checking.shutdown()
        self._alone.shutdown()
        self._committing.shutdown()

    def _check_later(self, entry: Pending) -> None:
        def run() -> None:
            try:
                if isinstance(entry, PendingEdit):
                    self._check_edit(entry)
                else:
                    self._check(entry)
            except Exception as e:
                refuse([entry], e)

        try:
            self._checking.submit(entry.name.tenant, run)
        except RuntimeError:
            refuse([entry], _stopping())

    def _check(self, entry: PendingWrite) -> None:
        """Check an entry against the table as it is now."""
        if earlier := self._commits.earlier_batch(entry.call):
            return self._respond_again(entry, earlier)
        table = self._load(entry.name)
        seen = entry.table
        if seen is None or (table.uuid, table.schema_id) != (seen.uuid, seen.schema_id):
            if not entry.count or entry.records:
                entry.fit(table)
            elif not entry.follow(table):
                raise _changed(entry)
        entry.table = table
        if not entry.count:
            body = entry.reply(WriteOutcome(0, table.current_snapshot_id, 0, 0, NOT_CHECKED))
            entry.response.set_result(self._commits.store_response(entry.call, body))
        else:
            self._queue(entry)

    def _check_edit(self, entry: PendingEdit) -> None:
        """Check an edit against the table as it is now."""
        earlier = self._commits.earlier_batch(entry.call)
        part = earlier.part_of(entry.call.key.id) if earlier and entry.call.key else None
        if earlier and part:
            body = entry.reply(SharedEditOutcome(part, earlier.snapshot_id, NOT_CHECKED))
            if entry.begin(seal=False):
                entry.response.set_result(self._commits.store_response(entry.call, body))
        elif earlier or not self._settings.shared_edits:
            self._start_alone(entry)  # as it was made
        else:
            self._queue_or_start(entry, entry.fit(self._load(entry.name)))

    def _queue_or_start(self, entry: PendingEdit, shares: bool) -> None:
        if shares:
            self._queue(entry)
        else:
            self._start_alone(entry)

    def _start_alone(self, entry: PendingEdit) -> None:
        """Make an edit in a commit of its own, on a thread of its own."""

        def run() -> None:
            if entry.begin(seal=False):
                try:
                    entry.response.set_result(self._commits.store_response(entry.call, entry.alone()))
                except Exception as e:
                    refuse([entry], e)

        try:
            self._alone.submit(entry.name.tenant, run)
        except RuntimeError:
            refuse([entry], _stopping())

    def _load(self, name: TableName) -> Table:
        """The table as it is now."""
        try:
            table = self._catalog.load(name)
        except Exception:
            self._forget(name)
            raise
        with self._lock:
            self._seen[name] = table
        return table

    def _forget(self, name: TableName) -> None:
        with self._lock:
            self._seen.pop(name, None)

    def _respond_again(self, entry: PendingWrite, earlier: Batch) -> None:
        """Respond to an entry that an earlier attempt with its key committed, which got no response."""
        records = rows_written(earlier.parts) if earlier.parts else earlier.records
        written = WriteOutcome(len(entry.records), earlier.snapshot_id, earlier.requests, records, NOT_CHECKED)
        body = entry.reply(written)
        if entry.call.key:
            self._commits.batches.end(earlier.batch, earlier.snapshot_id, {entry.call.key.id: body})
        entry.response.set_result(body)

    def _queue(self, entry: Pending) -> None:
        assert entry.table is not None
        key = (entry.table.uuid, entry.name)
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                if len(self._queues) >= _QUEUES:
                    self._queues = {u: q for u, q in self._queues.items() if not q.idle}
                on_locked = partial(self._on_locked, key)
                queue = self._queues[key] = Queue(
                    self._settings, partial(self._commits.locks.request, key[0], on_locked)
                )
            queue.add(entry)

    def _every_queue(self) -> list[Queue]:
        with self._lock:
            return list(self._queues.values())

    def _on_locked(self, key: tuple[str, TableName]) -> None:
        try:
            self._committing.submit(key[1].tenant, partial(self._commit_next, key))
        except RuntimeError:
            queue = self._queues[key]
            while entries := queue.take():
                refuse(entries, _stopping())
            self._commits.locks.release(key[0])
            queue.done(0)

    def _commit_next(self, key: tuple[str, TableName]) -> None:
        """Commit one batch, holding the table's lock, which is released before the responses."""
        queue = self._queues[key]
        entries: list[Pending] = []
        results = BatchResults()
        try:
            try:
                entries = [e for e in queue.take() if not isinstance(e, PendingEdit) or e.begin(seal=True)]
                if entries:
                    results = self._batches.commit(entries)
            finally:
                self._commits.locks.release(key[0])
            for done in results.committed:
                self._batches.respond(done)
        except Exception as error:
            again = (*results.uncommitted, *results.alone)
            refuse([e for e in entries if not (e.response.done() or e in again)], error)
        finally:
            queue.done(len(entries))
        if results.table is not None:
            with self._lock:
                self._seen[key[1]] = results.table
        elif entries and not results.committed:
            self._forget(key[1])  # whatever was wrong may be wrong in the cache
        for edit in results.alone:
            self._start_alone(edit)
        for entry in results.uncommitted:
            entry.rechecks += 1
            if entry.rechecks > _RECHECKS:
                refuse([entry], _changed(entry))
            else:
                self._check_later(entry)


def _changed(entry: Pending) -> CommitConflict:
    return CommitConflict(
        f"table {entry.name.table!r} was changed while these records waited to be written; send the request again"
    )


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping; send this request to it again once it is back")
