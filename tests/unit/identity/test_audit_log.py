"""The audit log: every request once, in the ledger and in a file, for a bounded time."""

import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from service.errors import LedgerUnavailable
from service.identity.audit_log import AuditLog, audit_log
from service.ledger.audit import AuditFilter, AuditRecord, AuditRecords
from service.ledger.ledger import Ledger
from service.model.call import Call
from service.model.identity.principal import Grant, Principal
from service.model.names import TableName
from service.model.times import HOUR_MS
from service.settings import SettingsError, load
from service.settings.security import AuditSettings
from tests.fakes import QuickLedger

DEFAULTS = AuditSettings()
ANN = Principal("acme/ann", (Grant("reader", "acme"),), "4fW9kQ0aBz")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = QuickLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield ledger
    ledger.close()


class SilentRecords(AuditRecords):
    silent = False

    def add(self, records: Sequence[AuditRecord]) -> None:
        if self.silent:
            raise LedgerUnavailable("no answer")
        super().add(records)


def call(*tables: str, principal: Principal = ANN, id: str = "r1") -> Call:
    made = Call(id, principal=principal, client="10.0.0.7")
    for table in tables:
        made.about(TableName("acme", *table.split("/")))
    return made


def log(ledger: Ledger, settings: AuditSettings = DEFAULTS, now_ms: int = 10**12) -> AuditLog:
    return AuditLog(settings, SilentRecords(ledger), on=True, now_ms=lambda: now_ms)


def test_an_entry_says_who_what_which_tables_and_the_outcome(ledger: Ledger) -> None:
    audit = log(ledger)
    query = call()
    query.about(TableName("acme", "", ""))
    for namespace, table in (("shop", "orders"), ("lab", "rats"), ("shop", "orders")):
        query.about(TableName("acme", namespace, table))
    audit.add(query, "QUERY", "ok", 200)
    [entry] = audit.find(AuditFilter("acme"), 10)
    audit.close()
    assert (entry.principal, entry.credential, entry.client, entry.request_id) == (
        *("acme/ann", "4fW9kQ0aBz", "10.0.0.7", "r1"),
    )
    assert (entry.operation, entry.tenant, entry.tables) == ("QUERY", "acme", ("shop/orders", "lab/rats"))
    assert (entry.outcome, entry.status) == ("ok", 200)


def test_entries_are_found_by_what_they_say_newest_first_and_in_pages(ledger: Ledger) -> None:
    times = iter(range(10**12, 10**12 + 10))
    audit = AuditLog(AuditSettings(), AuditRecords(ledger), on=True, now_ms=lambda: next(times))
    for i in range(4):
        audit.add(call("shop/orders", id=f"r{i}"), "WRITE" if i % 2 else "QUERY", "ok" if i else "FORBIDDEN", 200)
    audit._closed = True

    def ids(which: AuditFilter, limit: int = 10) -> list[str]:
        return [entry.request_id for entry in audit.find(which, limit)]

    assert ids(AuditFilter("acme")) == ["r3", "r2", "r1", "r0"]
    assert ids(AuditFilter("other")) == []
    assert ids(AuditFilter(principal="acme/ann", operation="WRITE")) == ["r3", "r1"]
    assert ids(AuditFilter(outcome="FORBIDDEN")) == ["r0"]
    assert ids(AuditFilter(since_ms=10**12 + 1, before_ms=10**12 + 3)) == ["r2", "r1"]
    [first, second] = audit.find(AuditFilter("acme"), 2)
    assert [entry.request_id for entry in audit.find(AuditFilter("acme"), 2, (second.at_ms, second.id))] == ["r1", "r0"]
    assert first.request_id == "r3"


