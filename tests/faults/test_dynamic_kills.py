"""A refresh of a dynamic table that is killed at any step is completed by the next one; nothing is doubled."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from service.model.names import TableName
from tests.faults.evidence import DatabaseLock, Disk, locked
from tests.faults.points import reached
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn
from tests.support.marks import thorough_except

TENANT = "dynamic"


@contextmanager
def while_it_is_computed(result: Disk, table: str, catalog: DatabaseLock) -> Iterator[None]:
    """The refresh is in the history, and has no batch yet."""
    with closing(sqlite3.connect(result.ledger, timeout=10)) as ledger:
        asked = "SELECT 1 FROM dynamic_refreshes WHERE state = 'running' AND table_name = ?"
        reached(lambda: ledger.execute(asked, [table]).fetchall())
    yield


@contextmanager
def at_the_swap(result: Disk, table: str, catalog: DatabaseLock) -> Iterator[None]:
    """Everything is written but the catalog's pointer."""
    reached(lambda: _is_at_the_swap(result))
    yield


@contextmanager
def after_the_commit(result: Disk, table: str, catalog: DatabaseLock) -> Iterator[None]:
    """The table has the new rows, and the ledger cannot learn it."""
    reached(lambda: _is_at_the_swap(result))
    [batch] = result.begun()
    with locked(result.ledger):
        catalog.release()
        reached(lambda: batch in result.committed())
        yield


def _is_at_the_swap(disk: Disk) -> bool:
    return any(disk.uncommitted(batch) for batch in disk.begun())


MOMENTS = [while_it_is_computed, at_the_swap, after_the_commit]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", thorough_except(["INCREMENTAL"], ["INCREMENTAL", "FULL"]))
@pytest.mark.parametrize("moment", thorough_except([after_the_commit], MOMENTS), ids=lambda moment: moment.__name__)
def test_a_refresh_that_is_killed_is_completed_by_the_next_one(
    service: RestartedService, moment: Callable[[Disk, str, DatabaseLock], Any], mode: str
) -> None:
    suffix = f"{moment.__name__}_{mode.lower()}"[-30:]
    victim = Victim(service, TableName(TENANT, "default", f"orders_{suffix}"))
    address = {"tenant_id": TENANT, "table": f"orders_{suffix}"}
    totals = {"tenant_id": TENANT, "table": f"totals_{suffix}"}
    query = f"SELECT customer, count(*) AS n FROM orders_{suffix} GROUP BY customer"
    schema = {"fields": {"id": {"type": "long"}, "customer": {"type": "long"}}}
    send = victim.firn.ok
    send({"operation": "CREATE_TABLE", **address, "schema": schema})
    send({"operation": "WRITE", **address, "records": [{"id": i, "customer": i % 5} for i in range(50)]})
    how = {"target_lag": "1 day", "scheduler": "DISABLED", "refresh_mode": mode}
    send({"operation": "CREATE_DYNAMIC_TABLE", **totals, "query": query, **how})
    send({"operation": "WRITE", **address, "records": [{"id": 50, "customer": 1}, {"id": 51, "customer": 9}]})
    refresh = {"operation": "REFRESH_DYNAMIC_TABLE", **totals}
    result = victim.disk.of(f"totals_{suffix}")
    before = result.snapshots()
    with ThreadPoolExecutor(1) as pool, locked(victim.disk.catalog) as catalog:
        sent = pool.submit(Firn(victim.firn.base_url).send, refresh)
        with moment(result, totals["table"], catalog):
            victim.kill()
    victim.start()
    assert isinstance(sent.exception(), httpx.TransportError)
    is_committed = moment is after_the_commit
    assert result.snapshots() == before + is_committed
    assert victim.firn.ok(refresh)["mode"] == ("NO_DATA" if is_committed else mode)
    assert result.snapshots() == before + 1
    rows = {row["customer"]: row["n"] for row in victim.firn.rows(TENANT, f"totals_{suffix}")}
    assert rows == {0: 10, 1: 11, 2: 10, 3: 10, 4: 10, 9: 1}
    listed = victim.firn.ok({"operation": "REFRESH_HISTORY", **totals})["refreshes"]
    assert {one["state"] for one in listed} == ({"done"} if is_committed else {"done", "failed"})
    assert victim.firn.ok({"operation": "AUDIT_DYNAMIC_TABLE", **totals})["matches"]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_pass_that_is_killed_between_two_tables_is_completed_by_the_next_one(service: RestartedService) -> None:
    victim = Victim(service, TableName(TENANT, "default", "chain_orders"))
    send = victim.firn.ok
    orders, totals, top = ({"tenant_id": TENANT, "table": f"chain_{name}"} for name in ("orders", "totals", "top"))
    how = {"operation": "CREATE_DYNAMIC_TABLE", "target_lag": "1 day", "scheduler": "DISABLED"}
    strict = {"refresh_mode": "INCREMENTAL_STRICT"}
    schema = {"fields": {"id": {"type": "long"}, "customer": {"type": "long"}}}
    send({"operation": "CREATE_TABLE", **orders, "schema": schema})
    send({"operation": "WRITE", **orders, "records": [{"id": i, "customer": i % 5} for i in range(50)]})
    query = "SELECT customer, count(*) AS n FROM chain_orders GROUP BY customer"
    send({**how, **strict, **totals, "query": query})
    send({**how, **strict, **top, "query": "SELECT sum(n) AS n, count(*) AS customers FROM chain_totals"})
    send({"operation": "WRITE", **orders, "records": [{"id": 50, "customer": 1}, {"id": 51, "customer": 9}]})
    refresh = {"operation": "REFRESH_DYNAMIC_TABLE", **top}
    lower, upper = victim.disk.of("chain_totals"), victim.disk.of("chain_top")
    before = lower.snapshots(), upper.snapshots()
    with ThreadPoolExecutor(1) as pool, locked(victim.disk.catalog) as catalog:
        sent = pool.submit(Firn(victim.firn.base_url).send, refresh)
        reached(lambda: _is_at_the_swap(lower))
        catalog.release()
        with while_it_is_computed(upper, "chain_top", catalog):
            catalog.take()
            victim.kill()
    victim.start()
    assert isinstance(sent.exception(), httpx.TransportError)
    assert lower.snapshots() == before[0] + 1
    send = victim.firn.ok
    send(refresh)
    assert (lower.snapshots(), upper.snapshots()) == (before[0] + 1, before[1] + 1)
    [row] = victim.firn.rows(TENANT, "chain_top")
    assert row == {"n": 52, "customers": 6}
    for table in (totals, top):
        assert send({"operation": "AUDIT_DYNAMIC_TABLE", **table})["matches"]


