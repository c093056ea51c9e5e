"""No request outlives its caller or starves the others: queries that would never end beside other tenants' requests."""

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from service.engine.session import cancellation, jvm, priorities
from tests.harness import Firn, wait_until
from tests.support.clients import active_stages, computing, waiting

# The columns are equal in all rows, which shows only while the query runs.
ENDLESS = (
    "SELECT count(*) c FROM heavy a JOIN heavy b ON a.id % 1 = b.id % 1 AND a.v < b.v "
    "JOIN heavy c ON b.id % 1 = c.id % 1 AND b.v < c.v AND a.id < c.id"
)
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
def every_session_is_free_afterwards(firn: Firn, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And tasks that do not notice that they were cancelled, which occupy a core, are stopped soon."""
    monkeypatch.setattr(cancellation, "_PATIENCE_S", 0.1)
    yield
    wait_until(lambda: firn.app.engine.lent == 0, 60)
    wait_until(lambda: not active_stages(), 60)


def endless(tenant: str, **more: Any) -> dict[str, Any]:
    return {"operation": "QUERY", "tenant_id": tenant, "table": "heavy", "sql": ENDLESS, **more}


def write(firn: Firn, tenant: str, number: int) -> None:
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "small", "records": [{"id": number, "v": "x"}]})


def has_response(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_a_client_that_hangs_up_frees_its_spark_session(firn: Firn, heavy: str) -> None:
    with computing(firn, endless(heavy)):
        assert firn.app.engine.lent == 1
    wait_until(lambda: firn.app.engine.lent == 0, 60)
    wait_until(lambda: not firn.app.pipeline.busy, 60)


def test_a_query_is_cancelled_at_its_deadline(firn: Firn, heavy: str) -> None:
    error = firn.fail(endless(heavy, timeout_ms=1500), "DEADLINE_EXCEEDED", 504)
    assert "timeout_ms" in error["message"]
    wait_until(lambda: firn.app.engine.lent == 0, 60)


def test_beside_abandoned_and_endless_queries_others_are_served(firn: Firn, heavy: str, small: str) -> None:
    with ExitStack() as leaving:
        for _ in range(3):
            leaving.enter_context(computing(firn, endless(heavy)))
    with ExitStack() as staying:
        clients = [staying.enter_context(waiting(firn, endless(heavy))) for _ in range(4)]
        wait_until(lambda: firn.app.engine.lent >= 3, 60)  # as many as one tenant may have
        for number in range(5):
            assert firn.ok({"operation": "LIST_TABLES", "tenant_id": small})["tables"] == ["small"]
            write(firn, small, number)
        assert not any(map(has_response, clients)), "the others were served beside them, not after them"
        assert firn.client.get("/ready").json() == {"ready": True, "state": "ready"}
    assert len(firn.rows(small, "small")) == 5


def nice_of_tasks(firn: Firn) -> list[int]:
    """How nice the threads that run Spark's tasks are, by the operating system's account."""
    process = jvm.process()
    assert process is not None
    stats = [(thread / "stat").read_text() for thread in Path(f"/proc/{process.pid}/task").iterdir()]
    return [int(stat.rpartition(")")[2].split()[16]) for stat in stats if "(Executor task l" in stat]


def test_tasks_of_an_endless_query_have_a_low_priority_beside_writes_until_it_ends(
    firn: Firn, heavy: str, small: str
) -> None:
    lowest = priorities.NICE if priorities.java_options("local[*]") else 0

    def is_low_beside_a_write() -> bool:
        write(firn, small, 1)
        return max(nice_of_tasks(firn), default=0) == lowest

    with computing(firn, endless(heavy)):
        wait_until(is_low_beside_a_write, 60)
    wait_until(lambda: not any(nice_of_tasks(firn)), 60)


@pytest.mark.thorough  # the tests above cancel fewer queries, in the same ways
def test_tasks_of_a_cancelled_query_leave_their_slots_to_others(firn: Firn, heavy: str, small: str) -> None:
    """More of them than there are slots for tasks, one after the other."""
    for _ in range(10):
        with computing(firn, endless(heavy)):
            pass
    write(firn, small, 1)
    assert len(firn.rows(small, "small")) == 1
