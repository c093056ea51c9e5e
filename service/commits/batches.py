"""Batches: recorded in the ledger before they are committed, looked up in the table if they fail, and ended."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from service.catalog.alter import altered_by
from service.catalog.namespaces import namespace_exists
from service.catalog.tables import Catalog, Table
from service.commits.locator import TableLocator
from service.engine.iceberg.swap import TableChanged
from service.errors import (
    CommitConflict,
    FirnError,
    KeyBusy,
    LedgerUnavailable,
    OutcomeUnknown,
    ShuttingDown,
    TableNotFound,
)
from service.ledger.ledger import (
    NO_SNAPSHOT,
    TAKEN,
    UNFINISHED,
    Also,
    Batch,
    Ledger,
    NewBatch,
    end_batch,
)
from service.ledger.table_records import STEPS
from service.model.call import Call, IdempotencyKey
from service.model.keyed.records import RequestPart, RequestRows
from service.model.names import BATCH_PROPERTY, TableName
from service.model.row_marks import RowShares

log = logging.getLogger("firn.commits")

MAKE = "CREATE_TABLE"
CREATE_NAMESPACE = "CREATE_NAMESPACE"
NAMESPACE_CHANGES = (CREATE_NAMESPACE, "DROP_NAMESPACE")
# Changes that are not built on a snapshot, so that another snapshot does not stop them.
_UNFENCED = frozenset({MAKE, *STEPS, *NAMESPACE_CHANGES})
_RECORDING_THREADS = 4


class Batches:
    """A batch is one attempt to change one table, for one call or several. In the ledger it ends as done or void."""

    def __init__(self, catalog: Catalog, ledger: Ledger, locator: TableLocator, pauses_s: tuple[float, ...]) -> None:
        """`pauses_s` are the pauses between attempts to read a table from the catalog."""
        self._catalog = catalog
        self._ledger = ledger
        self._locator = locator
        self._pauses_s = pauses_s
        self.unresolved: set[str] = set()
        """Batches of ours that are over, but have not ended in the ledger; `resolve` looks them up."""
        self._recording = ThreadPoolExecutor(_RECORDING_THREADS, thread_name_prefix="firn-recording")
        self._being_recorded: dict[str, Future[object]] = {}

    def close(self) -> None:
        """Start no more writes to the ledger in the background; those in progress finish."""
        self._recording.shutdown(wait=False)

    def begin(
        self,
        batch: str,
        table: Table | TableName,
        operation: str,
        calls: Sequence[Call],
        records: int = 0,
        shares: RowShares | None = None,
        undoes: str | None = None,
        parts: Sequence[RequestPart] = (),
        rows: RequestRows | None = None,
        also: Also | None = None,
    ) -> None:
        """Record a batch, its calls and their keys; nothing of it may be committed before. A name is of a new table."""
        name, table_uuid = (table, "") if isinstance(table, TableName) else (table.name, table.uuid)
        ids = [call.id[:200] for call in calls]
        keys = {call.key.id: call.key.fingerprint for call in calls if call.key}
        whose = {call.key.id: request_id for call, request_id in zip(calls, ids, strict=True) if call.key}
        change = NewBatch(batch, name, table_uuid, operation, ids, records, keys, whose, shares, undoes, parts, rows)
        with self._ledger.transaction() as transaction:
            self._ledger.begin(change, transaction)
            if also:
                also(transaction)

    def settle_namespace(self, tenant: str, namespace: str) -> None:
        """Look up the failed changes of a namespace, and those of instances that are gone. Call it before another
        change, after which nobody can tell whether they happened."""
        for batch in self._ledger.unfinished():
            at, left = batch.table, batch.batch in self.unresolved or self._ledger.owners.gone(batch.owner)
            if batch.operation in NAMESPACE_CHANGES and (at.tenant, at.namespace) == (tenant, namespace) and left:
                self._resolve(batch)

    def in_background(self, record: Callable[[], object]) -> "Future[object]":
        """Write to the ledger on another thread; ShuttingDown after `close`."""
        try:
            return self._recording.submit(record)
        except RuntimeError as e:
            raise ShuttingDown("the service is stopping; send this request to it again once it is back") from e

    def must_be_ours(self, batch: str) -> None:
        """Raise what kept a batch from being recorded, or CommitConflict if another instance has taken it over."""
        if recording := self._being_recorded.get(batch):
            recording.result()
        if self._ledger.owners.shared and not self._ledger.is_ours(batch):
            raise CommitConflict(
                "another instance took over this change, because this instance seemed to have failed; send it again"
            )

    def run_while_recorded(
        self, batch: str, record: Callable[[], None], table: Table, change: Callable[[str], int]
    ) -> int:
        """Run a change while it is recorded; returns its snapshot, also if it failed after its commit."""
        with self.recorded_meanwhile(batch, record) as recorded:
            try:
                return change(batch)
            except Exception as e:
                if recorded.exception() is not None:
                    raise  # nothing was committed
                if isinstance(e, TableChanged):  # nothing was committed either
                    self.end(batch, None)
                    raise
                made = self.committed_despite(e, batch, table).committed_by(batch)
                assert made is not None
                return made.snapshot_id

    @contextmanager
    def recorded_meanwhile(self, batch: str, record: Callable[[], object]) -> Iterator["Future[object]"]:
        """Record a batch on another thread during the block, which calls `must_be_ours` directly before its commit; at
        the end of the block it is recorded, or cannot be."""
        recorded = self._being_recorded[batch] = self.in_background(record)
        try:
            yield recorded
        finally:
            wait([recorded])
            del self._being_recorded[batch]

    def committed_despite(self, failure: Exception, batch: str, table: Table) -> Table:
        """The table, if a batch whose change failed was committed all the same; else the failure is raised.

        OutcomeUnknown if the catalog cannot be read; then the batch stays unresolved.
        """
        after = self.look_up(batch, table.name, table.uuid, failure)
        if after.committed_by(batch) is None:
            if isinstance(failure, OutcomeUnknown):  # it may still be committed
                self.unresolved.add(batch)
            else:
                self.end(batch, None)
            raise failure
        log.warning("batch %s on %s was committed although its job failed", batch, table.name, exc_info=failure)
        return after

    def look_up(self, batch: str, name: TableName, table_uuid: str = "", failure: Exception | None = None) -> Table:
        """The table as it is now: only its history says whether a batch was committed."""
        for pause in (*self._pauses_s, None):
            try:
                return self._locator.find(name, table_uuid) if table_uuid else self._catalog.load(name)
            except TableNotFound:
                self.end(batch, None)
                raise
            except Exception as e:
                if pause is None:
                    self.unresolved.add(batch)
                    raise OutcomeUnknown(
                        f"it is unknown whether the change happened ({e}); if the request has an idempotency key, send "
                        "it again; if not, check first",
                        details={"batch": batch},
                    ) from (failure or e)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def end(
        self,
        batch: str,
        snapshot_id: int | None,
        answers: dict[str, bytes] | None = None,
        writes: tuple[str, int] | None = None,
        also: Also | None = None,
    ) -> bool:
        """Record the end of a batch: its snapshot, if it made one; its responses, by key id; and the UUID of its table
        with the number of WRITEs.

        It does not fail if the ledger does, but returns false: whether a change happened depends on the commit alone.
        """
        try:
            with self._ledger.transaction() as transaction:
                self._ledger.end(batch, snapshot_id, answers, writes, transaction)
                if also:
                    also(transaction)
        except LedgerUnavailable as e:
            self.unresolved.add(batch)
            log.error("the end of batch %s could not be recorded yet: %s", batch, e.message)
            return False
        return True

    def note_unchanged(self, table: Table, calls: Sequence[tuple[str, Call]]) -> None:
        """Record requests, each with its operation, that changed nothing, so that UNDO knows them. It does not fail."""
        by_operation: dict[str, list[str]] = {}
        for operation, call in calls:
            by_operation.setdefault(operation, []).append(call.id[:200])
        try:
            with self._ledger.transaction() as transaction:
                for operation, ids in by_operation.items():
                    batch = uuid.uuid4().hex
                    change = NewBatch(batch, table.name, table.uuid, operation, ids)
                    self._ledger.add_batch(transaction.connection, change)
                    end_batch(transaction.connection, batch, None)
        except LedgerUnavailable as e:
            log.error("requests that changed nothing could not be recorded: %s", e.message)

    def end_in_background(self, batch: str, snapshot_id: int, writes: tuple[str, int]) -> None:
        """Record the end of a batch that nobody waits for."""
        # If it cannot be recorded, as after `close`, the next start looks the batch up in the table.
        with suppress(ShuttingDown):
            self.in_background(lambda: self.end(batch, snapshot_id, None, writes))

    def committed(self, batch: str) -> Batch | None:
        """A batch, if it was committed. If it has not ended in the ledger, it is looked up in the table first.

        KeyBusy while another instance works on it.
        """
        found = self._ledger.find(batch)
        if found is not None and found.state in UNFINISHED:
            self._resolve(found)
            found = self._ledger.find(batch)
        return found if found is not None and found.state == "done" else None

    def resolve(self) -> None:
        """Look up our unresolved batches."""
        for batch in list(self.unresolved):
            try:
                self.committed(batch)
            except FirnError as e:
                log.info("it is still unknown whether batch %s was committed: %s", batch, e.message)
            else:
                self.unresolved.discard(batch)

    def recover(self) -> int:
        """Look up the batches that instances which are gone left unfinished; returns how many there were."""
        left = [batch for batch in self._ledger.unfinished() if self._ledger.owners.gone(batch.owner)]
        for batch in left:
            try:
                self._resolve(batch)
            except KeyBusy:
                log.info("another instance works on batch %s of %s", batch.batch, batch.table)
            except Exception as e:  # one unreadable table must not keep the others from being served
                log.error("the outcome of batch %s of %s cannot be read: %s", batch.batch, batch.table, e)
        return len(left)

    def _resolve(self, batch: Batch) -> None:
        """Find out how a batch ended, and record it."""
        owners = self._ledger.owners
        if batch.owner != owners.me and not owners.gone(batch.owner):
            raise KeyBusy
        if owners.shared and (batch.owner != owners.me or batch.state == TAKEN):
            self._take_over(batch)
        else:
            self._settle(batch)

    def _take_over(self, batch: Batch) -> None:
        """Resolve a batch whose owner we cannot see, though its JVM may still be about to commit.

        The owner checks that the batch is its own after it has built its commit on the newest snapshot. So we first
        make the batch ours, then give the table a snapshot of ours. A commit that the owner built before is refused
        because it is not built on that snapshot, and one that it builds later fails its check. Only then is the
        table's history final.
        """
        with self._ledger.owners.table(batch.table_uuid):
            if not self._ledger.take_over(batch):
                raise KeyBusy("another instance works on a request with this key")
            self.unresolved.add(batch.batch)
            if batch.operation not in _UNFENCED:
                with suppress(TableNotFound):
                    self._catalog.fence(self._locator.find(batch.table, batch.table_uuid), batch.batch)
            self._settle(batch)
        self.unresolved.discard(batch.batch)
        log.warning("took over batch %s of %s from an instance that is gone", batch.batch, batch.table)

    def _settle(self, batch: Batch) -> None:
        """Look a batch up in its table, and record its end."""
        if batch.operation in STEPS:  # if no step is in progress, it has ended: both are in one transaction
            self._locator.settle_step(batch.table_uuid, batch.batch)
            return
        made: int | None = None
        with suppress(TableNotFound):
            if batch.operation in NAMESPACE_CHANGES:
                exists = namespace_exists(self._catalog, batch.table.tenant, batch.table.namespace)
                made = NO_SNAPSHOT if exists == (batch.operation == CREATE_NAMESPACE) else None
            elif batch.operation == MAKE:
                if self._catalog.load(batch.table).properties.get(BATCH_PROPERTY) == batch.batch:
                    made = NO_SNAPSHOT
            else:
                table = self._locator.find(batch.table, batch.table_uuid)
                if snapshot := table.committed_by(batch.batch):
                    made = snapshot.snapshot_id
                elif altered_by(table, batch.batch):
                    made = NO_SNAPSHOT
        self._ledger.end(batch.batch, made)


def store_response(ledger: Ledger, key: IdempotencyKey, answer: bytes) -> bytes:
    """Store the response of a success under its key; returns the stored one: another instance may have been first.

    KeyBusy if another instance has the key. A success is sent even if it could not be stored: it has happened.
    """
    try:
        return ledger.answer(key.id, key.fingerprint, answer)
    except LedgerUnavailable as e:
        log.error("the response under a key of %s could not be stored: %s", key.table, e.message)
        return answer
