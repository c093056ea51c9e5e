"""SIGKILL while bodies are merged by key: each has its effect once, and is told what it did, whenever it is sent."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.model.names import TableName
from tests.faults.evidence import locked_between_batches
from tests.faults.own_rows import OwnRows, at_work, check_responses, kill_among_steps
from tests.faults.points import METADATA_WRITTEN, ONE_ANSWERED, SWAPPED, Point, Scene, reached
from tests.faults.victim import RestartedService, Victim
from tests.support.marks import thorough_except

NAME = TableName("kills", "default", "merged")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long"}, "n": {"type": "long"}}, "primary_key": ["id"]}
PATH = f"/tables/{NAME.tenant}/{NAME.namespace}/{NAME.table}/records?mode=upsert"
# As many as are received at once.
CLIENTS, KEYS, EACH = 2, 300, 200
_runs = itertools.count(1)


class OwnKeys(OwnRows):
    """A client that inserts and updates rows, many with each body."""

    def step(self, client: httpx.Client) -> None:
        step = self.steps
        sent = {self.number * 1000 + (step * 70 + i) % KEYS: step for i in range(EACH)}
        body = "\n".join(json.dumps({"id": key, "n": n}) for key, n in sent.items()).encode()
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": self.key}
        updated = len(sent.keys() & self.rows.keys())
        told = {"records_updated": updated, "records_inserted": len(sent) - updated}
        self.done(client, lambda http: http.post(PATH, content=body, headers=headers), told, {**self.rows, **sent})


@contextmanager
def _staged(scene: Scene) -> Iterator[str]:
    """The record of the load waits for the ledger."""
    with locked_between_batches(scene.disk):
        reached(lambda: staged_files(scene.disk.home))
        yield ""


def staged_files(home: Path) -> list[Path]:
    return list(home.glob("**/load_*/data/*.parquet"))


STAGED = Point("received, not matched", _staged, lambda scene, _: bool(staged_files(scene.disk.home)), "")


@pytest.fixture(scope="module")
def victim(service: RestartedService) -> Iterator[Victim]:
    made = Victim(service, NAME)
    made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
    return made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "point", thorough_except([SWAPPED], [SWAPPED, STAGED, METADATA_WRITTEN, ONE_ANSWERED]), ids=str
)
def test_bulk_upserts_are_neither_lost_nor_doubled_nor_miscounted(victim: Victim, point: Point) -> None:
    run = next(_runs)
    victim.firn.ok({"operation": "DELETE", **ADDRESS, "all": True})
    with victim.proxy() as proxy:
        clients = [OwnKeys(number, proxy.url, run) for number in range(CLIENTS)]
        with at_work(clients) as wait_for_steps:
            wait_for_steps(1)
            batch = kill_among_steps(victim, point, proxy, wait_for_steps, 2)
    if batch:
        state, snapshot_id, _ = victim.disk.noted(batch)
        assert state == point.comes_to
        assert victim.disk.committed().get(batch) == snapshot_id
    expected = {key: n for client in clients for key, n in client.rows.items()}
    assert {row["id"]: row["n"] for row in victim.firn.rows(NAME.tenant, NAME.table)} == expected
    assert victim.disk.ids() == dict.fromkeys(expected, 1)
    check_responses(clients, victim.firn.client)
    assert staged_files(victim.disk.home) == []
