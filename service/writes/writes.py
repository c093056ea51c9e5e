"""WRITEs: records become commits, shared by those who write to a table at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from service.catalog.tables import Catalog, Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.engine.engine import Engine
from service.engine.swap import Moved
from service.errors import CommitConflict, FirnError, ShuttingDown
from service.ledger.ledger import Batch
from service.metrics.metrics import Metrics
from service.names import TableName
from service.settings import Settings
from service.upkeep.upkeep import NOT_CHECKED, Upkeep
from service.writes.batch import Batches, Committed, PartlyMoved, refuse
from service.writes.entry import SMALL, Entry, Reply, Written
from service.writes.queue import Queue
from service.writes.table_cache import SeenTables

_QUEUES = 10_000  # kept, also idle: they know how many clients to expect
_MOVES = 3


class Writes:
    """Takes records in. A waiting WRITE holds no thread."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        catalog: Catalog,
        commits: Commits,
        upkeep: Upkeep,
        metrics: Metrics | None = None,
    ) -> None:
        self._settings = settings.writes
        self._engine = engine
        self._catalog = catalog
        self._commits = commits
        self._tables = SeenTables(catalog)
        metrics = metrics or Metrics()
        self._batches = Batches(engine, commits, upkeep, metrics, settings.iceberg.edits)
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._looking = ThreadPoolExecutor(4, thread_name_prefix="firn-intake")
        self._committing = ThreadPoolExecutor(settings.spark.sessions, thread_name_prefix="firn-commit")
        metrics.read("firn_write_queue_requests", lambda: sum(queue.waiting for queue in self._every_queue()))
        metrics.read("firn_write_queue_tables", lambda: sum(not queue.idle for queue in self._every_queue()))

    def append(self, name: TableName, records: list[Any], size: int, ask: Ask, reply: Reply) -> "Future[bytes]":
        """Check every record, then commit them all with whatever else is waiting; none is written if one does not fit.

        Returns at once. `size` is about the bytes they take; `reply` makes the body of the answer, which is stored
        under the ask's key before the future has it. The future may also end in a FirnError.
        """
        entry = Entry(name, ask, records, size, reply)
        seen = self._tables.seen(name)
        if seen is None or ask.earlier or not 0 < len(records) <= SMALL:
            self._aside(self._look, entry)
            return entry.answer
        try:
            entry.fit(seen)
        except FirnError:
            # The table may have changed since.
            self._aside(self._look, entry)
            return entry.answer
        self._queue(entry)
        return entry.answer

    @property
    def waiting(self) -> int:
        """How many WRITEs wait for a commit, of all tables."""
        with self._lock:
            queues = list(self._queues.values())
        return sum(queue.waiting for queue in queues)

    def close(self) -> None:
        self._looking.shutdown(wait=False)
        self._committing.shutdown(wait=False)
        self._batches.close()

    def _aside(self, work: Callable[[Entry], None], entry: Entry) -> None:
        def run() -> None:
            try:
                work(entry)
            except Exception as e:
                refuse([entry], e)

        try:
            self._looking.submit(run)
        except RuntimeError:
            refuse([entry], _stopping())

    def _look(self, entry: Entry) -> None:
        """Check an entry against the table as it is now."""
        happened = self._commits.happened(entry.ask)
        if happened:
            return self._settle(entry, happened)
        table = self._tables.look(entry.name)
        if entry.table is None or not _same(table, entry.table):
            if not entry.count or entry.records:
                entry.fit(table)
            elif not entry.follow(table):
                raise _moved(entry)
        entry.table = table
        if not entry.count:
            body = entry.reply(Written(0, table.current_snapshot_id, 0, 0, NOT_CHECKED))
            entry.answer.set_result(self._commits.keep(entry.ask, body))
        else:
            self._queue(entry)

    def _settle(self, entry: Entry, happened: Batch) -> None:
        """Answer an entry that an earlier attempt with its key committed, and that got no answer then."""
        written = Written(len(entry.records), happened.snapshot_id, happened.requests, happened.records, NOT_CHECKED)
        body = entry.reply(written)
        if entry.ask.key:
            self._commits.end(happened.batch, happened.snapshot_id, {entry.ask.key.id: body})
        entry.answer.set_result(body)

    def _queue(self, entry: Entry) -> None:
        assert entry.table is not None
        uuid = entry.table.uuid
        with self._lock:
            queue = self._queues.get(uuid)
            if queue is None:
                if len(self._queues) >= _QUEUES:
                    self._queues = {u: q for u, q in self._queues.items() if not q.idle}
                queue = self._queues[uuid] = Queue(self._settings, lambda: self._join(uuid))
            queue.add(entry)

    def _every_queue(self) -> list[Queue]:
        with self._lock:
            return list(self._queues.values())

    def _join(self, uuid: str) -> None:
        self._commits.order.join(uuid, lambda: self._on_turn(uuid))

    def _on_turn(self, uuid: str) -> None:
        try:
            self._committing.submit(self._turn, uuid)
        except RuntimeError:
            queue = self._queues[uuid]
            while entries := queue.take():
                refuse(entries, _stopping())
            self._commits.order.leave(uuid)
            queue.done(0)

    def _turn(self, uuid: str) -> None:
        """Commit one batch; the table's turn is ours."""
        queue = self._queues[uuid]
        entries: list[Entry] = []
        made: list[Committed] = []
        moved: list[Entry] = []
        try:
            try:
                entries = queue.take()
                if entries:
                    made = self._batches.commit(entries)
            except Moved:
                moved = entries
            except PartlyMoved as e:
                made, moved = e.made, e.left
            finally:
                self._commits.order.leave(uuid)
            for done in made:
                self._batches.answer(done)
        except Exception as e:
            refuse([entry for entry in entries if not entry.answer.done()], e)
        finally:
            queue.done(len(entries))
        if entries and not made:
            self._tables.forget(entries[0].name)  # whatever was wrong, it is looked at anew
        for entry in moved:
            entry.moves += 1
            if entry.moves > _MOVES:
                refuse([entry], _moved(entry))
            else:
                self._aside(self._look, entry)


def _same(one: Table, other: Table) -> bool:
    return one.uuid == other.uuid and one.schema_id == other.schema_id


def _moved(entry: Entry) -> CommitConflict:
    return CommitConflict(
        f"table {entry.name.table!r} was changed while these records waited to be written; send the request again"
    )


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping; send this request to it again once it is back")
