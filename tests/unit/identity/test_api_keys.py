"""API keys: who may make them, what they are good for, and how soon one ends on every instance."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.errors import ApiKeyNotFound, Forbidden, InvalidRequest, LedgerUnavailable, TooManyApiKeys, Unauthenticated
from service.identity.api_keys import KNOWN_FOR_S, ApiKeys
from service.identity.key_text import KeyText
from service.ledger.api_keys import ApiKeyRecord, ApiKeyRecords
from service.ledger.ledger import Ledger
from service.model.identity.principal import LOCAL, Grant, Principal
from service.model.times import HOUR_MS
from tests.fakes import QuickLedger

ADMIN = Principal("acme/ann", (Grant("admin", "acme"),))
WRITER = (Grant("writer", "acme"),)


@dataclass
class Clock:
    ms: int = 1_800_000_000_000
    s: float = 0.0

    def pass_s(self, seconds: float) -> None:
        self.s += seconds
        self.ms += round(seconds * 1000)


class CountedRecords(ApiKeyRecords):
    """Counts what is asked of the ledger."""

    silent = False

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.reads = 0
        self.uses = 0

    def find(self, id: str) -> ApiKeyRecord | None:
        self.reads += 1
        if self.silent:
            raise LedgerUnavailable("no answer")
        return super().find(id)

    def used(self, id: str, now_ms: int) -> None:
        self.uses += 1
        if self.silent:
            raise LedgerUnavailable("no answer")
        super().used(id, now_ms)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = QuickLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield ledger
    ledger.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def instance(ledger: Ledger, clock: Clock) -> tuple[ApiKeys, CountedRecords]:
    records = CountedRecords(ledger)
    return ApiKeys(records, lambda: clock.ms, lambda: clock.s), records


@pytest.fixture
def keys(ledger: Ledger, clock: Clock) -> ApiKeys:
    return instance(ledger, clock)[0]


def read(text: str) -> KeyText:
    key = KeyText.read(text)
    assert key is not None
    return key


def test_a_key_names_its_principal_and_its_rights(keys: ApiKeys) -> None:
    new = keys.create(ADMIN, "acme", "loader", [*WRITER, Grant("reader", "acme", "lab")])
    sender = keys.principal_of(read(new.text))
    assert (sender.name, sender.credential) == ("acme/loader", new.record.id)
    assert sender.may("writer", "acme", "shop")
    assert not sender.may("admin", "acme", "shop")


def test_the_ledger_does_not_hold_the_key(keys: ApiKeys, tmp_path: Path, ledger: Ledger) -> None:
    new = keys.create(ADMIN, "acme", "loader", WRITER)
    ledger.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert new.record.id.encode() in stored
    assert read(new.text).secret.encode() not in stored


def test_a_revoked_key_ends_here_at_once_and_on_other_instances_within_5_s(ledger: Ledger, clock: Clock) -> None:
    here, _ = instance(ledger, clock)
    there, _ = instance(ledger, clock)
    new = here.create(ADMIN, "acme", "loader", WRITER)
    key = read(new.text)
    assert there.principal_of(key) == here.principal_of(key)
    here.revoke(ADMIN, "acme", new.record.id)
    with pytest.raises(Unauthenticated, match="was revoked"):
        here.principal_of(key)
    assert KNOWN_FOR_S < 5
    clock.pass_s(KNOWN_FOR_S)
    with pytest.raises(Unauthenticated, match="was revoked"):
        there.principal_of(key)


def test_a_key_is_read_once_in_that_time_and_its_use_recorded_seldom(ledger: Ledger, clock: Clock) -> None:
    keys, records = instance(ledger, clock)
    key = read(keys.create(ADMIN, "acme", "loader", WRITER).text)
    for _ in range(100):
        keys.principal_of(key)
        clock.pass_s(0.1)
    assert records.reads == 10 / KNOWN_FOR_S
    assert records.uses == 1
    clock.pass_s(600)
    keys.principal_of(key)
    assert records.uses == 2


def test_a_key_whose_revocation_cannot_be_read_is_not_accepted(ledger: Ledger, clock: Clock) -> None:
    keys, records = instance(ledger, clock)
    key = read(keys.create(ADMIN, "acme", "loader", WRITER).text)
    keys.principal_of(key)
    records.silent = True
    keys.principal_of(key)
    clock.pass_s(KNOWN_FOR_S)
    with pytest.raises(LedgerUnavailable):
        keys.principal_of(key)


def test_an_expired_key_is_refused_at_its_time(keys: ApiKeys, clock: Clock) -> None:
    key = read(keys.create(ADMIN, "acme", "loader", WRITER, expires_hours=1).text)
    clock.pass_s(3599)
    keys.principal_of(key)
    clock.pass_s(1)
    with pytest.raises(Unauthenticated, match="has expired"):
        keys.principal_of(key)


def test_an_unknown_key_and_a_wrong_secret_get_the_same_answer(keys: ApiKeys) -> None:
    new = keys.create(ADMIN, "acme", "loader", WRITER)
    messages = set()
    for key in (KeyText.new(), KeyText(new.record.id, KeyText.new().secret)):
        with pytest.raises(Unauthenticated) as refused:
            keys.principal_of(key)
        messages.add(refused.value.message)
    assert len(messages) == 1


def test_a_principal_has_two_live_keys_at_most(keys: ApiKeys, clock: Clock) -> None:
    first = keys.create(ADMIN, "acme", "loader", WRITER, expires_hours=1)
    second = keys.create(ADMIN, "acme", "loader", WRITER)
    with pytest.raises(TooManyApiKeys, match="revoke one first"):
        keys.create(ADMIN, "acme", "loader", WRITER)
    with pytest.raises(TooManyApiKeys):
        keys.rotate(ADMIN, "acme", second.record.id, keep_hours=1)
    keys.create(LOCAL, "other", "loader", WRITER)  # another tenant's principal of that name
    clock.pass_s(3600)
    keys.create(ADMIN, "acme", "loader", WRITER)
    assert first.record.id not in [key.id for key in keys._records.live_of("acme", "loader", clock.ms)]


@pytest.mark.parametrize("keep_hours", [0, 24])
def test_rotation_gives_a_new_key_with_the_same_rights_and_ends_the_old_one(
    keep_hours: int, keys: ApiKeys, clock: Clock
) -> None:
    old = keys.create(ADMIN, "acme", "loader", WRITER, "nightly")
    new = keys.rotate(ADMIN, "acme", old.record.id, keep_hours)
    sender = keys.principal_of(read(new.text))
    assert (sender.name, sender.grants, new.record.name) == ("acme/loader", WRITER, "nightly")
    clock.pass_s(keep_hours * 3600 - 1)
    if keep_hours:
        keys.principal_of(read(old.text))
    clock.pass_s(1)
    with pytest.raises(Unauthenticated):
        keys.principal_of(read(old.text))
    with pytest.raises(ApiKeyNotFound, match="has ended"):
        keys.rotate(ADMIN, "acme", old.record.id, 24)


def test_rotation_does_not_prolong_a_key(keys: ApiKeys, clock: Clock) -> None:
    old = keys.create(ADMIN, "acme", "loader", WRITER, expires_hours=1)
    keys.rotate(ADMIN, "acme", old.record.id, keep_hours=24)
    found = keys.find(old.record.id)
    assert found is not None
    assert found.expires_ms == clock.ms + HOUR_MS


@pytest.mark.parametrize("role", ["admin:*", "reader:*", "reader:other", "admin:other/shop"])
def test_nobody_gives_rights_beyond_those_of_an_administrator(role: str, keys: ApiKeys) -> None:
    with pytest.raises(Forbidden):
        keys.create(ADMIN, "acme", "loader", [Grant.parse(role, "roles")])
    assert keys.managed_by(LOCAL, "acme") == []


@pytest.mark.parametrize("by", [Principal("w", WRITER), Principal("s", (Grant("admin", "acme", "shop"),))])
def test_without_the_role_admin_nobody_manages_keys(by: Principal, keys: ApiKeys) -> None:
    new = keys.create(ADMIN, "acme", "loader", WRITER)
    with pytest.raises(Forbidden):
        keys.create(by, "acme", "more", WRITER)
    for act in (lambda: keys.rotate(by, "acme", new.record.id, 1), lambda: keys.revoke(by, "acme", new.record.id)):
        with pytest.raises(ApiKeyNotFound):
            act()
    assert keys.managed_by(by, "acme") == []


def test_the_keys_of_another_tenant_are_answered_as_if_there_were_none(keys: ApiKeys) -> None:
    foreign = keys.create(LOCAL, "other", "loader", [Grant("reader", "other")])
    above = keys.create(LOCAL, "acme", "root", [Grant("admin")])
    messages = set()
    for tenant, id in (
        ("acme", foreign.record.id),
        ("acme", above.record.id),
        ("other", foreign.record.id),
    ):
        for act in (
            lambda t=tenant, i=id: keys.rotate(ADMIN, t, i, 1),
            lambda t=tenant, i=id: keys.revoke(ADMIN, t, i),
        ):
            with pytest.raises(ApiKeyNotFound) as refused:
                act()
            messages.add(refused.value.message.replace(id, "ID"))
    with pytest.raises(ApiKeyNotFound) as refused:
        keys.revoke(ADMIN, "acme", "ID")
    assert messages == {refused.value.message}
    with pytest.raises(ApiKeyNotFound, match="there is no API key"):  # a text that PostgreSQL would not take
        keys.revoke(ADMIN, "acme", "\0")
    assert keys.managed_by(ADMIN, "acme") == []
    keys.principal_of(read(foreign.text))
    keys.principal_of(read(above.text))


def test_an_administrator_cannot_add_a_key_to_a_principal_with_more_rights(keys: ApiKeys) -> None:
    keys.create(LOCAL, "acme", "root", [Grant("admin")])
    with pytest.raises(Forbidden, match="choose another name"):
        keys.create(ADMIN, "acme", "root", WRITER)


@pytest.mark.parametrize("name", ["", "a/b", "jwt:ann", "a b", "é", "a" * 101, "a\n"])
def test_a_name_that_could_be_taken_for_another_is_refused(name: str, keys: ApiKeys) -> None:
    with pytest.raises(InvalidRequest, match="is not a name"):
        keys.create(ADMIN, "acme", name, WRITER)


def test_a_note_that_a_database_would_not_take_is_refused(keys: ApiKeys) -> None:
    with pytest.raises(InvalidRequest, match="control characters"):
        keys.create(ADMIN, "acme", "loader", WRITER, "a\0")


def test_the_rights_of_a_principal_are_those_of_its_live_keys(keys: ApiKeys) -> None:
    one = keys.create(ADMIN, "acme", "loader", WRITER)
    two = keys.create(ADMIN, "acme", "loader", [Grant("reader", "acme", "lab")])
    assert set(keys.current("acme/loader").grants) == {*WRITER, Grant("reader", "acme", "lab")}
    keys.revoke(ADMIN, "acme", one.record.id)
    keys.revoke(ADMIN, "acme", two.record.id)
    assert keys.current("acme/loader") == Principal("acme/loader")
