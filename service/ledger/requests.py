"""Which requests made which changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select

from service.ledger.database import parts
from service.ledger.ledger import Ledger
from service.ledger.schema import batches
from service.model.keyed.records import RequestPart, read_parts


@dataclass(frozen=True)
class BatchRequests:
    """The operation of a batch, and the requests that share it, in the order in which they came."""

    operation: str
    request_ids: tuple[str, ...]
    parts: tuple[RequestPart, ...] = ()
    """What each of them did, if edits share the batch."""


def requests_by_batch(ledger: Ledger, ids: Sequence[str]) -> dict[str, BatchRequests]:
    """The requests of batches, by batch id; batches that the ledger does not know are left out."""
    asked = select(batches.c.batch, batches.c.operation, batches.c.request_ids, batches.c.parts)
    rows = ledger.rows(*(asked.where(batches.c.batch.in_(some)) for some in parts(ids)))
    return {row.batch: BatchRequests(row.operation, _request_ids(row), read_parts(row.parts)) for row in rows}


def _request_ids(row: Row[Any]) -> tuple[str, ...]:
    return tuple(filter(None, row.request_ids.split("\n")))
