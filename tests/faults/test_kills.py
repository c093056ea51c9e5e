"""SIGKILL at the worst moments, under load: each record is in the table once or not at all, as the response said."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import httpx
import pytest

from service.model import wire
from tests.faults.changes import (
    ADDRESS,
    CHANGES,
    EVERY_KIND,
    FIELDS,
    LEFT_BY_CHANGES,
    NAME,
    TABLES_TO_CHANGE,
    answers_to,
)
from tests.faults.evidence import locked
from tests.faults.points import (
    ANSWERED,
    FILES_WRITTEN,
    METADATA_WRITTEN,
    SWAPPED,
    UNHEARD,
    NotReached,
    Point,
    reached,
    snapshot_of,
)
from tests.faults.proxy import Proxy
from tests.faults.retrying import Retrying, gives_up, number_of, request_id_of
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn
from tests.support.marks import thorough_except

CLIENTS = 16
TRIES = 4
PATIENCE_S = 150
ROUNDS = int(os.environ.get("KILL_ROUNDS", "50"))
PROCESS = [FILES_WRITTEN, METADATA_WRITTEN, SWAPPED, ANSWERED]
JVM = [FILES_WRITTEN, METADATA_WRITTEN, UNHEARD, ANSWERED]


@pytest.fixture(scope="module")
def victim(service: RestartedService) -> Victim:
    """An empty table of the service; whatever is done to it, the next test finds one that is served."""
    made = Victim(service, NAME)
    made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": FIELDS}})
    return made


@pytest.fixture(scope="module")
def first_answers(victim: Victim) -> list[bytes]:
    """What keyed changes were answered the first time, before any kill."""
    return answers_to(CHANGES, victim.firn)


def test_a_key_sent_eight_times_at_once_has_one_effect_and_one_answer(victim: Victim) -> None:
    start = Barrier(8)
    request = {"operation": "WRITE", **ADDRESS, "records": [{"id": 1}], "idempotency_key": "at once"}

    def send(_: int) -> bytes:
        client = Firn(victim.firn.base_url)
        start.wait()
        return client.send(request).content

    for _ in range(2):  # the second eight are answered from the ledger
        with ThreadPoolExecutor(8) as pool:
            [answer] = set(pool.map(send, range(8)))
        assert wire.parse(answer)["records_written"] == 1
    assert victim.disk.ids()[1] == 1
    victim.responses.acknowledged.add(1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", thorough_except([UNHEARD], JVM), ids=str)
def test_a_jvm_killed_under_load_neither_loses_nor_doubles(
    victim: Victim, first_answers: list[bytes], point: Point
) -> None:
    killed_under_load(victim, point, jvm_only=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", PROCESS, ids=str)
def test_a_service_killed_under_load_neither_loses_nor_doubles(
    victim: Victim, first_answers: list[bytes], point: Point
) -> None:
    killed_under_load(victim, point, jvm_only=False)


@pytest.mark.timeout(600)
def test_a_change_of_any_kind_whose_answer_a_crash_lost_happens_once_and_is_answered(victim: Victim) -> None:
    """Each stands between its commit and its note when the service is killed; each is sent again afterwards."""
    for request in TABLES_TO_CHANGE:
        victim.firn.ok(request)
    changes = [(change, victim.disk.of(change.table)) for change in EVERY_KIND]
    begun: dict[str, str] = {}

    def all_begun() -> bool:
        begun.update({change.table: batch for change, disk in changes for batch in disk.begun()})
        return len(begun) == len(changes)

    with ThreadPoolExecutor(len(EVERY_KIND)) as pool, locked(victim.disk.catalog) as catalog:
        sent = [pool.submit(Firn(victim.firn.base_url).send, change.request) for change in EVERY_KIND]
        reached(all_begun)
        with locked(victim.disk.ledger):
            catalog.release()
            reached(lambda: all(change.happened(disk, begun[change.table]) for change, disk in changes))
            assert not any(answer.done() for answer in sent)
            victim.kill()
    victim.start()
    assert all(isinstance(answer.exception(), httpx.TransportError) for answer in sent)

    for change, disk in changes:
        batch = begun[change.table]
        first = definite(victim, change.request)
        body = wire.parse(first)
        assert {name: body.get(name) for name in change.answer} == change.answer, (body, victim.process.defects())
        assert victim.firn.send(change.request).content == first
        assert disk.noted(batch)[0] == "done"
        assert request_id_of(first) in disk.request_ids(batch)
        assert change.happened(disk, batch)
        assert disk.snapshots() == change.snapshots


def definite(victim: Victim, request: dict[str, Any]) -> bytes:
    """The answer of a client that takes a refusal which may pass as what it is, and sends the request again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = victim.firn.send(request).content
        body = wire.parse(answer)
        if body["success"] or not body["error"]["retryable"] or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def test_keys_are_answered_the_same_after_a_restart(victim: Victim, first_answers: list[bytes]) -> None:
    if not victim.restarts:
        victim.kill()
        victim.start()
    assert answers_to(CHANGES, victim.firn) == first_answers
    assert victim.firn.rows("kills", "keyed", sort=["id"]) == LEFT_BY_CHANGES
    assert "dropped" not in victim.firn.ok({"operation": "LIST_TABLES", "tenant_id": "kills"})["tables"]


