"""Two instances on one ledger and one catalog: a key has one effect and one answer, whatever becomes of either."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from service.ledger.owners import lock_of
from service.model import wire
from tests.faults.load import Responses
from tests.faults.points import stopped
from tests.faults.process import Process
from tests.faults.retrying import Retrying
from tests.harness import Firn, wait_until
from tests.postgres import PostgresServer
from tests.support.marks import thorough_except

PLACE = {"tenant_id": "shared"}
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}, "primary_key": ["id"]}
CLIENTS = 12


class Pair:
    """Two instances, each with a home of its own, and the ledger they share."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self._folder = folder
        self._ledger = postgres.url("ledger")
        self._settings = {
            "LEDGER__URL": self._ledger,
            "CATALOG__TYPE": "postgresql",
            "CATALOG__URI": postgres.url("catalog"),
            "CATALOG__WAREHOUSE": f"file://{folder}/warehouse",
        }
        self.one, self.two = self._start("one"), self._start("two")
        for instance in (self.one, self.two):
            instance.wait_until_ready()

    def close(self) -> None:
        for instance in (self.one, self.two):
            instance.__exit__()

    def start_one_again(self) -> None:
        self.one = self._start("one", self.one.port)
        self.one.wait_until_ready()

    def ask(self, question: str, *values: Any) -> list[Any]:
        with psycopg.connect(self._ledger, autocommit=True) as connection:
            return connection.execute(question, values).fetchall()  # type: ignore[call-overload,no-any-return]

    def begun(self, table: str) -> list[tuple[str, str]]:
        """The batches of a table that are under way, and who owns them."""
        return self.ask("SELECT batch, owner FROM batches WHERE state = 'begun' AND table_name = %s", table)

    def state(self, batch: str) -> str:
        [(state,)] = self.ask("SELECT state FROM batches WHERE batch = %s", batch)
        return str(state)

    def cut_off(self, owner: str) -> None:
        """What a broken network does: the server lets go of an instance's presence."""
        number = lock_of("instance", owner)
        holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s"
        [(pid,)] = self.ask(holder, number >> 32 & 0xFFFFFFFF, number & 0xFFFFFFFF)
        self.ask("SELECT pg_terminate_backend(%s)", pid)
        wait_until(lambda: not self.ask(holder, number >> 32 & 0xFFFFFFFF, number & 0xFFFFFFFF), 60, every=0.01)

    def _start(self, name: str, port: int | None = None) -> Process:
        return Process(self._folder / name, port, **self._settings)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("instances"), postgres)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def table(pair: Pair, request: pytest.FixtureRequest) -> str:
    """A table of a test's own, which both instances have seen."""
    name = str(abs(hash(request.node.name)))
    pair.one.firn.ok({"operation": "CREATE_TABLE", **PLACE, "table": name, "schema": SCHEMA})
    for instance in (pair.one, pair.two):
        instance.firn.ok({"operation": "WRITE", **PLACE, "table": name, "records": [{"id": instance.port}]})
        instance.firn.ok({"operation": "DELETE", **PLACE, "table": name, "filter": {"id": instance.port}})
    return name


def ids(instance: Process, table: str) -> Counter[int]:
    request = {"operation": "QUERY", **PLACE, "table": table, "projection": ["id"], "limit": 100_000}
    return Counter(row["id"] for row in instance.firn.ok(request)["data"])


def send(instance: Process, request: dict[str, Any]) -> bytes:
    return Firn(instance.firn.base_url).send(request).content


@contextmanager
def at_work(pair: Pair, request: dict[str, Any]) -> Iterator[tuple[Future[bytes], str, str]]:
    """A request on its way in the first instance, whose JVM stands still: its answer to be, its batch and its owner."""
    [jvm] = pair.one.jvms()
    with ThreadPoolExecutor(1) as pool, stopped(jvm):
        answer = pool.submit(send, pair.one, request)
        wait_until(lambda: pair.begun(request["table"]), 60, every=0.01)
        [(batch, owner)] = pair.begun(request["table"])
        yield answer, batch, owner


