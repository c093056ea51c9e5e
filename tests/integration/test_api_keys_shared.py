"""API keys and the audit log of several instances on one ledger in PostgreSQL."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.errors import TooManyApiKeys, Unauthenticated
from service.identity.api_keys import ApiKeys
from service.identity.audit_log import AuditLog
from service.identity.key_text import KeyText
from service.ledger.api_keys import ApiKeyRecords
from service.ledger.audit import AuditFilter, AuditRecords
from service.ledger.ledger import Ledger
from service.model.call import Call
from service.model.identity.principal import LOCAL, Grant
from service.settings.security import AuditSettings
from tests.harness import wait_until
from tests.postgres import PostgresServer

WRITER = [Grant("writer", "acme")]


@pytest.fixture
def ledgers(postgres: PostgresServer) -> Iterator[tuple[Ledger, Ledger]]:
    url = postgres.url("api_keys")
    both = Ledger(url), Ledger(url)
    yield both
    for ledger in both:
        ledger.close()


def test_a_key_revoked_on_one_instance_ends_on_the_others_within_5_s(ledgers: tuple[Ledger, Ledger]) -> None:
    here, there = (ApiKeys(ApiKeyRecords(ledger)) for ledger in ledgers)
    new = here.create(LOCAL, "acme", "loader", WRITER)
    key = KeyText.read(new.text)
    assert key is not None
    assert there.principal_of(key).name == "acme/loader"
    here.revoke(LOCAL, "acme", new.record.id)
    revoked = time.monotonic()

    def has_ended() -> bool:
        try:
            there.principal_of(key)
        except Unauthenticated:
            return True
        return False

    wait_until(has_ended, 50)
    assert time.monotonic() - revoked < 5


def test_a_principal_has_two_live_keys_however_many_instances_create_them(ledgers: tuple[Ledger, Ledger]) -> None:
    instances = [ApiKeys(ApiKeyRecords(ledger)) for ledger in ledgers]

    def create(number: int) -> bool:
        try:
            instances[number % 2].create(LOCAL, "acme", "crowd", WRITER)
        except TooManyApiKeys:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(create, range(16))) == 2


def test_the_audit_log_of_all_instances_is_one_and_takes_any_path(ledgers: tuple[Ledger, Ledger]) -> None:
    logs = [AuditLog(AuditSettings(), AuditRecords(ledger), on=True) for ledger in ledgers]
    for number, log in enumerate(logs):
        log.add(Call(f"r{number}\0", principal=LOCAL), "GET /\0\n" + "x" * 500, "NOT_FOUND", 404)
        log.close()
    assert {each.request_id for each in logs[0].find(AuditFilter(principal="local"), 10)} == {"r0?", "r1?"}
    AuditRecords(ledgers[0]).forget(0, 1)
    assert len(logs[1].find(AuditFilter(), 10)) == 1