@pytest.mark.large
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("point", JVM, ids=str)
def test_a_jvm_killed_often_neither_loses_nor_doubles(victim: Victim, point: Point) -> None:
    for _ in range(ROUNDS):
        killed_under_load(victim, point, jvm_only=True)


@pytest.mark.large
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("point", [*PROCESS, UNHEARD], ids=str)
def test_a_service_killed_often_neither_loses_nor_doubles(victim: Victim, point: Point) -> None:
    for _ in range(ROUNDS):
        killed_under_load(victim, point, jvm_only=False)


@pytest.mark.large
@pytest.mark.timeout(7200)
def test_a_jvm_that_outlives_its_service_is_waited_for(victim: Victim) -> None:
    for _ in range(max(1, ROUNDS // 5)):
        with clients(victim) as (proxy, load):
            load.wait_for(CLIENTS, PATIENCE_S)
            batch = victim.outlived_by_its_jvm(proxy)
            load.wait_for(CLIENTS, PATIENCE_S)
        state, snapshot_id, _ = victim.disk.noted(batch)
        assert state in ("done", "void")
        assert victim.disk.committed().get(batch) == snapshot_id


def killed_under_load(victim: Victim, point: Point, *, jvm_only: bool) -> None:
    """One round: a kill at the point, and what the clients, the ledger and the answers say of it in the end."""
    kill = victim.kill_jvm if jvm_only else victim.kill_process
    defects = victim.process.defects()
    with clients(victim) as (proxy, load):
        load.wait_for(CLIENTS, PATIENCE_S)
        for tried in range(1, TRIES + 1):
            try:
                batch = kill(point, proxy)
                break
            except NotReached:
                assert tried < TRIES, f"{TRIES} times the service was not {point} when it was killed"
                load.wait_for(CLIENTS, PATIENCE_S)
        load.wait_for(CLIENTS, PATIENCE_S)
        responses = load.stop()
    assert victim.process.defects() == defects
    assert "INVALID_RECORD" in responses.refused.values()
    assert responses.unknown or jvm_only, "nobody gave up"
    state, snapshot_id, _ = victim.disk.noted(batch)
    assert state == point.comes_to
    if snapshot_id is not None:
        # Whoever was in the batch and did not give up is answered from it, however often it was asked.
        answers = [load.answers[n] for n in victim.disk.added_by(snapshot_id) if not gives_up(n)]
        assert {snapshot_of(answer) for answer in answers} <= {snapshot_id}
        assert {request_id_of(answer) for answer in answers} <= victim.disk.request_ids(batch)
    if point is ANSWERED:
        lost = [answer for answer in proxy.swallowed if not gives_up(number_of(answer))]
        assert lost, "no answer was lost that somebody came back for"
        assert [load.answers[number_of(answer)] for answer in lost] == lost
    if point is UNHEARD and jvm_only:
        assert f"batch {batch} on {NAME} was committed although its job failed" in victim.process.log


@contextmanager
def clients(victim: Victim) -> Iterator[tuple[Proxy, Retrying]]:
    """Clients at work; afterwards everybody knows what came of their records, and it is so."""
    with victim.proxy() as proxy:
        load = Retrying(Firn(proxy.url), ADDRESS, CLIENTS, victim.first_id())
        try:
            with load:
                yield proxy, load
        finally:
            victim.responses.add(load.responses)
    victim.responses.check(victim.disk.ids())
