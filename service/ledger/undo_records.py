"""What UNDO reads in the ledger: the changes of a request, the rows of each request, and earlier UNDOs."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, select

from service.ledger.database import parts
from service.ledger.ledger import Batch, Ledger, as_batch
from service.ledger.requests import requests_by_batch
from service.ledger.schema import batches, request_rows, shares
from service.model.keyed.records import RequestRows, read_rows
from service.model.row_marks import RowShares

_DONE = batches.c.state == "done"


class UndoRecords:
    """Reads the tables `batches`, `shares` and `request_rows` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def by_request(self, table_uuid: str, request_id: str, since_ms: int = 0) -> list[Batch]:
        """The batches of a table that a request took part in, if they began after a time; oldest first."""
        contains = batches.c.request_ids.contains(request_id, autoescape=True)
        found = self._found(table_uuid, batches.c.begun_ms >= since_ms, contains)
        return [batch for batch in found if request_id in batch.request_ids]

    def by_snapshots(self, table_uuid: str, snapshot_ids: Iterable[int]) -> dict[int, Batch]:
        """The batches that committed these snapshots of a table."""
        found: dict[int, Batch] = {}
        for some in parts(list(snapshot_ids)):
            done = self._found(table_uuid, batches.c.snapshot_id.in_(some), _DONE)
            found |= {batch.snapshot_id: batch for batch in done if batch.snapshot_id is not None}
        return found

    def batch(self, batch: str) -> Batch | None:
        """A batch, if it is known."""
        return self._ledger.find(batch)

    def undone(self, table_uuid: str) -> list[Batch]:
        """The UNDOs of a table that were committed, oldest first."""
        return self._found(table_uuid, batches.c.undoes.is_not(None), _DONE)

    def shares(self, batch: str) -> RowShares | None:
        """Which rows of a batch belong to which request; None if it was not shared, or if that is kept no longer."""
        row = self._ledger.row(select(shares).where(shares.c.batch == batch))
        if row is None:
            return None
        counts = tuple(int(count) for count in row.counts.split(","))
        return RowShares(counts, row.unmarked, bytes(row.marks), row.schema_id, row.until_ms)

    def rows_by_request(self, batch: str) -> RequestRows | None:
        """The rows that each request of a batch removed and added; None if no edits share it, or if that is kept no
        longer."""
        row = self._ledger.row(select(request_rows).where(request_rows.c.batch == batch))
        return None if row is None else read_rows(bytes(row.rows), row.schema_id, row.until_ms)

    def among(self, operation: str, ids: Sequence[str]) -> set[str]:
        """Those of these batches that have this operation."""
        return {batch for batch, of in requests_by_batch(self._ledger, ids).items() if of.operation == operation}

    def ids_of(self, batch: str) -> list[str]:
        """The ids of the requests that share a batch; none if it is not known."""
        found = self._ledger.find(batch)
        return list(found.request_ids) if found else []

    def _found(self, table_uuid: str, *where: ColumnElement[bool]) -> list[Batch]:
        asked = select(batches).where(batches.c.table_uuid == table_uuid, *where).order_by(batches.c.begun_ms)
        return [as_batch(row) for row in self._ledger.rows(asked)]
