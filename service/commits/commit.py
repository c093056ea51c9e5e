"""Every change of a table: locked, recorded in the ledger, stamped with a batch id, looked up if it fails."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from service.catalog.refusals import table_replaced
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.batches import MAKE, Batches, store_response
from service.commits.locator import TableLocator
from service.commits.locks import TableLocks
from service.engine.iceberg.swap import TableChanged
from service.errors import CommitConflict, FirnError, InvalidRequest, TableExists, TableNotFound
from service.ledger.ledger import NO_SNAPSHOT, Batch, Ledger, NewBatch, Transaction
from service.ledger.table_records import TableRecords
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.keyed.records import RequestPart, RequestRows
from service.model.names import BATCH_PROPERTY, TableName
from service.model.row_marks import RowShares
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema

T = TypeVar("T")
log = logging.getLogger("firn.commits")

TRIES = 4


@dataclass(frozen=True)
class CommitResult:
    """The table after a change, and the snapshot that the change made, if it made one."""

    after: Table
    snapshot: Snapshot | None
    recorded: bool = True
    """Whether the ledger has its end, and what is recorded with it."""

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that the change made; without one, the table's current."""
        return self.snapshot.snapshot_id if self.snapshot else self.after.current_snapshot_id


@dataclass(frozen=True)
class LedgerChange:
    """A change of the ledger itself, such as of a schedule."""

    id: str
    transaction: Transaction
    _call: Call

    def respond(self, result: Any) -> None:
        """Store the response under the request's key, if it has one, in the same transaction."""
        if self._call.key is not None:
            self.transaction.answer(self._call.key.id, self._call.respond(result))


@dataclass(frozen=True)
class AlsoRecorded:
    """What the ledger records in the same transactions as a batch: each transaction waits for the disk.

    The batch is recorded while its change runs, which must call `must_be_ours` directly before its commit.
    """

    begin: Callable[[str, Transaction], object]
    """With the beginning of a batch; `must_be_ours` raises what it raises."""
    end: Callable[[CommitResult, Transaction], object]
    """With the end of a batch, whether it made a snapshot or not."""


CommitFunction = Callable[[Table, str], None]
"""Changes a table, given as it is now, in at most one commit that is stamped with the batch id."""


