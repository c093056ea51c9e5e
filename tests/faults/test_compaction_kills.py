"""SIGKILL at each stage of a compaction: the same rows, and nothing that stays behind."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from service.names import TableName
from tests.faults.evidence import Disk, held
from tests.faults.points import METADATA_WRITTEN, SWAPPED, Scene, reached
from tests.faults.test_leftovers import on_disk, referred_to
from tests.faults.victim import Victim
from tests.harness import Firn, wait_until

NAME = TableName("compaction-kills", "default", "kept")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}}
FILES = 5
Stage = Callable[[Victim], AbstractContextManager[bool]]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    made = Victim(tmp_path_factory.mktemp("compaction-kills") / "home", NAME)
    try:
        made.process.wait_until_ready()
        made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
        yield made
    finally:
        made.close()


def files_of_compactions(disk: Disk) -> set[Path]:
    return set((disk.metadata().parent.parent / "data").glob("compact-*/**/*.parquet"))


@contextmanager
def rewriting(victim: Victim) -> Iterator[bool]:
    """New files are being written; none is in a snapshot."""
    before = files_of_compactions(victim.disk)
    compact(victim)
    reached(lambda: files_of_compactions(victim.disk) - before)
    [jvm] = victim.process.jvms()
    os.kill(jvm, signal.SIGSTOP)
    held_now = referred_to(victim.disk)
    yield not (files_of_compactions(victim.disk) - before) & held_now


@contextmanager
def metadata_written(victim: Victim) -> Iterator[bool]:
    scene = Scene(victim.process, None, victim.disk)  # type: ignore[arg-type]  # no client is in the way
    compact_once_held = threading.Timer(0.3, compact, (victim,))
    compact_once_held.start()
    with METADATA_WRITTEN.reach(scene) as batch:
        yield METADATA_WRITTEN.proof(scene, batch)


@contextmanager
def swapped(victim: Victim) -> Iterator[bool]:
    scene = Scene(victim.process, None, victim.disk)  # type: ignore[arg-type]
    compact_once_held = threading.Timer(0.3, compact, (victim,))
    compact_once_held.start()
    with SWAPPED.reach(scene) as batch:
        yield batch in victim.disk.committed()


@contextmanager
def expiring(victim: Victim) -> Iterator[bool]:
    """The files are merged, and the snapshots before that are about to go."""
    before = len(victim.disk.committed())
    compact(victim)
    reached(lambda: len(victim.disk.committed()) > before)
    with held(victim.disk.catalog):
        yield True


def compact(victim: Victim) -> None:
    """Send a COMPACT that nobody hears the answer of."""

    def send() -> None:
        with suppress(httpx.HTTPError):
            Firn(victim.firn.base_url).post({"operation": "COMPACT", **ADDRESS, "snapshot_retention_hours": 0})

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", [rewriting, metadata_written, swapped, expiring], ids=lambda stage: stage.__name__)
def test_a_service_killed_while_it_compacts_has_the_same_rows_and_keeps_no_file_of_it(
    victim: Victim, stage: Stage
) -> None:
    first = victim.first_id()
    for i in range(FILES):
        victim.firn.ok({"operation": "WRITE", **ADDRESS, "records": [{"id": first + i, "payload": "x" * 100}]})
    rows = victim.disk.ids()
    with stage(victim) as was_there:
        victim.kill()
    victim.start()
    victim.process.wait_until_ready()
    assert was_there
    assert victim.disk.ids() == rows
    # What the compaction wrote itself is removed at the start, by nobody's asking.
    assert files_of_compactions(victim.disk) <= referred_to(victim.disk)
    log = victim.firn.ok({"operation": "COMPACTION_LOG", **ADDRESS, "limit": 1})["compactions"]
    assert log[0]["state"] == "interrupted"
    victim.firn.ok({"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 0})
    wait_until(lambda: on_disk(victim.disk) == referred_to(victim.disk), 30)
    assert victim.firn.ok({"operation": "COMPACT", **ADDRESS, "force": True})["success"]
    assert victim.disk.ids() == rows
