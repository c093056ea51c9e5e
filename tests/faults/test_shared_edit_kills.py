"""SIGKILL while edits share commits: each has its effect once, and is told what it did, however often it is sent."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from service.model import wire
from service.model.names import TableName
from tests.faults.points import METADATA_WRITTEN, SWAPPED, NotReached, Point
from tests.faults.victim import RestartedService, Victim
from tests.harness import wait_until
from tests.support.marks import thorough_except

NAME = TableName("kills", "default", "shared-edits")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long"}, "n": {"type": "long"}}, "primary_key": ["id"]}
CLIENTS, TRIES, PATIENCE_S = 16, 4, 150
_runs = itertools.count(1)


class OwnRow:
    """A client that inserts, updates and deletes one row, again and again. It knows what each request must be told."""

    def __init__(self, number: int, url: str, run: int) -> None:
        self.number = number
        self.row: int | None = None
        self.steps = 0
        self.last: tuple[dict[str, Any], bytes] | None = None
        self._url, self._run = url, run

    def work(self, stop: threading.Event) -> None:
        with httpx.Client(base_url=self._url, timeout=150, verify=False) as client:
            while not stop.is_set():
                self._step(client)

    def _step(self, client: httpx.Client) -> None:
        step, key = self.steps, f"run{self._run}-client{self.number}-step{self.steps}"
        address = {**ADDRESS, "idempotency_key": key}
        if step % 4 == 3:
            request, told = {"operation": "DELETE", **address, "filter": {"id": self.number}}, {"records_deleted": 1}
            after = None
        elif step % 4 == 2:
            request = {"operation": "UPDATE", **address, "filter": {"id": self.number}, "updates": {"n": step}}
            told, after = {"records_updated": 1}, step
        else:
            request = {"operation": "UPSERT", **address, "records": [{"id": self.number, "n": step}]}
            told, after = {"records_inserted" if self.row is None else "records_updated": 1}, step
        answer = self._until_done(client, request)
        body = wire.parse(answer)
        counts = {name: n for name, n in body.items() if name.startswith("records_") and n}
        assert counts == told, (key, body)
        self.row, self.last, self.steps = after, (request, answer), step + 1

    def _until_done(self, client: httpx.Client, request: dict[str, Any]) -> bytes:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                answer = client.post("/database", content=wire.render(request)).content
                body = wire.parse(answer)
                if body["success"]:
                    return answer
                assert body["error"]["retryable"], body
            time.sleep(0.2)
        raise AssertionError(f"no definite answer within {PATIENCE_S} s to {request['idempotency_key']}")


@pytest.fixture(scope="module")
def victim(service: RestartedService) -> Iterator[Victim]:
    made = Victim(service, NAME)
    made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
    return made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", thorough_except([SWAPPED], [SWAPPED, METADATA_WRITTEN]), ids=str)
def test_edits_that_share_a_commit_are_neither_lost_nor_doubled_nor_miscounted(victim: Victim, point: Point) -> None:
    run, stop = next(_runs), threading.Event()
    victim.firn.ok({"operation": "DELETE", **ADDRESS, "all": True})
    with victim.proxy() as proxy, ThreadPoolExecutor(CLIENTS) as pool:
        clients = [OwnRow(number, proxy.url, run) for number in range(CLIENTS)]
        working = [pool.submit(client.work, stop) for client in clients]
        try:
            _steps(clients, working, 2)
            for tried in range(1, TRIES + 1):
                try:
                    batch = victim.kill_process(point, proxy)
                except NotReached:
                    assert tried < TRIES, f"{TRIES} times the service was not {point} when it was killed"
                    _steps(clients, working, 1)
                else:
                    _steps(clients, working, 4)
                    # On a busy machine the batch may have one request only, and then nothing was shared.
                    if point.comes_to != "done" or len(victim.disk.request_ids(batch)) > 1:
                        break
        finally:
            stop.set()
        for one in working:
            one.result(PATIENCE_S)
    state, snapshot_id, _ = victim.disk.noted(batch)
    assert state == point.comes_to
    assert victim.disk.committed().get(batch) == snapshot_id
    if snapshot_id is not None:
        assert len(victim.disk.request_ids(batch)) > 1, "no edits shared the commit that was hit"
    rows = {row["id"]: row["n"] for row in victim.firn.rows(NAME.tenant, NAME.table)}
    assert rows == {client.number: client.row for client in clients if client.row is not None}
    for client in clients:
        assert client.last is not None
        request, answer = client.last
        assert victim.firn.send(request).content == answer
    assert victim.disk.ids().keys() == rows.keys()


def _steps(clients: list[OwnRow], working: list[Any], count: int) -> None:
    """Wait until each client has done so many more steps."""
    goals = [client.steps + count for client in clients]

    def done() -> bool:
        for one in working:
            if one.done():
                one.result()
        return all(client.steps >= goal for client, goal in zip(clients, goals, strict=True))

    wait_until(done, PATIENCE_S, every=0.02)
