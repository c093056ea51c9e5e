"""The worker of the service: it keeps a dynamic table up to date by itself, and its metrics say so."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from service.dynamic.worker import DynamicWorker
from tests.harness import Firn, wait_until
from tests.support.tables import ServedTable

SCHEMA = {"fields": {"id": {"type": "long"}, "customer": {"type": "long"}}}


@pytest.fixture
def working(firn: Firn, tenant: str) -> Iterator[None]:
    """The service's worker looks at the tenant's tables again and again, for one test."""
    worker = firn.app.parts[DynamicWorker]
    own = replace(worker, options=replace(worker.options, interval_s=0.2, tables=(f"{tenant}.*",)))
    own.start()
    yield
    own.close(60)


@pytest.mark.usefixtures("working")
def test_the_service_keeps_a_dynamic_table_up_to_date(firn: Firn, tenant: str) -> None:
    orders = ServedTable(firn, tenant, "orders", schema=SCHEMA)
    orders.write({"id": 1, "customer": 1})
    totals = ServedTable(firn, tenant, "totals")
    query = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
    totals.ok("CREATE_DYNAMIC_TABLE", query=query, target_lag="2 seconds")
    orders.write({"id": 2, "customer": 1}, {"id": 3, "customer": 2})

    def is_up_to_date() -> bool:
        return sorted((row["customer"], row["n"]) for row in totals.rows()) == [(1, 2), (2, 1)]

    wait_until(is_up_to_date, 120)
    [last] = totals.ok("REFRESH_HISTORY", limit=1)["refreshes"]
    assert (last["requested_by"], last["state"]) == ("worker", "done")

    def is_metered() -> bool:
        text = firn.client.get("/metrics").text
        labels = f'namespace="default",table="totals",tenant="{tenant}"'
        return all(
            f"{name}{{{labels}}}" in text
            for name in ("firn_table_dynamic_lag_seconds", "firn_table_dynamic_target_lag_seconds")
        )

    wait_until(is_metered, 60)
    totals.ok("ALTER_DYNAMIC_TABLE", suspend=True)  # the other tests of this service need its sessions
