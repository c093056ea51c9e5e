"""Refreshes of dynamic tables on Spark: whatever happens to the sources, the result is that of its query."""

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.harness import Firn, wait_until
from tests.support.dynamic_served import ServedDynamicTable
from tests.support.tables import ServedTable

ORDERS = {"id": "long", "customer": "long", "amount": "decimal(10,2)"}
TOTALS = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"


class Dynamic(ServedDynamicTable):
    """Compared with its query."""

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
    [again] = orders.rows(filter={"id": 7})
    for change in (lambda: orders.ok("DELETE", filter={"id": 7}), lambda: orders.write(again)):
        change()
        assert totals.mode() == "INCREMENTAL REFRESH_MODE"
        totals.check()


def test_compactions_change_nothing_and_start_no_spark_job(firn: Firn, tenant: str, orders: ServedTable) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    orders.write({"id": 100, "customer": 3, "amount": "1.00"})
    totals.refresh()
    before = totals.loaded.metadata_location
    orders.ok("COMPACT", force=True)
    assert totals.mode() == "NO_DATA NO_CHANGES"
    assert totals.loaded.metadata_location == before
    totals.ok("COMPACT", force=True)
    orders.write({"id": 101, "customer": 3, "amount": "1.00"})
    assert totals.mode() == "INCREMENTAL REFRESH_MODE"
    totals.check()


def test_a_chain_and_a_diamond_agree_while_their_base_table_is_written(
    firn: Firn, tenant: str, orders: ServedTable
) -> None:
    Dynamic(firn, tenant, "totals", TOTALS)
    Dynamic(firn, tenant, "counted", "SELECT count(*) AS orders, sum(amount) AS amount FROM orders")
    top = "SELECT sum(t.n) AS of_totals, max(c.orders) AS of_counted FROM totals t CROSS JOIN counted c"
    both = Dynamic(firn, tenant, "both", top, refresh_mode="AUTO")
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(_write_until, stop, orders)
        try:
            for _ in range(3):
                done = both.refresh()
                assert {one["state"] for one in done["tables"]} == {"done"}
                [row] = both.rows()
                assert row["of_totals"] == row["of_counted"]
                as_of = {"pass": done["pass_id"]}
                counts = "(SELECT sum(n) FROM totals) AS a, (SELECT orders FROM counted) AS b, count(*) AS c"
                sql = f"SELECT {counts} FROM orders"
                [seen] = firn.ok({"operation": "QUERY", "tenant_id": tenant, "sql": sql, "as_of": as_of})["data"]
                assert len(set(seen.values())) == 1
        finally:
            stop.set()
        writer.result()
    both.refresh()
    both.check()


def _write_until(stop: threading.Event, orders: ServedTable) -> None:
    for number in itertools.count(1000):
        orders.write({"id": number, "customer": number % 7, "amount": "1.00"})
        if stop.wait(0.05):
            return


def test_a_failing_table_says_why_holds_back_its_dependents_and_is_suspended(
    firn: Firn, tenant: str, orders: ServedTable
) -> None:
    ratio = Dynamic(firn, tenant, "ratio", "SELECT id, 100 DIV (id + 1) AS part FROM orders")
    above = Dynamic(firn, tenant, "above", "SELECT count(*) AS n FROM ratio")
    orders.write({"id": -1, "customer": 1, "amount": "1.00"})
    for failures in (1, 2, 3):
        error = firn.fail(above.request("REFRESH_DYNAMIC_TABLE"), "REFRESH_HELD_BACK")
        states = {one["table"]: one["state"] for one in error["details"]["tables"]}
        assert states == {"ratio": "failed", "above": "held_back"}
        found = ratio.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]
        assert found["failures"] == failures
    assert found["state"] == "failed"
    assert "zero" in found["reason"].lower()
    firn.fail(ratio.request("REFRESH_DYNAMIC_TABLE"), "INVALID_REQUEST")
    orders.ok("DELETE", filter={"id": -1})
    ratio.ok("ALTER_DYNAMIC_TABLE", resume=True)
    above.refresh()
    ratio.check()
    above.check()


