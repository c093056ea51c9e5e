"""The audit log in the ledger: who asked for what, and with which outcome."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select

from service.ledger.database import follows
from service.ledger.ledger import Ledger
from service.ledger.schema import audit

# The end of a page: when its last entry was recorded, and its id.
Place = tuple[int, str]


@dataclass(frozen=True)
class AuditRecord:
    """One request."""

    id: str
    at_ms: int
    request_id: str
    principal: str
    credential: str
    client: str
    operation: str
    tenant: str
    tables: tuple[str, ...]
    """As `namespace/table`; a namespace ends in `/`."""
    outcome: str
    status: int
    duration_ms: int


@dataclass(frozen=True)
class AuditFilter:
    """Which entries: those of a tenant, of a principal, …; None for any."""

    tenant: str | None = None
    principal: str | None = None
    operation: str | None = None
    outcome: str | None = None
    since_ms: int | None = None
    before_ms: int | None = None


class AuditRecords:
    """The table `audit` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(self, records: Sequence[AuditRecord]) -> None:
        with self._ledger._writing() as connection:
            connection.execute(insert(audit), [vars(each) | {"tables": json.dumps(each.tables)} for each in records])

    def find(self, which: AuditFilter, limit: int, after: Place | None = None) -> list[AuditRecord]:
        """The latest entries, newest first; those after a place, if one is given."""
        equal = {name: getattr(which, name) for name in ("tenant", "principal", "operation", "outcome")}
        where = [audit.c[name] == value for name, value in equal.items() if value is not None]
        if which.since_ms is not None:
            where.append(audit.c.at_ms >= which.since_ms)
        if which.before_ms is not None:
            where.append(audit.c.at_ms < which.before_ms)
        if after is not None:
            where.append(follows(after, audit.c.at_ms, audit.c.id))
        asked = select(audit).where(*where).order_by(audit.c.at_ms.desc(), audit.c.id).limit(limit)
        return [_record(row._mapping) for row in self._ledger.rows(asked)]

    def forget(self, before_ms: int, most: int) -> None:
        """Delete entries from before a time, and the oldest if there are more than `most`."""
        newest_first = select(audit.c.at_ms).order_by(audit.c.at_ms.desc()).offset(most).limit(1)
        beyond = self._ledger.row(newest_first)
        with self._ledger._writing() as connection:
            connection.execute(delete(audit).where(audit.c.at_ms < before_ms))
            if beyond is not None:
                connection.execute(delete(audit).where(audit.c.at_ms <= beyond.at_ms))


def _record(row: Any) -> AuditRecord:
    return AuditRecord(**{**row, "tables": tuple(json.loads(row["tables"]))})