class Commits:
    """Makes every change of a table.

    `commit` makes a change that makes a snapshot, `commit_shared` one that several calls share, `alter` one of the
    metadata alone; `create` makes an empty table, `create_with_rows` one that a job fills.
    """

    def __init__(
        self,
        catalog: Catalog,
        ledger: Ledger,
        pauses_s: tuple[float, ...] = (0.2, 1.0),
        metrics: Metrics | None = None,
    ) -> None:
        """`pauses_s` are the pauses between attempts to read from the catalog whether a change was committed."""
        self._catalog = catalog
        self._ledger = ledger
        self._locator = TableLocator(catalog, TableRecords(ledger))
        self.batches = Batches(catalog, ledger, self._locator, pauses_s)
        self.locks = TableLocks()
        self._listeners: list[Callable[[TableName, str], None]] = []
        self._metrics = metrics or Metrics()
        self._metrics.read("firn_unresolved_changes", lambda: len(self.batches.unresolved))

    def when_committed(self, listener: Callable[[TableName, str], None]) -> None:
        """Call a listener with a table's name and UUID after each commit; it must be quick and never fail."""
        self._listeners.append(listener)

    def notify(self, table: Table) -> None:
        """Call the listeners: a commit of this table was made, and its responses sent."""
        for listener in self._listeners:
            listener(table.name, table.uuid)

    def commit(
        self,
        table: Table,
        operation: str,
        call: Call,
        change: CommitFunction,
        *,
        in_order: bool = True,
        records: int = 0,
        undoes: str | None = None,
        also: AlsoRecorded | None = None,
    ) -> CommitResult:
        """Make a change that makes a snapshot, or none; another writer's commit in between starts it again.

        `table` is the one that the request was checked against. If an earlier attempt with the same key was committed,
        its result is returned and nothing is run. `in_order=False` is for long work that yields to other changes: it
        does not wait for the table's lock. The ledger keeps `records`, the number of rows added, and `undoes`, what an
        UNDO takes back.
        """
        with self.locked(table, call) if in_order else nullcontext():
            if earlier := self.earlier_result(table, call):
                return earlier

            def attempt() -> CommitResult:
                current, batch, started = self.current(table), _new_batch(), time.monotonic()
                begin = partial(self.batches.begin, batch, current, operation, [call], records, undoes=undoes)
                recording: AbstractContextManager[object] = nullcontext()
                if also is None:
                    begin()
                else:
                    begin = partial(begin, also=partial(also.begin, batch))
                    recording = self.batches.recorded_meanwhile(batch, begin)
                try:
                    with recording:
                        change(current, batch)
                except Exception as e:
                    after = self.batches.committed_despite(e, batch, current)
                else:
                    after = self.batches.look_up(batch, current.name, current.uuid)
                snapshot = after.committed_by(batch)
                made = CommitResult(after, snapshot)
                with_end = None if also is None else partial(also.end, made)
                recorded = self.batches.end(batch, snapshot.snapshot_id if snapshot else None, also=with_end)
                if snapshot:
                    self._metrics.committed(operation, time.monotonic() - started)
                    self.notify(after)
                return replace(made, recorded=recorded)

            return self._retried(table, operation, [call], attempt)

    def commit_shared(
        self,
        table: Table,
        operation: str,
        calls: Sequence[Call],
        change: Callable[[str], int],
        *,
        records: int = 0,
        shares: Callable[[], RowShares | None] = lambda: None,
        parts: Sequence[RequestPart] = (),
        rows: Callable[[], RequestRows | None] = lambda: None,
    ) -> tuple[str, int]:
        """Make a change that several calls share; returns its batch and its snapshot.

        The caller holds the table's lock, and ends the batch with the responses. `change(batch)` returns the snapshot.
        The batch is recorded while it runs, so it must call `must_be_ours` directly before its commit, which waits for
        that. `shares` computes which rows belong to which call. If there are edits among the calls, `parts` says what
        each did, and `rows` computes which rows each removed and added.
        """

        def attempt() -> tuple[str, int]:
            batch, started = _new_batch(), time.monotonic()

            def record() -> None:
                self.batches.begin(batch, table, operation, calls, records, shares(), parts=parts, rows=rows())

            snapshot_id = self.batches.run_while_recorded(batch, record, table, change)
            self._metrics.committed(operation, time.monotonic() - started)
            return batch, snapshot_id

        return self._retried(table, operation, calls, attempt)

    def alter(self, table: Table, operation: str, call: Call, change: Callable[[Table, str], Table]) -> Table:
        """Make a change of a table's metadata that makes no snapshot. `change(table, batch)` is given the table as it
        is now, and returns it as it is afterwards.

        The change stores the batch in the table's properties, or has the same result when it is made twice.
        """
        if self.earlier_batch(call):
            return self.find(table.name, table.uuid)
        with self.locked(table, call):
            current, batch = self.current(table), _new_batch()
            self.batches.begin(batch, current, operation, [call])
            with self._ended(batch, InvalidRequest, CommitConflict, TableNotFound):
                return change(current, batch)

    def create(
        self,
        name: TableName,
        schema: TableSchema,
        partition: tuple[PartitionField, ...],
        properties: dict[str, str],
        call: Call,
    ) -> Table:
        """Make an empty table; TableExists if there is one that no earlier attempt with the same key made."""
        if self.earlier_batch(call):
            return self._catalog.load(name)
        if call.key is None:
            return self._catalog.create(name, schema, partition, properties)
        batch = _new_batch()
        self.batches.begin(batch, name, MAKE, [call])
        with self._ended(batch, TableExists):
            return self._catalog.create(name, schema, partition, {**properties, BATCH_PROPERTY: batch})

    @contextmanager
    def in_ledger(self, call: Call) -> Iterator[LedgerChange]:
        """A transaction for a change of the ledger itself, recorded in it with the request's key and response: either
        all of it happens, or, if the block raises, nothing."""
        key, batch, keyed = call.key, _new_batch(), None
        if key is not None:
            keyed = NewBatch(batch, key.table, "", key.operation, [call.id[:200]], keys={key.id: key.fingerprint})
        with self._ledger.transaction(keyed) as transaction:
            yield LedgerChange(batch, transaction, call)

    @contextmanager
    def of_namespace(self, name: tuple[str, str], call: Call, *refusals: type[FirnError]) -> Iterator[None]:
        """Create or drop a namespace in the block. A retry looks in the catalog whether that happened, so the caller
        must have checked that it had not happened before. After one of the refusals the key is free."""
        self.batches.settle_namespace(*name)
        if call.key is None:
            yield
            return
        batch = _new_batch()
        self.batches.begin(batch, TableName(*name, ""), call.key.operation, [call])
        with self._ended(batch, *refusals):
            self.must_be_ours(batch)
            yield

    def create_with_rows(self, name: TableName, call: Call, change: Callable[[str], None]) -> Table:
        """Make a table by a job, `change(batch)`, that gives it the property `firn-batch`; TableExists if there is one.

        If the job fails, it is looked up at once whether the table was made, because then the job's files must stay.
        """
        batch = _new_batch()
        self.batches.begin(batch, name, MAKE, [call])
        try:
            change(batch)
        except TableExists:
            self.batches.end(batch, None)
            raise
        except Exception as e:
            made = False
            with suppress(TableNotFound):  # then `look_up` has ended the batch
                made = self.batches.look_up(batch, name, failure=e).properties.get(BATCH_PROPERTY) == batch
                if not made:
                    self.batches.end(batch, None)
            if not made:
                raise
            log.warning("%s %s was committed although its job failed", call.id, name, exc_info=e)
        self.batches.end(batch, NO_SNAPSHOT)
        return self.batches.look_up(batch, name)

    def must_be_ours(self, batch: str) -> None:
        """Call it directly before a commit: CommitConflict if another instance has taken the batch over.

        In a shared commit it waits until the batch is recorded, and raises what kept it from that.
        """
        self.batches.must_be_ours(batch)

    def commit_gate(self, batch: str, call: Call) -> Callable[[], None]:
        """A function to call directly before a commit: it raises if the batch or the request is no longer ours."""

        def gate() -> None:
            self.must_be_ours(batch)
            call.commit_gate()
            call.seal()

        return gate

    @contextmanager
    def locked(self, table: Table, call: Call | None = None) -> Iterator[None]:
        """Hold the table's lock, in this process and among instances. A call that is cancelled stops waiting for it."""
        hold = self.locks.hold(table.uuid, call.check) if call else self.locks.hold(table.uuid)
        with hold, self._ledger.owners.table(table.uuid):
            yield

    def among_instances(self, table: Table) -> AbstractContextManager[None]:
        """Hold the table's lock among instances, for a caller that holds the one in this process."""
        return self._ledger.owners.table(table.uuid)

    def current(self, table: Table) -> Table:
        """The table as it is now; TableNotFound if another table has its name."""
        current = self._catalog.load(table.name)
        if current.uuid != table.uuid:
            raise table_replaced(table.name)
        return current

    def earlier_batch(self, call: Call) -> Batch | None:
        """The batch of an earlier attempt with the same key, if it was committed.

        KeyBusy while another instance works on it.
        """
        return self.batches.committed(call.earlier) if call.earlier else None

    def earlier_result(self, table: Table, call: Call) -> CommitResult | None:
        """The result of an earlier attempt with the same key, if it made a snapshot."""
        batch = self.earlier_batch(call)
        if batch is None or batch.snapshot_id is None:
            return None
        current = self.current(table)
        return CommitResult(current, current.snapshot(batch.snapshot_id))

    def table(self, name: TableName, call: Call) -> Table:
        """The table of a request: the one of this name, or the one that an earlier attempt with the same key changed,
        whatever its name is now."""
        batch = self.earlier_batch(call)
        return self.find(batch.table, batch.table_uuid) if batch else self._catalog.load(name)

    def find(self, name: TableName, table_uuid: str) -> Table:
        """The table of this UUID, also if it was renamed, or dropped and kept."""
        return self._locator.find(name, table_uuid)

    def store_response(self, call: Call, answer: bytes) -> bytes:
        """Store the response to a request that needed no change, if it has a key; returns the response to send."""
        return answer if call.key is None else store_response(self._ledger, call.key, answer)

    def _retried(self, table: Table, operation: str, calls: Sequence[Call], attempt: Callable[[], T]) -> T:
        """Attempt a change again if another writer was faster; CommitConflict if that happens several times."""
        for number in range(1, TRIES + 1):
            try:
                return attempt()
            except CommitConflict as e:
                for call in calls:
                    call.reopen()
                if number == TRIES:
                    self._metrics.conflict(operation)
                    raise
                self._metrics.retried(operation)
                ids = ", ".join(call.id for call in calls[:3])
                log.info("%s on %s conflicted with a commit, trying again (%s): %s", operation, table.name, ids, e)
        raise AssertionError("unreachable")

    @contextmanager
    def _ended(self, batch: str, *refusals: type[FirnError]) -> Iterator[None]:
        """Record that the block made its change or refused it; after any other failure it is looked up later."""
        try:
            yield
        except refusals:
            self.batches.end(batch, None)
            raise
        except BaseException:
            self.batches.unresolved.add(batch)
            raise
        self.batches.end(batch, NO_SNAPSHOT)


def _new_batch() -> str:
    return uuid.uuid4().hex


@contextmanager
def retried_if_changed() -> Iterator[None]:
    """A block, or a decorator, by which `commit` attempts a change again that met another writer's."""
    try:
        yield
    except TableChanged as e:
        raise CommitConflict(f"{e}; send the request again") from e