def test_expiry_keeps_the_snapshots_that_dynamic_tables_need_and_says_for_whom(
    firn: Firn, tenant: str, orders: ServedTable
) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    needed = orders.loaded.current_snapshot_id
    for number in range(100, 103):
        orders.write({"id": number, "customer": 1, "amount": "1.00"})
    kept = orders.ok("COMPACT", force=True, snapshot_retention_hours=0)["snapshots_kept"]
    assert {one["snapshot_id"]: one["reason"] for one in kept} == {
        str(needed): "the dynamic table default.totals needs it for its next refresh"
    }
    assert totals.mode() == "INCREMENTAL REFRESH_MODE"
    totals.check()
    # By another engine: nothing is kept.
    before = orders.loaded.current_snapshot_id
    orders.write({"id": 200, "customer": 1, "amount": "1.00"})
    orders.loaded.iceberg.maintenance.expire_snapshots().by_id(before or 0).commit()
    assert totals.mode() == "FULL CURSOR_EXPIRED"
    totals.check()


def test_an_audit_finds_what_others_have_changed_and_repairs_it(firn: Firn, tenant: str, orders: ServedTable) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    assert totals.ok("AUDIT_DYNAMIC_TABLE")["matches"]
    totals.sql("UPDATE {t} SET n = n + 1 WHERE customer = 3")
    orders.write({"id": 100, "customer": 3, "amount": "1.00"})
    assert "RESULT_CHANGED" in firn.fail(totals.request("REFRESH_DYNAMIC_TABLE"), "INVALID_REQUEST")["message"]
    found = totals.ok("AUDIT_DYNAMIC_TABLE")
    assert (found["matches"], found["records_missing"], found["records_unexpected"]) == (False, 1, 1)
    assert {row["row"]["customer"] for row in found["examples"]} == {3}
    sampled = [totals.ok("AUDIT_DYNAMIC_TABLE", sample_percent=50, seed=seed) for seed in range(6)]
    assert {one["matches"] for one in sampled} == {True, False}
    assert totals.ok("AUDIT_DYNAMIC_TABLE", repair=True)["repaired"]
    assert totals.ok("AUDIT_DYNAMIC_TABLE", repair=True)["repaired"] is False
    assert totals.mode() == "INCREMENTAL REFRESH_MODE"
    totals.check()


def test_a_query_says_what_the_rows_stand_for_and_how_far_they_lag(
    firn: Firn, tenant: str, orders: ServedTable
) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    read = orders.loaded.current_snapshot_id

    def seen() -> dict[str, Any]:
        [found] = totals.ok("QUERY")["metadata"]["dynamic_tables"]
        assert found["sources"] == [
            {"namespace": "default", "table": "orders", "snapshot_id": str(read), "is_base": True}
        ]
        return dict(found)

    assert seen()["lag_ms"] == 0
    orders.ok("COMPACT", force=True)
    assert seen()["lag_ms"] == 0
    orders.write({"id": 100, "customer": 3, "amount": "1.00"})
    assert seen()["lag_ms"] > 0
    assert "dynamic_tables" not in orders.ok("QUERY")["metadata"]
    error = firn.fail(totals.request("QUERY", as_of={"pass": "no such pass"}), "SNAPSHOT_NOT_FOUND")
    assert error["field"] == "as_of"


def test_a_refresh_runs_as_a_job(firn: Firn, tenant: str, orders: ServedTable) -> None:
    totals = Dynamic(firn, tenant, "totals", TOTALS)
    orders.write({"id": 100, "customer": 3, "amount": "1.00"})
    place, seen = totals.refresh(**{"async": True})["status_url"], []

    def ended() -> bool:
        seen.append(firn.parsed(firn.client.get(place))["job"])
        return seen[-1]["state"] not in ("queued", "running")

    wait_until(ended, 60, every=0.05)
    assert (seen[-1]["state"], seen[-1]["result"]["mode"]) == ("done", "INCREMENTAL")
    totals.check()
