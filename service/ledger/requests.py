"""Which requests made which changes."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from service.ledger.database import parts
from service.ledger.ledger import Ledger, request_ids
from service.ledger.schema import batches


@dataclass(frozen=True)
class BatchRequests:
    """The operation of a batch, and the requests that share it, in the order in which they came."""

    operation: str
    request_ids: tuple[str, ...]


def requests_by_batch(ledger: Ledger, ids: Sequence[str]) -> dict[str, BatchRequests]:
    """The requests of batches, by batch id; batches that the ledger does not know are left out."""
    asked = select(batches.c.batch, batches.c.operation, batches.c.request_ids)
    rows = ledger.rows(*(asked.where(batches.c.batch.in_(some)) for some in parts(ids)))
    return {row.batch: BatchRequests(row.operation, request_ids(row)) for row in rows}