def test_each_entry_is_a_line_of_json_that_only_the_service_can_read(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = log(ledger, AuditSettings(file=path))
    audit.add(call("shop/orders"), "QUERY", "ok", 200)
    audit.add(call(principal=Principal("anyone")), "NONE", "UNAUTHENTICATED", 401)
    audit.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["answered_at"] == "2001-09-09T01:46:40Z"
    assert (first["principal"], first["tables"], first["outcome"]) == ("acme/ann", ["shop/orders"], "ok")
    assert (second["outcome"], "tenant_id" in second) == ("UNAUTHENTICATED", False)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_the_files_are_bounded(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = log(ledger, AuditSettings(file=path, file_mb=1, files=2))
    for i in range(15_000):
        audit.add(call("shop/orders", id=f"r{i}"), "QUERY", "ok", 200)
    audit.close()
    kept = sorted(tmp_path.glob("audit.log*"))
    assert [each.name for each in kept] == ["audit.log", "audit.log.1"]
    assert all(each.stat().st_size <= 1 << 20 for each in kept)


def test_old_entries_go_and_so_do_those_beyond_the_most(ledger: Ledger) -> None:
    records = AuditRecords(ledger)
    now = 10**12
    for age in (0, 1, 2, 3, 100):
        audit = AuditLog(AuditSettings(), records, on=True, now_ms=lambda a=age: now - a * HOUR_MS)
        audit.add(call(id=f"r{age}"), "QUERY", "ok", 200)
        audit.close()
    records.forget(now - 50 * HOUR_MS, 10)
    assert [each.request_id for each in records.find(AuditFilter(), 10)] == ["r0", "r1", "r2", "r3"]
    records.forget(now - 50 * HOUR_MS, 2)
    assert [each.request_id for each in records.find(AuditFilter(), 10)] == ["r0", "r1"]


def test_entries_wait_while_the_ledger_is_silent_and_are_neither_lost_nor_doubled(ledger: Ledger) -> None:
    audit = log(ledger)
    assert isinstance(audit._records, SilentRecords)
    audit._records.silent = True
    for i in range(3):
        audit.add(call("shop/orders", id=f"r{i}"), "QUERY", "ok", 200)
        audit.flush()
    audit._records.silent = False
    audit.close()
    assert sorted(each.request_id for each in audit.find(AuditFilter(), 10)) == ["r0", "r1", "r2"]


def test_the_file_does_not_wait_for_the_ledger_and_has_each_entry_once(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = log(ledger, AuditSettings(file=path))
    assert isinstance(audit._records, SilentRecords)
    audit._records.silent = True
    for i in range(3):
        audit.add(call("shop/orders", id=f"r{i}"), "QUERY", "ok", 200)
        audit.flush()
    assert len(path.read_text().splitlines()) == 3
    audit._records.silent = False
    audit.close()
    assert len(path.read_text().splitlines()) == 3
    assert len(audit.find(AuditFilter(), 10)) == 3


def test_what_a_database_would_not_take_is_replaced(ledger: Ledger) -> None:
    audit = log(ledger)
    audit.add(call(id="a\0b\n\ud800"), "GET /\0" + "x" * 500, "NOT_FOUND", 404)
    [entry] = audit.find(AuditFilter(), 10)
    audit.close()
    assert (entry.request_id, entry.operation[:7], len(entry.operation)) == ("a?b??", "GET /?x", 100)


def test_it_is_on_where_senders_are_known_or_a_file_is_named(ledger: Ledger, tmp_path: Path) -> None:
    records = AuditRecords(ledger)
    assert not audit_log(load({}), records).on
    assert audit_log(load({"FIRN_AUTH__REQUIRED": "true"}), records).on
    assert audit_log(load({"FIRN_AUDIT__FILE": str(tmp_path / "a.log")}), records).on
    assert not audit_log(load({"FIRN_AUTH__REQUIRED": "true", "FIRN_AUDIT__ENABLED": "false"}), records).on
    with pytest.raises(SettingsError, match=r"audit\.file .* cannot be written"):
        audit_log(load({"FIRN_AUDIT__FILE": "/none/a.log"}), records)


def test_while_it_is_off_nothing_is_kept(ledger: Ledger) -> None:
    audit = AuditLog(AuditSettings(), AuditRecords(ledger), on=False)
    audit.add(call("shop/orders"), "QUERY", "ok", 200)
    assert audit.find(AuditFilter(), 10) == []