class Declaring:
    """A table with two rows for each of three customers, and a request that declares a dynamic table over it."""

    def __init__(self, victim: Victim, name: str) -> None:
        self.victim = victim
        self.name = name
        self.orders = {"tenant_id": TENANT, "table": f"{name}_orders"}
        self.table = {"tenant_id": TENANT, "table": name}
        schema = {"fields": {"id": {"type": "long"}, "customer": {"type": "long"}}}
        self.send({"operation": "CREATE_TABLE", **self.orders, "schema": schema})
        self.send({"operation": "WRITE", **self.orders, "records": [{"id": i, "customer": i % 3} for i in range(6)]})
        self.disk = victim.disk.of(name)

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        return self.victim.firn.ok(request)

    def request(self, columns: str) -> dict[str, Any]:
        query = f"SELECT customer, {columns} FROM {self.name}_orders GROUP BY customer"
        how = {"target_lag": "1 day", "scheduler": "DISABLED", "replace": True}
        return {"operation": "CREATE_DYNAMIC_TABLE", **self.table, "query": query, **how}

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.victim.firn.rows(TENANT, self.name), key=lambda row: row["customer"])

    def expected(self, **columns: int) -> list[dict[str, Any]]:
        return [{"customer": customer, **columns} for customer in range(3)]

    def killed(self, request: dict[str, Any], moment: Callable[[Disk, str, DatabaseLock], Any]) -> None:
        """Send a request, and kill the service at a moment of the build; then start it again."""
        with ThreadPoolExecutor(1) as pool, locked(self.victim.disk.catalog) as catalog:
            catalog.release()
            sent = pool.submit(Firn(self.victim.firn.base_url).send, request)
            with while_it_is_computed(self.disk, self.name, catalog):
                catalog.take()
                with moment(self.disk, self.name, catalog):
                    self.victim.kill()
        self.victim.start()
        assert isinstance(sent.exception(), httpx.TransportError)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_create_that_is_killed_shows_nothing_half_made_and_can_be_sent_again(
    service: RestartedService, moment: Callable[[Disk, str, DatabaseLock], Any]
) -> None:
    victim = Victim(service, TableName(TENANT, "default", "any"))
    made = Declaring(victim, f"created_{moment.__name__}"[:40])
    request = made.request("count(*) AS n")
    made.killed(request, moment)
    if moment is after_the_commit:
        assert made.rows() == made.expected(n=2)
    else:
        assert made.disk.snapshots() == 0
        victim.firn.fail({"operation": "QUERY", **made.table}, "TABLE_NOT_BUILT", 409)
    if moment is while_it_is_computed:  # what reads it has it built first
        upper = {**request, "table": f"{made.name}_upper", "query": f"SELECT n FROM {made.name}"}
        assert made.send(upper)["records_inserted"] == 3
    again = made.send(request)
    assert again["change"] == ("created" if moment is at_the_swap else "nothing")
    assert made.disk.snapshots() == 1
    assert made.rows() == made.expected(n=2)
    assert made.send({"operation": "AUDIT_DYNAMIC_TABLE", **made.table})["matches"]


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_replacement_that_is_killed_leaves_the_old_result_or_the_whole_new_one(
    service: RestartedService, moment: Callable[[Disk, str, DatabaseLock], Any]
) -> None:
    victim = Victim(service, TableName(TENANT, "default", "any"))
    made = Declaring(victim, f"replaced_{moment.__name__}"[:40])
    made.send(made.request("count(*) AS n"))
    before = made.disk.snapshots()
    request = made.request("sum(1) AS rows, count(*) AS n")
    made.killed(request, moment)
    is_committed = moment is after_the_commit
    old, new = made.expected(n=2), made.expected(rows=2, n=2)
    assert made.rows() == (new if is_committed else old)
    described = made.send({"operation": "DESCRIBE_DYNAMIC_TABLE", **made.table})["dynamic_table"]
    assert ("rows" in described["schema"]["fields"], "sum(1)" in described["query"]) == (is_committed, is_committed)
    made.send({"operation": "WRITE", **made.orders, "records": [{"id": 9, "customer": 0}]})
    if not is_committed:  # the old query is still refreshed
        assert made.send({"operation": "REFRESH_DYNAMIC_TABLE", **made.table})["mode"] in ("INCREMENTAL", "FULL")
        assert made.rows()[0] == {"customer": 0, "n": 3}
    again = made.send(request)
    assert again["change"] == ("nothing" if is_committed else "rebuild")
    made.send({"operation": "REFRESH_DYNAMIC_TABLE", **made.table})
    assert made.rows()[0] == {"customer": 0, "rows": 3, "n": 3}
    assert made.send({"operation": "AUDIT_DYNAMIC_TABLE", **made.table})["matches"]
    assert made.disk.snapshots() == before + 2
