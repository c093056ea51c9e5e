"""The API keys in the ledger. The secret of a key is not there, only a hash of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, or_, select, text, update

from service.ledger.database import insert_new
from service.ledger.ledger import Ledger
from service.ledger.owners import lock_of
from service.ledger.schema import api_keys


@dataclass(frozen=True)
class ApiKeyRecord:
    """An API key as the ledger knows it; the columns are explained in `schema.py`."""

    id: str
    hash: str
    tenant: str
    principal: str
    name: str
    roles: str
    created_ms: int
    created_by: str
    expires_ms: int | None = None
    last_used_ms: int | None = None
    revoked_ms: int | None = None

    @property
    def sender(self) -> str:
        """The name of its principal among all tenants."""
        return f"{self.tenant}/{self.principal}"

    @property
    def role_list(self) -> list[str]:
        """`roles` has one in each line."""
        return self.roles.split("\n")

    def is_live(self, now_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class ApiKeyRecords:
    """The table `api_keys` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(
        self,
        record: ApiKeyRecord,
        now_ms: int,
        check: Callable[[Sequence[ApiKeyRecord]], None],
        *,
        expiring: str | None = None,
        expires_ms: int | None = None,
    ) -> None:
        """Store a key, unless `check`, which gets the principal's live keys, raises. Another key, `expiring`, gets an
        end in the same transaction, unless it has an earlier one.
        """
        with self._ledger._writing() as connection:
            _lock(connection, record.sender)
            asked = select(api_keys).where(*_live(record.tenant, record.principal, now_ms))
            live = [_record(row) for row in connection.execute(asked)]
            check(live)
            connection.execute(insert_new(connection, api_keys).values(**vars(record)))
            if expiring is not None:
                later = or_(api_keys.c.expires_ms.is_(None), api_keys.c.expires_ms > expires_ms)
                ended = update(api_keys).where(api_keys.c.id == expiring, later)
                connection.execute(ended.values(expires_ms=expires_ms))

    def find(self, id: str) -> ApiKeyRecord | None:
        row = self._ledger.row(select(api_keys).where(api_keys.c.id == id))
        return None if row is None else _record(row)

    def exist(self) -> bool:
        return self._ledger.row(select(api_keys.c.id).limit(1)) is not None

    def live_of(self, tenant: str, principal: str, now_ms: int) -> list[ApiKeyRecord]:
        """The live keys of a principal."""
        return self._found(*_live(tenant, principal, now_ms))

    def of_tenant(self, tenant: str) -> list[ApiKeyRecord]:
        """The keys of a tenant's principals, the latest first."""
        return self._found(api_keys.c.tenant == tenant)

    def revoke(self, id: str, now_ms: int) -> None:
        """End a key now; one that was revoked before stays as it is."""
        this = (api_keys.c.id == id, api_keys.c.revoked_ms.is_(None))
        self._ledger.changes(update(api_keys).where(*this).values(revoked_ms=now_ms).returning(api_keys.c.id))

    def used(self, id: str, now_ms: int) -> None:
        """Record that a key was used."""
        self._ledger.changes(
            update(api_keys).where(api_keys.c.id == id).values(last_used_ms=now_ms).returning(api_keys.c.id)
        )

    def _found(self, *where: ColumnElement[bool]) -> list[ApiKeyRecord]:
        asked = select(api_keys).where(*where).order_by(api_keys.c.created_ms.desc(), api_keys.c.id)
        return [_record(row) for row in self._ledger.rows(asked)]


def _live(tenant: str, principal: str, now_ms: int) -> tuple[ColumnElement[bool], ...]:
    unexpired = or_(api_keys.c.expires_ms.is_(None), api_keys.c.expires_ms > now_ms)
    of_principal = (api_keys.c.tenant == tenant, api_keys.c.principal == principal)
    return *of_principal, api_keys.c.revoked_ms.is_(None), unexpired


def _lock(connection: Connection, sender: str) -> None:
    """Keep others from adding a key of this principal until the transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": lock_of("principal", sender)})


def _record(row: Row[Any]) -> ApiKeyRecord:
    return ApiKeyRecord(**row._mapping)
