"""SIGKILL while edits share commits: each has its effect once, and is told what it did, however often it is sent."""

import itertools
from collections.abc import Iterator

import httpx
import pytest

from service.model import wire
from service.model.names import TableName
from tests.faults.own_rows import OwnRows, at_work, check_responses, kill_among_steps
from tests.faults.points import METADATA_WRITTEN, SWAPPED, Point
from tests.faults.victim import RestartedService, Victim

NAME = TableName("kills", "default", "shared-edits")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long"}, "n": {"type": "long"}}, "primary_key": ["id"]}
CLIENTS = 16
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


@pytest.mark.thorough  # test_kills.py kills edits of every kind, test_bulk_upsert_kills.py others by key
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", [SWAPPED, METADATA_WRITTEN], ids=str)
def test_edits_that_share_a_commit_are_neither_lost_nor_doubled_nor_miscounted(victim: Victim, point: Point) -> None:
    run = next(_runs)
    victim.firn.ok({"operation": "DELETE", **ADDRESS, "all": True})

    def is_shared(batch: str) -> bool:
        # On a busy machine the batch may have one request only, and then nothing was shared.
        return point.comes_to != "done" or len(victim.disk.request_ids(batch)) > 1

    with victim.proxy() as proxy:
        clients = [OwnRow(number, proxy.url, run) for number in range(CLIENTS)]
        with at_work(clients) as wait_for_steps:
            wait_for_steps(2)
            batch = kill_among_steps(victim, point, proxy, wait_for_steps, 4, is_shared)
    state, snapshot_id, _ = victim.disk.noted(batch)
    assert state == point.comes_to
    assert victim.disk.committed().get(batch) == snapshot_id
    if snapshot_id is not None:
        assert len(victim.disk.request_ids(batch)) > 1, "no edits shared the commit that was hit"
    rows = {row["id"]: row["n"] for row in victim.firn.rows(NAME.tenant, NAME.table)}
    assert rows == {key: n for client in clients for key, n in client.rows.items()}
    check_responses(clients, victim.firn.client)
    assert victim.disk.ids().keys() == rows.keys()
