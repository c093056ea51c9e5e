"""Five levels of dynamic tables with a diamond agree after each pass, while others change their base tables."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.dynamic_served import ServedDynamicTable
from tests.support.tables import ServedTable

CUSTOMERS = 12
LEVELS = {
    "details": "SELECT o.id, o.customer, o.amount, c.region FROM orders o JOIN customers c ON o.customer = c.customer",
    "by_customer": "SELECT customer, region, count(*) AS n, sum(amount) AS amount FROM details GROUP BY 1, 2",
    "left_side": "SELECT region, sum(n) AS n, sum(amount) AS amount FROM by_customer GROUP BY region",
    "right_side": "SELECT d.region, count(*) AS n, sum(d.amount) AS amount FROM details d "
    "LEFT SEMI JOIN by_customer b ON d.customer = b.customer AND d.region = b.region GROUP BY d.region",
    "both": "SELECT l.region, l.n, r.n AS other_n, l.amount, r.amount AS other_amount "
    "FROM left_side l FULL JOIN right_side r ON l.region = r.region",
    "top": "SELECT sum(n) AS n, sum(other_n) AS other_n, sum(amount) AS amount, "
    "count_if(NOT n <=> other_n OR NOT amount <=> other_amount) AS different FROM both",
}


class Orders:
    """Orders in pairs whose amounts add up to 0: each change keeps that, in one commit."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        long = {"type": "long"}
        fields = {"id": long, "pair": long, "customer": long, "amount": long}
        properties = {"row_level": "merge_on_read"}
        self.orders = ServedTable(firn, tenant, "orders", schema={"fields": fields}, properties=properties)
        self.customers = ServedTable(
            firn, tenant, "customers", schema={"fields": {"customer": long, "region": long}}, properties=properties
        )
        self.customers.write(*({"customer": n, "region": n % 3} for n in range(CUSTOMERS)))
        self.add(*range(20))
        self.added = threading.Semaphore(0)

    def add(self, *pairs: int) -> None:
        self.orders.write(
            *(
                {"id": 2 * pair + i, "pair": pair, "customer": pair % CUSTOMERS, "amount": n}
                for pair in pairs
                for i, n in enumerate((pair, -pair))
            )
        )

    def wait_until_added(self) -> None:
        """Wait until a writer has added some more orders than another has removed."""
        for _ in range(3):
            assert self.added.acquire(timeout=120)

    def changers(self) -> list[Callable[[int], Any]]:
        """What writers do again and again, each in a thread of its own."""
        orders, customers = self.orders.ok, self.customers.ok

        def add(number: int) -> None:
            self.add(1000 + 2 * number)
            self.added.release()

        def move(number: int) -> None:
            orders("UPDATE", filter={"pair": number % 20}, updates={"customer": number * 5 % CUSTOMERS})

        def remove(number: int) -> None:
            orders("DELETE", filter={"pair": 1000 + number})

        def relocate(number: int) -> None:
            customers("UPDATE", filter={"customer": number % CUSTOMERS}, updates={"region": number % 5})

        def compact(number: int) -> None:
            (orders if number % 2 else customers)("COMPACT", force=True)

        return [add, move, remove, relocate, compact]


@pytest.mark.thorough  # as test_dynamic_refresh.py has a diamond, and tests/unit/dynamic/test_agreement.py five levels
@pytest.mark.timeout(900)
@pytest.mark.parametrize("passes", [2, 25])
def test_five_levels_agree_after_each_pass_while_their_base_tables_change(firn: Firn, tenant: str, passes: int) -> None:
    base = Orders(firn, tenant)
    tables = {
        name: ServedDynamicTable(firn, tenant, name, query, refresh_mode="INCREMENTAL_STRICT")
        for name, query in LEVELS.items()
    }
    counts = ", ".join(
        [
            *(f"(SELECT {what} FROM {name}) AS {name}" for name, what in _COUNTS.items()),
            "(SELECT count(*) FROM customers) AS customers",
            "count(*) AS orders",
            "sum(amount) AS amount",
        ]
    )
    seen = set()
    stop = threading.Event()
    with ThreadPoolExecutor(8) as pool, ExitStack() as stack:
        writers = [pool.submit(_work_until, stop, change) for change in base.changers()]
        stack.callback(stop.set)
        for _ in range(passes):
            base.wait_until_added()
            done = tables["top"].refresh()
            assert {one["state"] for one in done["tables"]} == {"done"}
            assert {one["mode"] for one in done["tables"]} <= {"INCREMENTAL", "NO_DATA"}
            request = {"operation": "QUERY", "tenant_id": tenant, "as_of": {"pass": done["pass_id"]}}
            [row] = firn.ok({**request, "sql": f"SELECT {counts} FROM orders"})["data"]
            assert (row.pop("customers"), row.pop("amount")) == (CUSTOMERS, 0)
            assert len(set(row.values())) == 1, row
            [top] = tables["top"].rows()
            assert (top["n"], top["amount"], top["different"]) == (top["other_n"], 0, 0)
            seen.add(top["n"])
        stop.set()
        for writer in writers:
            writer.result()
    assert len(seen) > 1, "the writers changed nothing"
    tables["top"].refresh()
    for table in tables.values():
        assert table.ok("AUDIT_DYNAMIC_TABLE")["matches"]


_COUNTS = {
    "details": "count(*)",
    "by_customer": "sum(n)",
    "left_side": "sum(n)",
    "right_side": "sum(n)",
    "both": "sum(other_n)",
    "top": "n",
}


def _work_until(stop: threading.Event, change: Callable[[int], Any]) -> None:
    for number in itertools.count():
        change(number)
        if stop.wait(0.5):
            return
