"""API keys: created, rotated and revoked in the ledger, which all instances share, and recognised in requests."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from service.errors import ApiKeyNotFound, FirnError, Forbidden, InvalidRequest, TooManyApiKeys, Unauthenticated
from service.identity.key_text import KeyText
from service.ledger.api_keys import ApiKeyRecord, ApiKeyRecords
from service.model.identity.principal import Grant, Principal, check_principal
from service.model.times import HOUR_MS, now_ms

log = logging.getLogger("firn.identity")
# How long an instance uses what it has read of a key: a revocation takes effect everywhere after this time.
KNOWN_FOR_S = 2.0
LIVE_KEYS = 2
"""How many live keys a principal may have: the old one and the new one."""
_USE_NOTED_EVERY_MS = 5 * 60 * 1000
_MOST_KNOWN = 10_000
_NOT_VALID = "the API key is not valid; use another one, or ask an administrator for one"


@dataclass(frozen=True)
class NewApiKey:
    """A key that was just created: the only time that its text is known."""

    text: str
    record: ApiKeyRecord


@dataclass(frozen=True)
class _Known:
    record: ApiKeyRecord | None
    read_s: float


class ApiKeys:
    """Creates, lists, rotates and revokes keys for administrators, and recognises keys in requests."""

    def __init__(
        self,
        records: ApiKeyRecords,
        now_ms: Callable[[], int] = now_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._known: LRUCache[str, _Known] = LRUCache(_MOST_KNOWN)

    def create(
        self,
        by: Principal,
        tenant: str,
        principal: str,
        grants: Sequence[Grant],
        name: str = "",
        expires_hours: int | None = None,
    ) -> NewApiKey:
        """A new key of a tenant's principal. Forbidden if `by` is not an administrator of all that its roles reach."""
        check_principal(principal, "principal")
        if not name.isprintable():
            raise InvalidRequest.at("name", "has control characters; send plain text")
        if not grants:
            raise InvalidRequest.at("roles", "is empty; give at least one role")
        _check_may_manage(by, grants)
        roles = "\n".join(dict.fromkeys(map(str, grants)))
        new, record = self._made(by, tenant, principal, roles, name, expires_hours)
        self._records.add(record, record.created_ms, lambda live: _check_others(by, live, principal))
        return NewApiKey(str(new), record)

    def rotate(
        self, by: Principal, tenant: str, id: str, keep_hours: int, expires_hours: int | None = None
    ) -> NewApiKey:
        """Another key for the same principal with the same roles. The old one ends after `keep_hours`."""
        old = self._managed(by, tenant, id)
        new, record = self._made(by, old.tenant, old.principal, old.roles, old.name, expires_hours)
        now = record.created_ms
        if not old.is_live(now):
            raise ApiKeyNotFound(f"API key {id!r} has ended; create a new one", field="key_id")

        def check(live: Sequence[ApiKeyRecord]) -> None:
            _check_others(by, [each for each in live if keep_hours or each.id != old.id], old.principal)

        self._records.add(record, now, check, expiring=old.id, expires_ms=now + keep_hours * HOUR_MS)
        self._forget(old.id)
        return NewApiKey(str(new), record)

    def _made(
        self, by: Principal, tenant: str, principal: str, roles: str, name: str, expires_hours: int | None
    ) -> tuple[KeyText, ApiKeyRecord]:
        now, new = self._now_ms(), KeyText.new()
        expires_ms = None if expires_hours is None else now + expires_hours * HOUR_MS
        return new, ApiKeyRecord(new.id, new.hash, tenant, principal, name, roles, now, by.name, expires_ms)

    def revoke(self, by: Principal, tenant: str, id: str) -> ApiKeyRecord:
        """End a key at once on this instance, and within KNOWN_FOR_S on others."""
        record = self._managed(by, tenant, id)
        self._records.revoke(record.id, self._now_ms())
        self._forget(record.id)
        return self._records.find(record.id) or record

    def exist(self) -> bool:
        """Whether any key was ever created."""
        return self._records.exist()

    def managed_by(self, by: Principal, tenant: str) -> list[ApiKeyRecord]:
        """The keys of a tenant's principals that a principal may manage, the latest first."""
        return [record for record in self._records.of_tenant(tenant) if by.may_grant(grants_of(record))]

    def find(self, id: str) -> ApiKeyRecord | None:
        """A key by its id, at most KNOWN_FOR_S old."""
        known = self.known(id)
        if known is None:
            with self._reading:  # of many requests with a key, one reads it
                known = self.known(id)
                if known is None:
                    started = self._monotonic()
                    known = _Known(self._records.find(id), started)
                    self._note_use(known.record)
                    with self._lock:
                        self._known[id] = known
        return known.record

    def known(self, id: str) -> "_Known | None":
        """What was read of a key lately; None if the ledger has to be asked."""
        with self._lock:
            known = self._known.get(id)
        return known if known is not None and self._monotonic() - known.read_s < KNOWN_FOR_S else None

    def principal_of(self, key: KeyText) -> Principal:
        """Whose key it is; Unauthenticated if it is unknown, expired or revoked."""
        record = self.find(key.id)
        # Without a record the comparison is made all the same, so that it takes as long.
        if not key.matches(record.hash if record is not None else "0" * 64) or record is None:
            raise Unauthenticated(_NOT_VALID)
        if not record.is_live(self._now_ms()):
            ended = "was revoked" if record.revoked_ms is not None else "has expired"
            raise Unauthenticated(f"the API key {record.id} {ended}; use another one")
        return Principal(record.sender, grants_of(record), record.id)

    def current(self, sender: str) -> Principal:
        """A principal with the rights that all of its live keys have now."""
        tenant, _, principal = sender.partition("/")
        live = self._records.live_of(tenant, principal, self._now_ms())
        return Principal(sender, tuple(dict.fromkeys(grant for record in live for grant in grants_of(record))))

    def _note_use(self, record: ApiKeyRecord | None) -> None:
        """Record that a key was used, unless that was recorded lately: a request costs no write."""
        now = self._now_ms()
        if record is None or not record.is_live(now) or now - (record.last_used_ms or 0) < _USE_NOTED_EVERY_MS:
            return
        try:
            self._records.used(record.id, now)
        except FirnError as e:  # the key is valid all the same
            log.warning("the last use of API key %s could not be recorded: %s", record.id, e.message)

    def _managed(self, by: Principal, tenant: str, id: str) -> ApiKeyRecord:
        """A key that a principal may manage; the error is the same if there is none."""
        record = self._records.find(id) if id.isalnum() else None
        if record is None or record.tenant != tenant or not by.may_grant(grants_of(record)):
            raise ApiKeyNotFound(f"there is no API key {id[:80]!r}; LIST_KEYS lists those you manage", field="key_id")
        return record

    def _forget(self, id: str) -> None:
        with self._lock:
            self._known.pop(id, None)


def grants_of(record: ApiKeyRecord) -> tuple[Grant, ...]:
    return tuple(Grant.parse(role, "roles") for role in record.role_list)


def _check_may_manage(by: Principal, grants: Sequence[Grant]) -> None:
    for grant in grants:
        if not by.may_grant([grant]):
            raise Forbidden(
                f"roles: {by.name!r} may not give the role {grant}: that needs the role admin there", field="roles"
            )


def _check_others(by: Principal, live: Sequence[ApiKeyRecord], principal: str) -> None:
    """Refuse one more key for a principal that has too many, or some that `by` may not manage."""
    if not all(by.may_grant(grants_of(record)) for record in live):
        raise Forbidden(
            f"principal: {by.name!r} may not manage the keys of {principal!r}; choose another name", field="principal"
        )
    if len(live) >= LIVE_KEYS:
        ids = ", ".join(record.id for record in live)
        raise TooManyApiKeys(
            f"{principal!r} has {len(live)} live API keys ({ids}) and may have {LIVE_KEYS}; revoke one first",
            field="principal",
        )
