"""`firn worker` beside a service, on one ledger: a worker that dies is replaced, and nothing is done twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.faults.process import Process
from tests.harness import wait_until
from tests.postgres import PostgresServer

TENANT = {"tenant_id": "workers"}
ORDERS, TOTALS = {**TENANT, "table": "orders"}, {**TENANT, "table": "totals"}
SCHEMA = {"fields": {"id": {"type": "long"}, "customer": {"type": "long"}}}
QUERY = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
WORKER = ("worker", "--interval", "1", "--parallelism", "1", "--memory", "1g", "--tables", "workers.*")


class Workers:
    """A service that refreshes nothing by itself, and workers on its ledger."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self._folder, self._ledger = folder, postgres.url("worker_ledger")
        self._settings = {
            "LEDGER__URL": self._ledger,
            "CATALOG__TYPE": "postgresql",
            "CATALOG__URI": postgres.url("worker_catalog"),
            "CATALOG__WAREHOUSE": f"file://{folder}/warehouse",
        }
        self.service = Process(folder / "service", DYNAMIC__WORKER="false", **self._settings)
        self.service.wait_until_ready()

    def start(self, name: str) -> Process:
        return Process(self._folder / name, command=WORKER, **self._settings)

    def add(self, *ids: int) -> None:
        records = [{"id": id, "customer": id % 3} for id in ids]
        self.service.firn.ok({"operation": "WRITE", **ORDERS, "records": records})

    def wait_until_counted(self, rows: int) -> None:
        """Wait until the dynamic table has so many rows of its source."""
        wait_until(lambda: sum(row["n"] for row in self.service.firn.rows("workers", "totals")) == rows, 150)

    def is_refreshing(self) -> bool:
        with psycopg.connect(self._ledger) as connection:
            asked = "SELECT 1 FROM jobs WHERE kind = 'REFRESH' AND ended_ms IS NULL"
            return bool(connection.execute(asked).fetchall())


@pytest.fixture
def workers(tmp_path: Path, postgres: PostgresServer) -> Iterator[Workers]:
    made = Workers(tmp_path, postgres)
    try:
        yield made
    finally:
        made.service.__exit__()


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_worker_that_dies_in_a_refresh_is_replaced_by_another(workers: Workers) -> None:
    firn = workers.service.firn
    firn.ok({"operation": "CREATE_TABLE", **ORDERS, "schema": SCHEMA})
    workers.add(*range(10))
    firn.ok({"operation": "CREATE_DYNAMIC_TABLE", **TOTALS, "query": QUERY, "target_lag": "2 seconds"})
    first = workers.start("first")
    with first:
        workers.add(10, 11)
        workers.wait_until_counted(12)
        workers.add(12)
        wait_until(workers.is_refreshing, 60, every=0.005)
        first.kill()
    second = workers.start("second")
    with second:
        workers.wait_until_counted(13)
        assert firn.ok({"operation": "AUDIT_DYNAMIC_TABLE", **TOTALS})["matches"]
        refreshes: list[dict[str, Any]] = firn.ok({"operation": "REFRESH_HISTORY", **TOTALS})["refreshes"]
        assert refreshes[0]["requested_by"] == "worker"
        assert {one["state"] for one in refreshes} <= {"done", "failed"}
        second.terminate()
        assert second.exit_code(60) == 0
