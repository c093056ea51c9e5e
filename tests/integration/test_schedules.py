"""Schedules on the running service: a scheduled compaction compacts, by a clock that is moved by hand."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.catalog.tables import Catalog
from service.jobs.schedules.scheduler import Scheduler, to_ms
from service.jobs.schedules.schedules import Schedules, skip_reason, tables_of
from service.ledger.ledger import Ledger
from service.ledger.schedules import ScheduleRecords
from tests.harness import Firn, wait_until
from tests.postgres import PostgresServer
from tests.schedulers import DAY, TWO, Clock, schedule


class Tomorrow:
    """A second look at the service's schedules, by another clock."""

    def __init__(self, firn: Firn) -> None:
        app = firn.app
        self.now = datetime.now(UTC)
        compaction, catalog = app.settings.iceberg.compaction, app.parts[Catalog]
        notes = app.parts[Schedules]._notes
        windows = skip_reason(catalog, compaction, lambda: to_ms(self.now))
        self.scheduler = Scheduler(
            notes,
            tables_of(catalog),
            windows,
            now_ms=lambda: to_ms(self.now),
            begin=lambda work: work(),
        )
        self.scheduler.open(app.pipeline)


@dataclass(frozen=True)
class Shop:
    """A tenant with tables of four small files each."""

    firn: Firn
    tenant: str

    def make(self, *tables: str, namespace: str = "shop", **properties: Any) -> None:
        for table in tables:
            address = {"tenant_id": self.tenant, "namespace": namespace, "table": table}
            schema = {"fields": {"id": {"type": "long"}}}
            self.firn.ok({"operation": "CREATE_TABLE", **address, "schema": schema, "properties": properties})
            for i in range(4):
                self.firn.ok({"operation": "WRITE", **address, "records": [{"id": i}]})

    def schedule(self, name: str, **body: Any) -> dict[str, Any]:
        # Once a year and not today: the service's own clock does not meet it while a test runs.
        day = datetime.now(UTC) + timedelta(days=2)
        plain = {"name": name, "cron": f"0 2 {day.day} {day.month} *", "task": {"operation": "COMPACT"}}
        return self.firn.ok({"operation": "CREATE_SCHEDULE", "tenant_id": self.tenant, **plain, **body})

    def files(self, table: str, namespace: str = "shop") -> int:
        described = {"operation": "DESCRIBE_TABLE", "tenant_id": self.tenant, "namespace": namespace, "table": table}
        return int(self.firn.ok(described)["description"]["file_count"])

    def listed(self, name: str, **body: Any) -> dict[str, Any]:
        request = {"operation": "LIST_SCHEDULES", "tenant_id": self.tenant, "scope": "tenant", "name": name, **body}
        [found] = self.firn.ok(request)["schedules"]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


@pytest.fixture
def tomorrow(firn: Firn) -> Tomorrow:
    return Tomorrow(firn)


def test_a_scheduled_compaction_compacts_once_when_it_is_due(shop: Shop, tomorrow: Tomorrow) -> None:
    shop.make("orders", "people")
    shop.make("carts", namespace="yard")
    made = shop.schedule("nightly", delay="15m", scope="tenant")
    assert (made["scope"], made["tables"]) == ("tenant", 3)
    due = datetime.fromisoformat(made["next_run_at"])
    assert (due.hour, due.minute) == (2, 15)
    tomorrow.now = due - timedelta(seconds=1)
    tomorrow.scheduler.tick()
    assert shop.files("orders") == 4
    tomorrow.now = due
    tomorrow.scheduler.tick()
    assert [shop.files("orders"), shop.files("people"), shop.files("carts", "yard")] == [1, 1, 1]
    tomorrow.scheduler.tick()
    found = shop.listed("nightly", runs=5)
    [run] = found["runs"]
    assert (run["state"], run["tables"], run["done"], run["due_at"]) == ("done", 3, 3, made["next_run_at"])
    assert ("running" in found, found["last_run"]) == (False, run)
    assert datetime.fromisoformat(found["next_run_at"]) > due + timedelta(days=364)