def test_a_key_sent_to_both_at_once_has_one_effect_and_one_answer(pair: Pair, table: str) -> None:
    address = {**PLACE, "table": table}
    kinds: list[dict[str, Any]] = [
        {"operation": "WRITE", "records": [{"id": 1}]},
        {"operation": "WRITE", "records": [{"id": 2}], "mode": "append"},
        {"operation": "UPSERT", "records": [{"id": 1, "payload": "a"}, {"id": 3}]},
        {"operation": "UPDATE", "updates": {"payload": "b"}, "filter": {"id": {"lte": 2}}},
        {"operation": "DELETE", "filter": {"id": 2}},
        {"operation": "CREATE_TABLE", "table": f"{table}-2", "schema": SCHEMA},
        {"operation": "DROP_TABLE", "table": f"{table}-2"},
    ]
    with ThreadPoolExecutor(4) as pool:
        for n, kind in enumerate(kinds):
            request = {**address, **kind, "idempotency_key": f"both-{n}"}
            start = threading.Barrier(4)

            def one(instance: Process, request: dict[str, Any] = request, start: Any = start) -> bytes:
                start.wait(60)
                return send(instance, request)

            answers = set(pool.map(one, [pair.one, pair.two, pair.one, pair.two]))
            assert len(answers) == 1, answers
            assert wire.parse(answers.pop())["success"] is True
    assert ids(pair.two, table) == Counter([1, 3])


def test_the_same_key_for_another_request_is_refused_by_the_other(pair: Pair, table: str) -> None:
    request = {"operation": "WRITE", **PLACE, "table": table, "records": [{"id": 1}], "idempotency_key": "k"}
    with at_work(pair, request):
        pair.two.firn.fail({**request, "records": [{"id": 2}]}, "KEY_REUSED", 422)
    wait_until(lambda: ids(pair.two, table) == Counter([1]), 20)


@pytest.mark.parametrize("operation", thorough_except(["WRITE"], ["WRITE", "UPSERT"]))
def test_who_sends_a_key_again_to_the_other_waits_for_the_first_ones_answer(
    pair: Pair, table: str, operation: str
) -> None:
    request = {"operation": operation, **PLACE, "table": table, "records": [{"id": 1}], "idempotency_key": "slow"}
    with ThreadPoolExecutor(1) as pool:
        with at_work(pair, request) as (first, batch, _):
            second = pool.submit(send, pair.two, request)
            time.sleep(1)
            assert not second.done()
            assert pair.state(batch) == "begun"
        assert first.result(60) == second.result(60)
    assert ids(pair.two, table) == Counter([1])


@pytest.mark.parametrize("operation", thorough_except(["WRITE"], ["WRITE", "UPSERT"]))
def test_what_an_instance_had_begun_when_it_was_killed_happens_once_in_the_other(
    pair: Pair, table: str, operation: str
) -> None:
    request = {"operation": operation, **PLACE, "table": table, "records": [{"id": 1}], "idempotency_key": "killed"}
    with at_work(pair, request) as (first, batch, _):
        [jvm] = pair.one.jvms()
        pair.one.kill()
        answer = send(pair.two, request)  # while the JVM of the first stands still, with all it knows
        os.kill(jvm, signal.SIGCONT)
    assert wire.parse(answer)["success"] is True, answer
    assert isinstance(first.exception(), httpx.TransportError)
    pair.one.wait_until_no_jvm(20)
    assert (pair.state(batch), ids(pair.two, table)) == ("void", Counter([1]))
    pair.start_one_again()
    assert send(pair.one, request) == answer
    assert ids(pair.one, table) == Counter([1])


