"""One change to one table: in its turn, noted before, stamped, and looked up before anything is said of it."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.ask import Ask
from service.commits.keys import store
from service.commits.order import Order
from service.commits.unsettled import MAKE, NO_SNAPSHOT, Unsettled
from service.commits.whereabouts import Whereabouts
from service.errors import (
    CommitConflict,
    FirnError,
    InvalidRequest,
    LedgerUnavailable,
    OutcomeUnknown,
    TableExists,
    TableNotFound,
)
from service.ledger.ledger import Batch, Begun, Ledger
from service.ledger.lives import Lives
from service.marks import Shares
from service.metrics.metrics import Metrics
from service.names import BATCH_PROPERTY, TableName
from service.partition import PartitionField
from service.schema import TableSchema

log = logging.getLogger("firn.commits")

TRIES = 4


@dataclass(frozen=True)
class Effect:
    """The table after a change, and the snapshot that the change made, if it made one."""

    after: Table
    snapshot: Snapshot | None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that holds the effect; without one, the table's current."""
        return self.snapshot.snapshot_id if self.snapshot else self.after.current_snapshot_id


Change = Callable[[Table, str], None]


class Commits:
    """Every mutation goes through here."""

    def __init__(
        self,
        catalog: Catalog,
        ledger: Ledger,
        pauses_s: tuple[float, ...] = (0.2, 1.0),
        metrics: Metrics | None = None,
    ) -> None:
        """`pauses_s` is how long to wait before a silent catalog is asked again what became of a change."""
        self._pauses_s = pauses_s
        self._catalog = catalog
        self._ledger = ledger
        self._whereabouts = Whereabouts(catalog, Lives(ledger))
        self._unsettled = Unsettled(catalog, ledger, self._whereabouts)
        self.order = Order()
        self._listeners: list[Callable[[TableName, str], None]] = []
        self._metrics = metrics or Metrics()
        self._metrics.read("firn_unsettled_changes", lambda: len(self._unsettled))

    def when_committed(self, listener: Callable[[TableName, str], None]) -> None:
        """Have a listener called with a table's name and UUID after each commit; it must be quick and never fail."""
        self._listeners.append(listener)

    def tell(self, table: Table) -> None:
        """A commit of this table was made and answered."""
        for listener in self._listeners:
            listener(table.name, table.uuid)

    def commit(
        self,
        table: Table,
        operation: str,
        ask: Ask,
        change: Change,
        *,
        in_order: bool = True,
        records: int = 0,
        undoes: str | None = None,
    ) -> Effect:
        """Run `change(table, batch)`, which commits at most once, stamped with `batch`; retried when beaten.

        `table` is the one the request was checked against. What the change did is read from the snapshot it made, so
        an answer lost between Spark and us loses nothing. If an earlier attempt with the same key has happened, its
        effect is given and nothing is run. With `in_order=False` it does not wait for other changes of the table: for
        long work that yields to them. `records` and `undoes` are noted: how many rows come, where that is known
        before, and what an UNDO takes back.
        """
        with self.alone_with(table) if in_order else nullcontext():
            if earlier := self.earlier(table, ask):
                return earlier
            for attempt in range(1, TRIES + 1):
                try:
                    return self._once(self.same(table), operation, ask, change, records, undoes)
                except CommitConflict as e:
                    if attempt == TRIES:
                        self._metrics.conflict(operation)
                        raise
                    self._metrics.retried(operation)
                    log.info("%s %s on %s was beaten, trying again: %s", ask.request_id, operation, table.name, e)
        raise AssertionError("unreachable")

    def happened(self, ask: Ask) -> Batch | None:
        """The batch of an earlier attempt with the same key, if that attempt had its effect.

        KeyBusy while another instance is at it.
        """
        return self.outcome(ask.earlier) if ask.earlier else None

    def earlier(self, table: Table, ask: Ask) -> Effect | None:
        """What an earlier attempt with the same key did, if it made a snapshot."""
        happened = self.happened(ask)
        if happened is None or happened.snapshot_id is None:
            return None
        current = self.same(table)
        return Effect(current, current.snapshot(happened.snapshot_id))

    def outcome(self, batch: str) -> Batch | None:
        """A batch that has ended, if it had its effect; what became of it is found out where that is not noted."""
        return self._unsettled.outcome(batch)

    def must_be_ours(self, batch: str) -> None:
        """Refuse to commit what another instance has taken over; asked when nothing but the commit is left to do."""
        if self._ledger.owners.shared and not self._ledger.is_ours(batch):
            raise CommitConflict("another instance took this change over, as it could not see us; send it again")

    def leave(self, batch: str, ask: Ask) -> Callable[[], None]:
        """What to ask when nothing but the commit is left to do: whether the batch and the request are still ours."""

        def still_ours() -> None:
            self.must_be_ours(batch)
            ask.still_ours()

        return still_ours

    def begin(
        self,
        batch: str,
        table: Table,
        operation: str,
        asks: Sequence[Ask],
        records: int = 0,
        shares: Shares | None = None,
    ) -> None:
        """Note a batch and the keys in it, and whose its rows are; before this, nothing of it may be committed."""
        self._begin(batch, table.name, table.uuid, operation, asks, records, shares)

    def table(self, name: TableName, ask: Ask) -> Table:
        """The table that a request is about; where an earlier attempt with the same key had its effect, the one it had
        it on, wherever that is by now."""
        happened = self.happened(ask)
        return self.find(happened.table, happened.table_uuid) if happened else self._catalog.load(name)

    def find(self, name: TableName, table_uuid: str) -> Table:
        """The table of this UUID, wherever it is by now: renamed, or dropped and kept."""
        return self._whereabouts.find(name, table_uuid)

    def found(self, batch: str, table: Table, failure: Exception) -> Snapshot | None:
        """The snapshot of a batch whose job failed, if it committed all the same.

        Without one it is noted void, or OutcomeUnknown says that nobody can tell.
        """
        snapshot = self._look(batch, table.name, failure, table.uuid).committed_by(batch)
        if snapshot is None:
            self._not_found(batch, failure)
        return snapshot

    def end(
        self,
        batch: str,
        snapshot_id: int | None,
        answers: dict[str, bytes] | None = None,
        writes: tuple[str, int] | None = None,
    ) -> None:
        """Note what a batch came to, its answers, and of which table it was how many WRITEs.

        The commit decides what happened, not the note: a ledger that fails now must not make a success a failure.
        """
        try:
            self._ledger.end(batch, snapshot_id, answers, writes)
        except LedgerUnavailable as e:
            self._unsettled.add(batch)
            log.error("the end of batch %s could not be noted; it will be: %s", batch, e.message)

    def keep(self, ask: Ask, answer: bytes) -> bytes:
        """Keep the answer to a request that needed no change, if it has a key; what is to be answered."""
        return answer if ask.key is None else store(self._ledger, ask.key, answer)

    def in_turn(self, table: Table) -> AbstractContextManager[None]:
        """Hold the table's turn: no change of it is being made, or looked for, meanwhile."""
        return self.order.hold(table.uuid)

    def create(
        self,
        name: TableName,
        schema: TableSchema,
        partition: tuple[PartitionField, ...],
        properties: dict[str, str],
        ask: Ask,
    ) -> Table:
        """Make a table; TableExists where there is one that no earlier attempt with the same key made."""
        if self.happened(ask):
            return self._catalog.load(name)
        if ask.key is None:
            return self._catalog.create(name, schema, partition, properties)
        batch = self._new()
        self._begin(batch, name, "", MAKE, [ask])
        with self._decided(batch, TableExists):
            return self._catalog.create(name, schema, partition, {**properties, BATCH_PROPERTY: batch})

    def make(self, name: TableName, ask: Ask, change: Callable[[str], None]) -> Table:
        """Have a table made by `change(batch)`, which gives it the property `firn-batch`, with rows or without.

        What it raises is raised where the table has not been made; TableExists says that there was one.
        """
        batch = self._new()
        self._begin(batch, name, "", MAKE, [ask])
        try:
            change(batch)
        except TableExists:
            self.end(batch, None)
            raise
        except Exception as e:
            if not self._was_made(batch, name, e):
                raise
            log.warning("%s %s was made although its job failed", ask.request_id, name, exc_info=e)
        self.end(batch, NO_SNAPSHOT)
        return self._look(batch, name, None)

    def _was_made(self, batch: str, name: TableName, failure: Exception) -> bool:
        try:
            table = self._look(batch, name, failure)
        except TableNotFound:
            return False
        made = table.properties.get(BATCH_PROPERTY) == batch
        if not made:
            self.end(batch, None)
        return made

    def unsure(self, batch: str) -> None:
        """Nobody could tell yet what became of a batch of ours; it is looked for again."""
        self._unsettled.add(batch)

    def find_out(self) -> None:
        """Look again for batches of ours of which nobody could tell what became of them."""
        self._unsettled.find_out()

    def recover(self) -> int:
        """Finish the notes that instances left unfinished which are gone; how many there were."""
        return self._unsettled.recover()

    def set_properties(self, table: Table, decide: Callable[[Table], Mapping[str, str | None]]) -> Table:
        """Set the properties that `decide` says, given the table as it is in its turn; None removes one.

        Nothing is noted of it: done twice, it comes to the same.
        """
        with self.alone_with(table):
            current = self.same(table)
            return self._catalog.set_properties(current, decide(current))

    def alter(self, table: Table, operation: str, ask: Ask, change: Callable[[Table], object]) -> None:
        """Run a change of a table's metadata that makes no snapshot, and that done twice comes to the same.

        With a key it is noted before, so that whoever sends it again can be told from who sends it first, by
        `ask.earlier`.
        """
        if self.happened(ask):
            return
        with self.alone_with(table):
            current = self.same(table)
            if ask.key is None:
                change(current)
                return
            batch = self._new()
            self.begin(batch, current, operation, [ask])
            with self._decided(batch, CommitConflict):
                change(current)

    def reshape(self, table: Table, operation: str, ask: Ask, change: Callable[[Table, str], Table]) -> Table:
        """Run `change(table, batch)`, one commit of a table's metadata that makes no snapshot and names the batch in
        the table's properties; the table after it. What is refused has changed nothing.
        """
        if self.happened(ask):
            return self.find(table.name, table.uuid)
        with self.alone_with(table):
            current = self.same(table)
            batch = self._new()
            self.begin(batch, current, operation, [ask])
            with self._decided(batch, InvalidRequest, CommitConflict, TableNotFound):
                return change(current, batch)

    @contextmanager
    def _decided(self, batch: str, *refusal: type[FirnError]) -> Iterator[None]:
        """Note that a change without a snapshot happened, or was refused; after any other failure nobody knows yet."""
        try:
            yield
        except refusal:
            self.end(batch, None)
            raise
        except BaseException:
            self._unsettled.add(batch)
            raise
        self.end(batch, NO_SNAPSHOT)

    @staticmethod
    def _new() -> str:
        return uuid.uuid4().hex

    def same(self, table: Table) -> Table:
        """The table as it is now, unless another one bears its name by now."""
        current = self._catalog.load(table.name)
        if current.uuid != table.uuid:
            raise TableNotFound(
                f"table {table.name.table!r} was dropped and created anew meanwhile; send the request again",
                field="table",
            )
        return current

    def _once(self, table: Table, operation: str, ask: Ask, change: Change, records: int, undoes: str | None) -> Effect:
        batch, started = self._new(), time.monotonic()
        self._begin(batch, table.name, table.uuid, operation, [ask], records, undoes=undoes)
        failure: Exception | None = None
        try:
            change(table, batch)
        except Exception as e:
            failure = e
        after = self._look(batch, table.name, failure, table.uuid)
        snapshot = after.committed_by(batch)
        if failure is not None and snapshot is None:
            self._not_found(batch, failure)
            raise failure
        if failure is not None:
            log.warning(
                "%s %s on %s committed although its job failed", ask.request_id, operation, table.name, exc_info=failure
            )
        self.end(batch, snapshot.snapshot_id if snapshot else None)
        if snapshot:
            self._metrics.committed(operation, time.monotonic() - started)
            self.tell(after)
        return Effect(after, snapshot)

    def _begin(
        self,
        batch: str,
        name: TableName,
        table_uuid: str,
        operation: str,
        asks: Sequence[Ask],
        records: int = 0,
        shares: Shares | None = None,
        undoes: str | None = None,
    ) -> None:
        keys = {ask.key.id: ask.key.fingerprint for ask in asks if ask.key}
        ids = [ask.request_id[:200] for ask in asks]
        whose = {ask.key.id: request_id for ask, request_id in zip(asks, ids, strict=True) if ask.key}
        self._ledger.begin(Begun(batch, name, table_uuid, operation, ids, records, keys, whose, shares, undoes))

    def _look(self, batch: str, name: TableName, failure: Exception | None, table_uuid: str = "") -> Table:
        """The table as it is now: only its history says whether a commit happened."""
        for pause in (*self._pauses_s, None):
            try:
                return self.find(name, table_uuid) if table_uuid else self._catalog.load(name)
            except TableNotFound:
                self.end(batch, None)
                raise
            except Exception as e:
                if pause is None:
                    self._unsettled.add(batch)
                    raise OutcomeUnknown(
                        f"whether the change happened could not be found out ({e}); sent again with its idempotency "
                        "key it happens once, without one look before sending it again",
                        details={"batch": batch},
                    ) from (failure or e)
                time.sleep(pause)
        raise AssertionError("unreachable")

    @contextmanager
    def alone_with(self, table: Table) -> Iterator[None]:
        """Hold the table's turn, here and among instances."""
        with self.order.hold(table.uuid), self._ledger.owners.table(table.uuid):
            yield

    def _not_found(self, batch: str, failure: Exception) -> None:
        """A batch that failed is not in the table: void, unless it may still come."""
        if isinstance(failure, OutcomeUnknown):
            self._unsettled.add(batch)
        else:
            self.end(batch, None)
