"""One change to one table: in its turn, noted before, stamped, and looked up before anything is said of it."""

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.order import Order
from service.errors import CommitConflict, LedgerUnavailable, OutcomeUnknown, TableNotFound
from service.ledger.ledger import Ledger
from service.names import TableName

log = logging.getLogger("firn.commits")

TRIES = 4


@dataclass(frozen=True)
class Effect:
    """The table before and after a change, and the snapshot that the change made, if it made one."""

    before: Table
    after: Table
    snapshot: Snapshot | None

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that holds the effect; without one, the table's current."""
        return self.snapshot.snapshot_id if self.snapshot else self.after.current_snapshot_id


Change = Callable[[Table, str], None]


class Commits:
    """Every mutation goes through here."""

    def __init__(self, catalog: Catalog, ledger: Ledger, pauses_s: tuple[float, ...] = (0.2, 1.0)) -> None:
        """`pauses_s` is how long to wait before a silent catalog is asked again what became of a change."""
        self._pauses_s = pauses_s
        self._catalog = catalog
        self._ledger = ledger
        self._order = Order()

    def commit(self, table: Table, operation: str, request_id: str, change: Change, *, in_order: bool = True) -> Effect:
        """Run `change(table, batch)`, which commits at most once, stamped with `batch`; retried when beaten.

        `table` is the one the request was checked against. What the change did is read from the snapshot it made, so
        an answer lost between Spark and us loses nothing. With `in_order=False` it does not wait for other changes of
        the table: for long work that yields to them.
        """
        with self._order.hold(table.uuid) if in_order else nullcontext():
            for attempt in range(1, TRIES + 1):
                try:
                    return self._once(self._same(table), operation, request_id, change)
                except CommitConflict as e:
                    if attempt == TRIES:
                        raise
                    log.info("%s %s on %s was beaten, trying again: %s", request_id, operation, table.name, e.message)
        raise AssertionError("unreachable")

    def _same(self, table: Table) -> Table:
        """The table as it is now, unless another one bears its name by now."""
        current = self._catalog.load(table.name)
        if current.uuid != table.uuid:
            raise TableNotFound(
                f"table {table.name.table!r} was dropped and created anew meanwhile; send the request again",
                field="table",
            )
        return current

    def _once(self, table: Table, operation: str, request_id: str, change: Change) -> Effect:
        batch = uuid.uuid4().hex
        self._ledger.begin(batch, table.name, table.uuid, operation, request_id)
        failure: Exception | None = None
        try:
            change(table, batch)
        except Exception as e:
            failure = e
        after = self._look(table, batch, failure)
        snapshot = after.committed_by(batch)
        if failure is not None and snapshot is None:
            if not isinstance(failure, OutcomeUnknown):
                self._note_end(batch, None)
            raise failure
        if failure is not None:
            log.warning(
                "%s %s on %s committed although its job failed", request_id, operation, table.name, exc_info=failure
            )
        self._note_end(batch, snapshot.snapshot_id if snapshot else None)
        return Effect(table, after, snapshot)

    def _note_end(self, batch: str, snapshot_id: int | None) -> None:
        """The commit decides what happened, not the note: a ledger that fails now must not make a success a failure."""
        try:
            self._ledger.end(batch, snapshot_id)
        except LedgerUnavailable as e:
            log.error("the end of batch %s could not be noted; the next start will: %s", batch, e.message)

    def _look(self, table: Table, batch: str, failure: Exception | None) -> Table:
        """The table as it is now: only its history says whether a commit happened."""
        for pause in (*self._pauses_s, None):
            try:
                return self._catalog.load(table.name)
            except TableNotFound:
                self._note_end(batch, None)
                raise
            except Exception as e:
                if pause is None:
                    raise OutcomeUnknown(
                        f"whether the change happened could not be found out ({e}); look before sending it again",
                        details={"batch": batch},
                    ) from (failure or e)
                time.sleep(pause)
        raise AssertionError("unreachable")

    def in_turn(self, table: Table) -> AbstractContextManager[None]:
        """Hold the table's turn: no change of it is being made, or looked for, meanwhile."""
        return self._order.hold(table.uuid)

    def drop(self, name: TableName, *, purge: bool) -> None:
        """Drop a table once the changes before it are done."""
        table = self._catalog.load(name)
        with self._order.hold(table.uuid):
            self._catalog.drop(self._same(table), purge=purge)

    def recover(self) -> int:
        """Finish the notes that a crash left unfinished; safe because one process owns them."""
        left = self._ledger.unfinished()
        for mutation in left:
            try:
                table = self._catalog.load(mutation.table)
                snapshot = table.committed_by(mutation.batch) if table.uuid == mutation.table_uuid else None
            except TableNotFound:
                snapshot = None
            except Exception as e:  # one unreadable table must not keep the others from being served
                log.error("what became of batch %s of %s cannot be read: %s", mutation.batch, mutation.table, e)
                continue
            self._note_end(mutation.batch, snapshot.snapshot_id if snapshot else None)
        return len(left)
