"""Queries in a process of their own: one that fills its heap, or a kill of it, ends no change."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.process import Process
from tests.harness import Firn, wait_until

ADDRESS = {"tenant_id": "acme", "table": "texts"}
# All rows have the same k, so each meets every other: 100,000 texts of 20,000 characters.
BOMB = "SELECT collect_list(concat(a.v, b.v)) AS l FROM texts a JOIN texts b ON a.k = b.k"
# Seconds of work in little memory.
LONG = "SELECT max(sha2(concat(a.v, b.v), 512)) AS m FROM texts a JOIN texts b ON a.k = b.k WHERE a.id < 25"
ROWS = 320


class Service:
    """A service whose queries have a process and a small heap of their own."""

    def __init__(self, home: Path) -> None:
        # By default, a query whose plan takes Spark long is refused before Spark gets it.
        plans = {"QUERIES__MAX_JOINS": "1000", "QUERIES__MAX_NODES": "1000000"}
        self.process = Process(home, SPARK__PROCESSES="2", SPARK__QUERY_MEMORY="600m", **plans)
        self.written = ROWS

    @property
    def firn(self) -> Firn:
        return self.process.firn

    def jvms(self) -> tuple[int, int]:
        """The JVM of changes, and that of queries."""
        changes = [jvm for jvm in self.process.jvms() if parent(jvm) == self.process.id]
        queries = [jvm for jvm in self.process.jvms() if jvm not in changes]
        assert len(changes) == len(queries) == 1
        return changes[0], queries[0]

    def starts(self) -> int:
        return self.figure("firn_query_process_starts_total")

    def figure(self, name: str) -> int:
        lines = self.firn.client.get("/metrics").text.splitlines()
        return int(float(next(line for line in lines if line.startswith(f"{name} ")).split()[1]))

    def write(self) -> None:
        self.firn.ok({"operation": "WRITE", **ADDRESS, "records": [{"id": self.written, "k": 1, "v": "x"}]})
        self.written += 1

    def count(self) -> int:
        found = self.firn.ok({"operation": "QUERY", **ADDRESS, "aggregations": [{"op": "count"}]})
        return int(found["data"][0]["count"])

    def sql(self, text: str) -> dict[str, Any]:
        # On a busy machine, a heap is not full before the usual time limit.
        request = {"operation": "QUERY", "tenant_id": "acme", "sql": text, "timeout_ms": 300_000}
        return Firn(self.firn.base_url).post(request)


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("queries-apart"))
    try:
        made.process.wait_until_ready()
        fields = {"id": {"type": "long"}, "k": {"type": "long"}, "v": {"type": "string"}}
        made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": fields}})
        rows = [{"id": i, "k": 0, "v": f"{i:05}" * 2000} for i in range(ROWS)]
        made.firn.ok({"operation": "WRITE", **ADDRESS, "records": rows})
        assert made.count() == ROWS
        yield made
    finally:
        made.process.__exit__()


def test_a_query_that_fills_the_heap_fails_alone_beside_writes_and_cheap_queries(service: Service) -> None:
    changes, queries = service.jvms()
    with ThreadPoolExecutor(1) as pool:
        bomb = pool.submit(service.sql, BOMB)
        while not bomb.done():
            service.write()
            assert service.count() == service.written
        error = bomb.result()["error"]
    assert (error["code"], error["retryable"], error["details"]) == ("QUERY_TOO_EXPENSIVE", False, {"reason": "memory"})
    assert service.count() == service.written
    now = service.jvms()
    assert now[0] == changes, "the process that writes is the same after all of it"
    assert now[1] != queries
    assert service.process.defects() == []


KILLS: dict[str, Callable[[Service], int]] = {
    "jvm": lambda service: service.jvms()[1],
    "process": lambda service: parent(service.jvms()[1]),
}


@pytest.mark.thorough  # tests/unit/engine/test_query_process.py kills processes without Spark in the same ways
@pytest.mark.parametrize("what", KILLS)
def test_queries_whose_process_is_killed_run_again(service: Service, what: str) -> None:
    changes, _ = service.jvms()
    starts = service.starts()
    expected = service.sql(LONG)["data"]
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(service.sql, LONG) for _ in range(3)]
        wait_until(lambda: "3.0" in busy(service), 60, every=0.01)
        os.kill(KILLS[what](service), signal.SIGKILL)
        service.write()
        assert [each.result(120).get("data") for each in running] == [expected] * 3
    assert service.starts() == starts + 1
    assert service.jvms()[0] == changes


@pytest.mark.thorough  # the same machinery as above, for half a minute
def test_of_several_queries_only_those_that_fill_the_heap_are_refused(service: Service) -> None:
    changes, _ = service.jvms()
    expected = service.sql(LONG)["data"]
    with ThreadPoolExecutor(4) as pool:
        bombs = [pool.submit(service.sql, BOMB) for _ in range(2)]
        others = [pool.submit(service.sql, LONG) for _ in range(2)]
        assert [each.result(300)["error"]["code"] for each in bombs] == ["QUERY_TOO_EXPENSIVE"] * 2
        assert [each.result(300).get("data") for each in others] == [expected] * 2
    assert service.count() == service.written  # the process may have to start again
    assert service.jvms()[0] == changes


@pytest.mark.thorough  # a plan that takes Spark minutes, and a deadline
def test_a_cancelled_query_that_spark_cannot_interrupt_costs_its_process(service: Service) -> None:
    changes, queries = service.jvms()
    # Spark pushes each condition through each of the joins, over and over.
    doubling = ", ".join(f"c{i} AS (SELECT a.id FROM c{i - 1} a JOIN c{i - 1} b ON a.id = b.id)" for i in range(1, 10))
    text = f"WITH c0 AS (SELECT id FROM texts), {doubling} SELECT count(*) AS n FROM c9"
    request = {"operation": "QUERY", "tenant_id": "acme", "sql": text, "timeout_ms": 10_000}
    service.firn.fail(request, "DEADLINE_EXCEEDED", 504)
    assert service.count() == service.written
    assert service.jvms()[0] == changes
    assert service.jvms()[1] != queries
    assert service.figure('firn_query_process_ends_total{reason="stuck"}') == 1


def busy(service: Service) -> str:
    lines = service.firn.client.get("/metrics").text.splitlines()
    return next(line for line in lines if line.startswith('firn_query_sessions{state="busy"}'))


def test_a_killed_service_leaves_no_process_of_queries(service: Service) -> None:
    """The last test of this file: it ends the service."""
    _, queries = service.jvms()
    child = parent(queries)
    service.process.kill()
    service.process.wait_until_no_jvm(30)
    wait_until(lambda: not Path(f"/proc/{child}/environ").exists() or is_zombie(child), 30)


def is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
