"""No request outlives its caller or starves the others: queries that would never end beside other tenants' requests."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.engine.session import jvm, priorities
from tests.harness import Firn, wait_until

ENDLESS = "SELECT count(*) c FROM heavy a JOIN heavy b ON a.v < b.v JOIN heavy c ON b.v < c.v AND a.id < c.id"
SCHEMA = {"fields": {"id": {"type": "long"}, "v": {"type": "string"}}}


@pytest.fixture(scope="module")
def heavy(firn: Firn) -> str:
    """A tenant whose table is large enough that joining it with itself takes hours."""
    tenant = "tenant-heavy"
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "heavy", "schema": SCHEMA})
    rows = [{"id": i, "v": str(i * 7919 % 100_003)} for i in range(60_000)]
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "heavy", "records": rows})
    return tenant


@pytest.fixture
def small(firn: Firn, tenant: str) -> str:
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "small", "schema": SCHEMA})
    return tenant


@pytest.fixture(autouse=True)
def every_session_is_free_afterwards(firn: Firn) -> Iterator[None]:
    yield
    wait_until(lambda: firn.app.engine.lent == 0, 60)


def endless(tenant: str, **more: Any) -> dict[str, Any]:
    return {"operation": "QUERY", "tenant_id": tenant, "table": "heavy", "sql": ENDLESS, **more}


def write(firn: Firn, tenant: str, number: int) -> None:
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "small", "records": [{"id": number, "v": "x"}]})


def hang_up(firn: Firn, request: dict[str, Any]) -> None:
    """Send a request, and close the connection once its query has a Spark session."""
    before = firn.app.engine.lent
    with httpx.Client(base_url=firn.base_url) as client, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(client.post, "/database", json=request, timeout=2)
        wait_until(lambda: firn.app.engine.lent > before, 60)
        with suppress(httpx.TimeoutException):
            sent.result()


def test_a_client_that_hangs_up_frees_its_spark_session(firn: Firn, heavy: str) -> None:
    hang_up(firn, endless(heavy))
    wait_until(lambda: firn.app.engine.lent == 0, 60)
    wait_until(lambda: not firn.app.pipeline.busy, 60)


def test_a_query_is_cancelled_at_its_deadline(firn: Firn, heavy: str) -> None:
    error = firn.fail(endless(heavy, timeout_ms=1500), "DEADLINE_EXCEEDED", 504)
    assert "timeout_ms" in error["message"]
    wait_until(lambda: firn.app.engine.lent == 0, 60)


def test_beside_abandoned_and_endless_queries_others_are_served(firn: Firn, heavy: str, small: str) -> None:
    leaving = [threading.Thread(target=hang_up, args=(firn, endless(heavy))) for _ in range(3)]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join()
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(firn.post, endless(heavy, timeout_ms=30_000)) for _ in range(4)]
        wait_until(lambda: firn.app.engine.longest_wait_s > 0, 60)  # as many as may have a session have one
        for number in range(5):
            assert firn.ok({"operation": "LIST_TABLES", "tenant_id": small})["tables"] == ["small"]
            write(firn, small, number)
        assert not any(answer.done() for answer in waiting), "the others were served beside them, not after them"
        assert firn.client.get("/ready").json() == {"ready": True, "state": "ready"}
        codes = [answer.result()["error"]["code"] for answer in waiting]
    assert codes == ["DEADLINE_EXCEEDED"] * 4
    assert len(firn.rows(small, "small")) == 5


def nice_of_tasks(firn: Firn) -> list[int]:
    """How nice the threads that run Spark's tasks are, by the operating system's account."""
    process = jvm.process()
    assert process is not None
    stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{process.pid}/task").iterdir()]
    return [int(stat.rpartition(")")[2].split()[16]) for stat in stats if "(Executor task l" in stat]


def test_tasks_of_an_endless_query_have_a_low_priority_until_it_ends(firn: Firn, heavy: str, small: str) -> None:
    lowest = 19 if priorities.java_options("local[*]") else 0
    with ThreadPoolExecutor(1) as pool:
        query = pool.submit(firn.post, endless(heavy, timeout_ms=8_000))
        wait_until(lambda: max(nice_of_tasks(firn), default=0) == lowest, 60)
        write(firn, small, 1)
        assert query.result()["error"]["code"] == "DEADLINE_EXCEEDED"
    wait_until(lambda: not any(nice_of_tasks(firn)), 60)


def test_tasks_of_a_cancelled_query_leave_their_slots_to_others(firn: Firn, heavy: str, small: str) -> None:
    """More of them than there are slots for tasks, one after the other."""
    for _ in range(10):
        firn.fail(endless(heavy, timeout_ms=1200), "DEADLINE_EXCEEDED")
    write(firn, small, 1)
    assert len(firn.rows(small, "small")) == 1
