"""The ledger's notes of who asked for changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from service.ledger.ledger import Ledger
from service.ledger.schema import batches

_AT_ONCE = 500  # values in one IN (…)


@dataclass(frozen=True)
class BatchRequests:
    """Which operation a change was, and the requests that share it, in the order in which they came."""

    operation: str
    request_ids: tuple[str, ...]


def batch_requests(ledger: Ledger, ids: Sequence[str]) -> dict[str, BatchRequests]:
    """Who asked for changes, by their batches; those that are noted no longer are left out."""
    noted = select(batches.c.batch, batches.c.operation, batches.c.request_ids)
    found: dict[str, BatchRequests] = {}
    for some in _parts(ids):
        with ledger._reading() as connection:
            for row in connection.execute(noted.where(batches.c.batch.in_(some))):
                found[row.batch] = BatchRequests(row.operation, tuple(filter(None, row.request_ids.split("\n"))))
    return found


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[i : i + _AT_ONCE] for i in range(0, len(ids), _AT_ONCE))
