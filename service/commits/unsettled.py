"""Changes of which nobody could tell, when they were made, what became of them."""

import logging
from contextlib import suppress

from service.catalog.alter import happened
from service.catalog.tables import Catalog, Table
from service.commits.whereabouts import STEPS, Whereabouts
from service.errors import FirnError, KeyBusy, TableNotFound
from service.ledger.ledger import TAKEN, UNFINISHED, Batch, Ledger
from service.names import BATCH_PROPERTY

log = logging.getLogger("firn.commits")

MAKE, DROP = "CREATE_TABLE", "DROP_TABLE"
# What changes no snapshot, so that none can be built on it.
_UNFENCED = frozenset({MAKE, *STEPS.values()})
NO_SNAPSHOT = 0


class Unsettled:
    """Batches that have no end noted: ours that are to be looked for again, and those of instances that are gone."""

    def __init__(self, catalog: Catalog, ledger: Ledger, whereabouts: Whereabouts) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._whereabouts = whereabouts
        self._batches: set[str] = set()

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: str) -> None:
        """Have a batch of ours looked for again."""
        self._batches.add(batch)

    def outcome(self, batch: str) -> Batch | None:
        """A batch that has ended, if it had its effect; what became of it is found out where that is not noted."""
        noted = self._ledger.find(batch)
        if noted is not None and noted.state in UNFINISHED:
            self._find_out(noted)
            noted = self._ledger.find(batch)
        return noted if noted is not None and noted.state == "done" else None

    def find_out(self) -> None:
        """Look again for batches of ours of which nobody could tell what became of them."""
        for batch in list(self._batches):
            try:
                self.outcome(batch)
            except FirnError as e:
                log.info("what became of batch %s still cannot be found out: %s", batch, e.message)
            else:
                self._batches.discard(batch)

    def recover(self) -> int:
        """Finish the notes that instances left unfinished which are gone."""
        left = [noted for noted in self._ledger.unfinished() if self._ledger.owners.gone(noted.owner)]
        for noted in left:
            try:
                self._find_out(noted)
            except KeyBusy:
                log.info("batch %s of %s is looked after by another instance", noted.batch, noted.table)
            except Exception as e:  # one unreadable table must not keep the others from being served
                log.error("what became of batch %s of %s cannot be read: %s", noted.batch, noted.table, e)
        return len(left)

    def _find_out(self, noted: Batch) -> None:
        """Note what became of a batch that has no end noted."""
        owners = self._ledger.owners
        if noted.owner != owners.me and not owners.gone(noted.owner):
            raise KeyBusy
        if owners.shared and (noted.owner != owners.me or noted.state == TAKEN):
            self._take_over(noted)
        else:
            self._settle(noted)

    def _take_over(self, noted: Batch) -> None:
        """Find out what became of a batch whose owner we cannot see, though its JVM may still be about to commit.

        The owner looks whether the batch is its own after it has built its commit on the newest snapshot. So first
        the batch is made ours, then the table gets a snapshot of ours: what the owner has built before is refused for
        not being built on that one, and what it builds after it does not commit. Only then can the history tell.
        """
        with self._ledger.owners.table(noted.table_uuid):
            if not self._ledger.take_over(noted):
                raise KeyBusy("another instance looks after a request with this key")
            self._batches.add(noted.batch)
            if noted.operation not in _UNFENCED:
                with suppress(TableNotFound):
                    self._catalog.fence(self._whereabouts.find(noted.table, noted.table_uuid), noted.batch)
            self._settle(noted)
        self._batches.discard(noted.batch)
        log.warning("took over batch %s of %s from an instance that is gone", noted.batch, noted.table)

    def _settle(self, noted: Batch) -> None:
        """Find out what became of a batch that was begun, and note it."""
        if noted.operation in STEPS.values() and self._whereabouts.settle_step(noted.table_uuid, noted.batch):
            return
        table: Table | None = None
        with suppress(TableNotFound):
            making = noted.operation == MAKE
            table = self._catalog.load(noted.table) if making else self._whereabouts.find(noted.table, noted.table_uuid)
        if noted.operation == MAKE:
            made = table is not None and table.properties.get(BATCH_PROPERTY) == noted.batch
            self._ledger.end(noted.batch, NO_SNAPSHOT if made else None)
        elif noted.operation == DROP:  # of a version that noted no more of it
            self._ledger.end(noted.batch, NO_SNAPSHOT if table is None else None)
        else:
            snapshot = table.committed_by(noted.batch) if table else None
            effect = snapshot.snapshot_id if snapshot else None
            if effect is None and table is not None and happened(table, noted.batch):
                effect = NO_SNAPSHOT
            self._ledger.end(noted.batch, effect)