def test_of_two_that_look_at_the_same_moment_one_compacts(shop: Shop, firn: Firn) -> None:
    shop.make("orders")
    due = datetime.fromisoformat(shop.schedule("nightly", namespace="shop")["next_run_at"])
    both, together = (Tomorrow(firn), Tomorrow(firn)), threading.Barrier(2)

    def look(one: Tomorrow) -> None:
        one.now = due
        together.wait(60)
        one.scheduler.tick()

    threads = [threading.Thread(target=look, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [run] = shop.listed("nightly", runs=5)["runs"]
    assert (run["state"], run["attempts"], shop.files("orders")) == ("done", 1, 1)


def test_two_instances_on_one_ledger_make_a_due_compaction_once(
    shop: Shop, firn: Firn, postgres: PostgresServer
) -> None:
    shop.make("orders")
    url, clock, catalog = postgres.url("two"), Clock(), firn.app.parts[Catalog]
    ledgers = [Ledger(url), Ledger(url)]
    nightly = schedule(tenant=shop.tenant, task='{"operation": "COMPACT"}')
    notes = [ScheduleRecords(ledger) for ledger in ledgers]
    notes[0].put(nightly, replacing=False)
    windows = skip_reason(catalog, firn.app.settings.iceberg.compaction, clock.ms)
    both = [Scheduler(each, tables_of(catalog), windows, now_ms=clock.ms, begin=lambda work: work()) for each in notes]
    for one in both:
        one.open(firn.app.pipeline)
        one.tick()
    assert shop.files("orders") == 4
    clock.now, together = TWO, threading.Barrier(2)

    def look(one: Scheduler) -> None:
        together.wait(60)
        one.tick()

    threads = [threading.Thread(target=look, args=(one,)) for one in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for moment in (TWO, TWO + DAY / 2):
        clock.now = moment
        for one in both:
            one.tick()
    [run] = notes[1].runs([nightly.id], 5)[nightly.id]
    assert (run.state, run.fence, run.details["due_ms"]) == ("done", 1, to_ms(TWO))
    request = {"operation": "COMPACTION_LOG", "tenant_id": shop.tenant, "namespace": "shop", "table": "orders"}
    [logged] = firn.ok(request)["compactions"]
    assert (logged["requested_by"], logged["state"], shop.files("orders")) == ("schedule nightly", "done", 1)
    for ledger in ledgers:
        ledger.close()


def test_the_service_catches_up_by_itself_once_with_what_was_missed(shop: Shop) -> None:
    shop.make("orders")
    shop.schedule("nightly", namespace="shop")
    with shop.firn.app.parts[Ledger]._writing() as connection:
        long_ago = "UPDATE schedules SET next_ms = 1777600800000 WHERE tenant = ?"
        connection.exec_driver_sql(long_ago, (shop.tenant,))
    wait_until(lambda: "last_run" in shop.listed("nightly"), 60)
    found = shop.listed("nightly", runs=5)
    [run] = found["runs"]
    assert (run["state"], run["due_at"], run["requested_by"]) == ("done", "2026-05-01T02:00:00Z", "schedule")
    assert datetime.fromisoformat(found["next_run_at"]) > datetime.now(UTC)
    assert shop.files("orders") == 1


@pytest.mark.thorough
def test_a_table_outside_of_its_window_is_left_out_and_the_others_are_not(shop: Shop, tomorrow: Tomorrow) -> None:
    shop.make("orders")
    shop.make("people", compaction={"window": "12:00-13:00 Europe/Zurich"})
    made = shop.schedule("nightly", namespace="shop")
    tomorrow.now = datetime.fromisoformat(made["next_run_at"])
    tomorrow.scheduler.tick()
    assert [shop.files("orders"), shop.files("people")] == [1, 4]
    outcomes = shop.listed("nightly")["last_run"]["outcomes"]
    assert [(o["table"], o["state"]) for o in outcomes] == [("people", "skipped"), ("orders", "done")]


def test_a_table_that_is_gone_fails_alone(shop: Shop, tomorrow: Tomorrow) -> None:
    shop.make("orders")
    made = shop.schedule("nightly", namespace="shop", table="orders")
    purge = {"operation": "DROP_TABLE", "tenant_id": shop.tenant, "namespace": "shop", "table": "orders"}
    shop.firn.ok(purge)
    tomorrow.now = datetime.fromisoformat(made["next_run_at"])
    tomorrow.scheduler.tick()
    run = shop.listed("nightly")["last_run"]
    assert (run["state"], run["outcomes"][0]["error"]["code"]) == ("failed", "TABLE_NOT_FOUND")


def test_a_run_in_the_background_shows_in_the_list_and_then_how_it_ended(shop: Shop) -> None:
    shop.make("orders")
    shop.schedule("nightly", namespace="shop", enabled=False)
    assert "next_run_at" not in shop.listed("nightly")
    answer = shop.firn.ok({"operation": "RUN_SCHEDULE", "tenant_id": shop.tenant, "name": "nightly"})
    assert (answer["started"], "run" in answer) == (True, False)
    assert answer["tables"] == [{"namespace": "shop", "table": "orders"}]
    wait_until(lambda: "running" not in shop.listed("nightly"), 60)
    run = shop.listed("nightly")["last_run"]
    assert (run["job_id"], run["state"], run["done"]) == (answer["job_id"], "done", 1)
    assert run["requested_by"] == f"request {answer['metadata']['request_id']}"
    assert shop.files("orders") == 1


def test_who_waits_is_told_what_came_of_each_table(shop: Shop) -> None:
    shop.make("orders")
    shop.schedule("filtered", namespace="shop", task={"operation": "COMPACT", "partition_filter": {"id": 1}})
    request = {"operation": "RUN_SCHEDULE", "tenant_id": shop.tenant, "name": "filtered", "wait": True}
    run = shop.firn.ok(request)["run"]
    assert (run["state"], run["failed"]) == ("failed", 1)
    assert run["outcomes"][0]["error"]["code"] == "INVALID_FILTER"


def test_a_schedule_is_made_once_and_replaced_when_that_is_asked_for(shop: Shop) -> None:
    shop.schedule("nightly")
    again = {"operation": "CREATE_SCHEDULE", "tenant_id": shop.tenant, "name": "nightly", "cron": "0 3 29 2 *"}
    again["task"] = {"operation": "compact", "force": True}  # type: ignore[assignment]
    shop.firn.fail(again, "SCHEDULE_EXISTS", 409)
    answer = shop.firn.ok({**again, "replace": True})
    assert (answer["schedule_created"], answer["schedule_replaced"]) == (False, True)
    found = shop.listed("nightly")
    assert (found["cron"], found["task"]) == ("0 3 29 2 *", {"operation": "COMPACT", "force": True})


def test_the_list_is_narrowed_down_by_namespace_and_table(shop: Shop) -> None:
    shop.make("orders")
    shop.schedule("all", scope="tenant")
    shop.schedule("in-shop", namespace="shop")
    shop.schedule("of-orders", namespace="shop", table="orders")
    for where, names in (
        ({"scope": "tenant"}, ["all", "in-shop", "of-orders"]),
        ({}, []),
        ({"namespace": "shop"}, ["in-shop", "of-orders"]),
        ({"namespace": "shop", "table": "orders"}, ["of-orders"]),
        ({"table": "orders"}, []),
        ({"name": "nope"}, []),
    ):
        request = {"operation": "LIST_SCHEDULES", "tenant_id": shop.tenant, **where}
        assert [s["name"] for s in shop.firn.ok(request)["schedules"]] == names
    other = {"operation": "LIST_SCHEDULES", "tenant_id": f"{shop.tenant}-x", "scope": "tenant"}
    assert shop.firn.ok(other)["schedules"] == []
