"""SIGKILL while edits share commits: each has its effect once, and is told what it did, however often it is sent."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from service.model import wire
from service.model.names import TableName
from tests.faults.own_rows import PATIENCE_S, OwnRows, wait_for_steps
from tests.faults.points import METADATA_WRITTEN, SWAPPED, NotReached, Point
from tests.faults.victim import RestartedService, Victim
from tests.support.marks import thorough_except

NAME = TableName("kills", "default", "shared-edits")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long"}, "n": {"type": "long"}}, "primary_key": ["id"]}
CLIENTS, TRIES = 16, 4
_runs = itertools.count(1)


class OwnRow(OwnRows):
    """A client that inserts, updates and deletes one row, again and again."""

    def step(self, client: httpx.Client) -> None:
        step, address = self.steps, {**ADDRESS, "idempotency_key": self.key}
        after = {self.number: step}
        if step % 4 == 3:
            request, told = {"operation": "DELETE", **address, "filter": {"id": self.number}}, {"records_deleted": 1}
            after = {}
        elif step % 4 == 2:
            request = {"operation": "UPDATE", **address, "filter": {"id": self.number}, "updates": {"n": step}}
            told = {"records_updated": 1}
        else:
            request = {"operation": "UPSERT", **address, "records": [{"id": self.number, "n": step}]}
            told = {"records_updated" if self.rows else "records_inserted": 1}
        self.done(client, lambda http: http.post("/database", content=wire.render(request)), told, after)


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
            wait_for_steps(clients, working, 2)
            for tried in range(1, TRIES + 1):
                try:
                    batch = victim.kill_process(point, proxy)
                except NotReached:
                    assert tried < TRIES, f"{TRIES} times the service was not {point} when it was killed"
                    wait_for_steps(clients, working, 1)
                else:
                    wait_for_steps(clients, working, 4)
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
    assert rows == {key: n for client in clients for key, n in client.rows.items()}
    for client in clients:
        assert client.last is not None
        send, answer = client.last
        assert send(victim.firn.client).content == answer
    assert victim.disk.ids().keys() == rows.keys()
