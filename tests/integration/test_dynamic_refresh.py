"""Refreshes of dynamic tables on Spark: whatever happens to the sources, the result is that of its query."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.tables import ServedTable

ORDERS = {"id": "long", "customer": "long", "amount": "decimal(10,2)"}
CUSTOMERS = {"id": "long", "region": "string"}
TOTALS = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"


class Dynamic(ServedTable):
    """A dynamic table of the running service, refreshed only by request."""

    def __init__(self, firn: Firn, tenant: str, name: str, query: str, **options: Any) -> None:
        super().__init__(firn, tenant, name)
        self.query = query
        given = {"target_lag": "1 day", "refresh_mode": "INCREMENTAL_STRICT", "scheduler": "DISABLED", **options}
        self.ok("CREATE_DYNAMIC_TABLE", query=query, **given)

    def refresh(self, **fields: Any) -> dict[str, Any]:
        return self.ok("REFRESH_DYNAMIC_TABLE", **fields)

    def mode(self, **fields: Any) -> str:
        answer = self.refresh(**fields)
        return f"{answer['mode']} {answer['reason']}"

    def check(self) -> None:
        """Its rows are those of its query now."""
        expected = self.firn.ok({"operation": "QUERY", "tenant_id": self.tenant, "sql": self.query})["data"]
        assert in_order(self.rows()) == in_order(expected)


def schema_of(columns: dict[str, str]) -> dict[str, Any]:
    return {"fields": {name: {"type": kind} for name, kind in columns.items()}}


def in_order(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


@pytest.fixture
def orders(firn: Firn, tenant: str) -> ServedTable:
    table = ServedTable(firn, tenant, "orders", schema=schema_of(ORDERS))
    table.write(*({"id": i, "customer": i % 7, "amount": f"{i}.50"} for i in range(100)))
    return table


def snapshots(table: ServedTable) -> int:
    return table.loaded.snapshot_count


def test_a_result_follows_inserts_updates_and_deletes(firn: Firn, tenant: str, orders: ServedTable) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    totals.check()
    assert totals.mode() == "NO_DATA NO_CHANGES"
    orders.write({"id": 100, "customer": 3, "amount": "1.00"}, {"id": 101, "customer": 50, "amount": "2.00"})
    assert totals.mode() == "INCREMENTAL REFRESH_MODE"
    totals.check()
    orders.ok("UPDATE", filter={"id": 5}, updates={"customer": 6})
    orders.ok("DELETE", filter={"customer": 2})
    orders.ok("COMPACT", force=True)
    assert totals.mode() == "INCREMENTAL REFRESH_MODE"
    totals.check()


def test_compactions_change_nothing_and_start_no_spark_job(firn: Firn, tenant: str, orders: ServedTable) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    totals.refresh()
    orders.write({"id": 100, "customer": 3, "amount": "1.00"})
    totals.refresh()
    before = totals.loaded.metadata_location
    orders.ok("COMPACT", force=True)
    assert totals.mode() == "NO_DATA NO_CHANGES"
    assert totals.loaded.metadata_location == before