def test_an_instance_that_stood_still_does_not_commit_what_the_other_has_done_meanwhile(pair: Pair, table: str) -> None:
    request = {"operation": "WRITE", **PLACE, "table": table, "records": [{"id": 1}], "idempotency_key": "stalled"}
    with at_work(pair, request) as (first, batch, owner), stopped(pair.one.id):
        pair.cut_off(owner)
        answer = send(pair.two, request)
        assert wire.parse(answer)["success"] is True, answer
        assert pair.state(batch) == "void"
    assert first.result(60) == answer
    assert ids(pair.two, table) == Counter([1])
    # It is back: what it begins is its own again.
    with at_work(pair, {**request, "records": [{"id": 2}], "idempotency_key": "later"}) as (later, _, back):
        assert back == owner
    assert wire.parse(later.result(60))["success"] is True


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_under_load_on_both_none_is_lost_or_doubled_though_one_is_killed(pair: Pair, table: str) -> None:
    responses = Responses()
    loads = [Either(pair, table, 1_000_000), Either(pair, table, 2_000_000)]
    with loads[0], loads[1]:
        loads[0].wait_for(4 * CLIENTS, 90)
        pair.one.kill()
        pair.one.wait_until_no_jvm(20)
        loads[0].wait_for(4 * CLIENTS, 90)
        pair.start_one_again()
        loads[1].wait_for(4 * CLIENTS, 90)
    for load in loads:
        responses.add(load.stop())
    assert responses.unknown, "nobody gave up"
    responses.check(ids(pair.two, table))
    assert ids(pair.one, table) == ids(pair.two, table)


class Either(Retrying):
    """Clients that send each request to whichever of the two is next, and again to the other."""

    def __init__(self, pair: Pair, table: str, first_id: int) -> None:
        super().__init__(pair.one.firn, {**PLACE, "table": table}, CLIENTS // 2, first_id)
        self._urls = [pair.one.firn.base_url, pair.two.firn.base_url]

    def _write(self) -> None:
        with httpx.Client(timeout=150) as both:
            turns = Turns(both, self._urls)
            while not self._stop.is_set():
                self._one(turns)  # type: ignore[arg-type]  # as much of a client as it uses


class Turns:
    def __init__(self, client: httpx.Client, urls: list[str]) -> None:
        self._client, self._urls = client, urls

    def post(self, path: str, **what: Any) -> httpx.Response:
        self._urls = self._urls[::-1]
        return self._client.post(self._urls[0] + path, **what)


def scheduled(pair: Pair, table: str) -> dict[str, Any]:
    """A schedule of a table with small files, due on the next 29th of February; the request that looks at it."""
    for n in range(4):
        pair.one.firn.ok({"operation": "WRITE", **PLACE, "table": table, "records": [{"id": 100 + n}]})
    task = {"operation": "COMPACT", "force": True}
    made = {"operation": "CREATE_SCHEDULE", **PLACE, "name": table, "table": table, "cron": "0 2 29 2 *", "task": task}
    pair.one.firn.ok(made)
    return {"operation": "LIST_SCHEDULES", **PLACE, "name": table, "runs": 5}


def test_a_schedule_that_is_due_runs_on_one_of_both(pair: Pair, table: str) -> None:
    look = scheduled(pair, table)
    for night in range(1, 4):
        pair.ask("UPDATE schedules SET next_ms = %s WHERE name = %s RETURNING id", 1777600800000, table)

        def over(night: int = night) -> bool:
            [found] = pair.two.firn.ok(look)["schedules"]
            return "running" not in found and len(found["runs"]) >= night

        wait_until(over, 60)
    for instance in (pair.one, pair.two):
        [found] = instance.firn.ok(look)["schedules"]
        assert [(run["state"], run["attempts"], run["done"]) for run in found["runs"]] == [("done", 1, 1)] * 3
    described = {"operation": "DESCRIBE_TABLE", **PLACE, "table": table}
    assert pair.two.firn.ok(described)["description"]["file_count"] == 1


@pytest.mark.thorough
def test_the_scheduled_run_of_an_instance_that_is_killed_is_gone_on_with_by_the_other(pair: Pair, table: str) -> None:
    look = scheduled(pair, table)
    [jvm] = pair.one.jvms()
    with stopped(jvm):
        begun = pair.one.firn.ok({"operation": "RUN_SCHEDULE", **PLACE, "name": table})
        [found] = pair.two.firn.ok(look)["schedules"]
        assert found["running"]["job_id"] == begun["job_id"]
        pair.one.kill()
        os.kill(jvm, signal.SIGCONT)
    wait_until(lambda: "running" not in pair.two.firn.ok(look)["schedules"][0], 60)
    [run] = pair.two.firn.ok(look)["schedules"][0]["runs"]
    assert (run["job_id"], run["state"], run["attempts"]) == (begun["job_id"], "done", 2)
    assert set(ids(pair.two, table)) == {100, 101, 102, 103}
    pair.one.wait_until_no_jvm(20)
    pair.start_one_again()
