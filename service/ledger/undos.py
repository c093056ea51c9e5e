"""What the ledger knows for UNDO: which changes a request made, whose rows were whose, and what was taken back."""

from collections.abc import Iterable, Sequence

from sqlalchemy import select

from service.ledger.asked import batch_requests
from service.ledger.ledger import Batch, Ledger, as_batch
from service.ledger.schema import batches, shares
from service.model.row_marks import RowShares

_AT_ONCE = 500
_DONE = batches.c.state == "done"


class UndoNotes:
    """The tables `batches` and `shares` of a ledger, read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def by_request(self, table_uuid: str, request_id: str, since_ms: int = 0) -> list[Batch]:
        """The changes of a table, begun since a time, that a request took part in; oldest first."""
        asked = select(batches).where(
            batches.c.table_uuid == table_uuid,
            batches.c.begun_ms >= since_ms,
            batches.c.request_ids.contains(request_id, autoescape=True),
        )
        with self._ledger._reading() as connection:
            found = [as_batch(row) for row in connection.execute(asked.order_by(batches.c.begun_ms)).all()]
        return [batch for batch in found if request_id in batch.request_ids]

    def by_snapshots(self, table_uuid: str, snapshot_ids: Iterable[int]) -> dict[int, Batch]:
        """The changes of a table that made these snapshots."""
        wanted = list(snapshot_ids)
        found: dict[int, Batch] = {}
        with self._ledger._reading() as connection:
            for i in range(0, len(wanted), _AT_ONCE):
                asked = select(batches).where(
                    batches.c.table_uuid == table_uuid, batches.c.snapshot_id.in_(wanted[i : i + _AT_ONCE]), _DONE
                )
                found |= {int(row.snapshot_id): as_batch(row) for row in connection.execute(asked).all()}
        return found

    def undone(self, table_uuid: str) -> list[Batch]:
        """The UNDOs of a table that had their effect, oldest first."""
        asked = select(batches).where(batches.c.table_uuid == table_uuid, batches.c.undoes.is_not(None), _DONE)
        with self._ledger._reading() as connection:
            return [as_batch(row) for row in connection.execute(asked.order_by(batches.c.begun_ms)).all()]

    def shares(self, batch: str) -> RowShares | None:
        """Which of a batch's rows were whose, if it was shared and that is kept still."""
        with self._ledger._reading() as connection:
            row = connection.execute(select(shares).where(shares.c.batch == batch)).one_or_none()
        if row is None:
            return None
        counts = tuple(int(count) for count in row.counts.split(","))
        return RowShares(counts, row.unmarked, bytes(row.marks), row.schema_id, row.until_ms)

    def among(self, operation: str, ids: Sequence[str]) -> set[str]:
        """Those of several batches that are changes of this kind."""
        return {batch for batch, asked in batch_requests(self._ledger, ids).items() if asked.operation == operation}

    def ids_of(self, batch: str) -> list[str]:
        """The request ids that share a batch; none of one that is not known."""
        noted = self._ledger.find(batch)
        return [] if noted is None else list(noted.request_ids)
