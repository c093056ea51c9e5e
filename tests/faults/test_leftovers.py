"""SIGKILL while a table is written to and compacted: the same rows, and after CLEAN_ORPHANS nothing is left behind."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from pyiceberg.table import StaticTable

from service.model.names import TableName
from tests.faults.evidence import Disk
from tests.faults.load import Load
from tests.faults.points import stopped
from tests.faults.victim import RestartedService, Victim
from tests.harness import Firn, wait_until

NAME = TableName("leftovers", "default", "kept")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}}
# Few writers, so that files gather between the merges, and an expiry worth its while.
CLIENTS = 4
PATIENCE_S = 150
ROUNDS = int(os.environ.get("KILL_ROUNDS", "50"))
CLEAN = {"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 0}


@pytest.fixture(scope="module")
def victim(service: RestartedService) -> Victim:
    made = Victim(service, NAME)
    made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
    return made


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_service_killed_while_it_compacts_leaves_nothing_that_cannot_be_removed(victim: Victim) -> None:
    for moment in (0.15, 0.4):
        assert killed_while_it_compacts(victim, moment) > 0, "the kill left nothing, so that nothing was shown"


@pytest.mark.large
@pytest.mark.timeout(7200)
def test_a_service_killed_often_while_it_compacts_leaves_nothing_that_cannot_be_removed(victim: Victim) -> None:
    moments = random.Random(8)
    for _ in range(ROUNDS):
        assert killed_while_it_compacts(victim, moments.uniform(0, 2)) > 0


def killed_while_it_compacts(victim: Victim, moment: float) -> int:
    """One round: a kill, so long after a COMPACT has begun, that leaves files which belong to nothing; how many."""
    load = Load(victim.firn, ADDRESS, CLIENTS, victim.first_id())
    defects = victim.process.defects()
    try:
        with load, compacting(victim.firn.base_url) as started:
            load.wait_for(2 * CLIENTS, PATIENCE_S)
            started.clear()
            assert started.wait(PATIENCE_S), "no COMPACT was sent"
            time.sleep(moment)
            left = kill_with_leftovers(victim)
            victim.start()
            load.wait_for(2 * CLIENTS, PATIENCE_S)
    finally:
        victim.responses.add(load.responses)
    assert victim.process.defects() == defects
    victim.responses.check(victim.disk.ids())
    found = victim.firn.ok({**CLEAN, "dry_run": True})["plan"]
    cleaned = victim.firn.ok(CLEAN)
    assert cleaned["files_removed"] == cleaned["files_found"] == found["files_removed"], cleaned
    # What the background lets go of meanwhile is deleted a moment after it.
    wait_until(lambda: on_disk(victim.disk) == referred_to(victim.disk), 120)
    victim.responses.check(victim.disk.ids())
    return left


def kill_with_leftovers(victim: Victim) -> int:
    """Kill the service as soon as it stands still with files that no metadata names; how many it leaves."""
    [jvm] = victim.process.jvms()

    def killed() -> bool:
        with stopped(victim.process.id), stopped(jvm):
            if left := bool(leftovers(victim.disk)):
                os.kill(jvm, signal.SIGKILL)  # first: one whose parent is gone goes on for a moment
                victim.kill()
        return left

    wait_until(killed, PATIENCE_S, every=0.05)
    return len(leftovers(victim.disk))


def leftovers(disk: Disk) -> set[Path]:
    return on_disk(disk) - referred_to(disk)


@contextmanager
def compacting(url: str) -> Iterator[threading.Event]:
    """One COMPACT after the other, with an expiry; the event is set each time that one is sent."""
    started, over = threading.Event(), threading.Event()
    request = {"operation": "COMPACT", **ADDRESS, "force": True, "snapshot_retention_hours": 0}

    def compact() -> None:
        firn = Firn(url)
        while not over.is_set():
            started.set()
            try:
                firn.post(request)
            except httpx.TransportError:
                time.sleep(0.2)

    thread = threading.Thread(target=compact, daemon=True)
    thread.start()
    try:
        yield started
    finally:
        over.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def on_disk(disk: Disk) -> set[Path]:
    """Every file in the table's folder, less Hadoop's checksums of files that are there."""
    files = {path for path in disk.metadata().parent.parent.rglob("*") if path.is_file()}
    checksums = {path.with_name(f".{path.name}.crc") for path in files}
    return files - checksums


def referred_to(disk: Disk) -> set[Path]:
    """The files that the table's metadata names, by PyIceberg's account."""
    table = StaticTable.from_metadata(str(disk.metadata()))
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
    return {Path(urlsplit(location).path) for location in found}
