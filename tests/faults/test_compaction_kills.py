"""SIGKILL at each stage of a compaction: the same rows, and nothing that stays behind."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from service.model.names import TableName
from tests.faults.evidence import Disk, locked
from tests.faults.points import EVERY_S, METADATA_WRITTEN, SWAPPED, NotReached, Scene, reached, stopped
from tests.faults.test_leftovers import on_disk, referred_to
from tests.faults.victim import RestartedService, Victim
from tests.harness import wait_until
from tests.support.marks import thorough_except

NAME = TableName("compaction-kills", "default", "kept")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}}
FILES = 5
PARTS = 400
TRIES, PATIENCE_S = 5, 60
Stage = Callable[[Victim], AbstractContextManager[bool]]


@pytest.fixture(scope="module")
def victim(service: RestartedService) -> Victim:
    made = Victim(service, NAME)
    made.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
    return made


def files_of_compactions(disk: Disk) -> set[Path]:
    return set((disk.metadata().parent.parent / "data").glob("compact-*/**/*.parquet"))


@contextmanager
def rewriting(victim: Victim) -> Iterator[bool]:
    """New files are being written; none is in a snapshot."""
    before = files_of_compactions(victim.disk)
    compact(victim)
    reached(lambda: files_of_compactions(victim.disk) - before)
    [jvm] = victim.process.jvms()
    with stopped(jvm):
        yield not (files_of_compactions(victim.disk) - before) & referred_to(victim.disk)


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
    with locked(victim.disk.catalog):
        yield victim.disk.snapshots() > 1


@contextmanager
def deleting(victim: Victim) -> Iterator[bool]:
    """The snapshots before are gone, and the files that only they needed are about to be deleted."""
    there = on_disk(victim.disk)
    before = victim.disk.snapshots()
    compact(victim)
    reached(lambda: victim.disk.snapshots() < before)
    with stopped(victim.process.id):
        yield bool(there & on_disk(victim.disk) - referred_to(victim.disk))


@contextmanager
def rewriting_manifests(victim: Victim) -> Iterator[bool]:
    """The files are merged, and new manifests are written that are in no snapshot."""
    metadata = victim.disk.metadata().parent
    before, committed = set(metadata.glob("optimized-m-*")), len(victim.disk.committed())
    compact(victim, rewrite_manifests=True)
    reached(lambda: set(metadata.glob("optimized-m-*")) - before)
    [jvm] = victim.process.jvms()
    with stopped(jvm):
        new = set(metadata.glob("optimized-m-*")) - before - referred_to(victim.disk)
        yield bool(new) and len(victim.disk.committed()) == committed + 1


@contextmanager
def joining(victim: Victim) -> Iterator[bool]:
    """What all cores wrote is joined; the joined file is in no snapshot."""
    compact(victim)
    reached(lambda: any(path.name.startswith("joined-") for path in files_of_compactions(victim.disk)))
    [jvm] = victim.process.jvms()
    with stopped(jvm):
        new = files_of_compactions(victim.disk) - referred_to(victim.disk)
        yield any(path.name.startswith("joined-") for path in new)


def compact(victim: Victim, table: str = NAME.table, **fields: Any) -> None:
    """Send a COMPACT that nobody hears the answer of."""
    request = {"operation": "COMPACT", **ADDRESS, "table": table, "snapshot_retention_hours": 0, **fields}
    victim.send_unheard(request)


STAGES = [rewriting, metadata_written, swapped, expiring, deleting, rewriting_manifests, joining]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", thorough_except([rewriting], STAGES), ids=lambda stage: stage.__name__)
def test_a_service_killed_while_it_compacts_has_the_same_rows_and_keeps_no_file_of_it(
    victim: Victim, stage: Stage
) -> None:
    rows, earlier = killed_at(victim, stage)
    victim.start()
    victim.process.wait_until_ready()
    assert victim.disk.ids() == rows
    # What the compaction wrote itself is removed at the start, by nobody's asking.
    assert files_of_compactions(victim.disk) - earlier <= referred_to(victim.disk)
    assert latest(victim) == "interrupted"
    victim.firn.ok({"operation": "CLEAN_ORPHANS", **ADDRESS, "older_than_hours": 0})
    wait_until(lambda: on_disk(victim.disk) == referred_to(victim.disk), 30)
    assert victim.firn.ok({"operation": "COMPACT", **ADDRESS, "force": True})["success"]
    assert victim.disk.ids() == rows


def killed_at(victim: Victim, stage: Stage) -> tuple[Counter[int], set[Path]]:
    """The rows, and the files of earlier compactions, when the service was killed at a stage of one.

    A stage that was over before it was met is tried again with the next compaction.
    """
    for _ in range(TRIES):
        first = victim.first_id()
        for i in range(FILES):
            # What is to be joined are 5 MB that nothing makes smaller.
            payload = random.Random(i).randbytes(1_000_000).hex() if stage is joining else "x" * 100
            victim.firn.ok({"operation": "WRITE", **ADDRESS, "records": [{"id": first + i, "payload": payload}]})
        rows, earlier = victim.disk.ids(), files_of_compactions(victim.disk)
        with suppress(NotReached), stage(victim) as was_there:
            if was_there:
                victim.kill()
                return rows, earlier
        wait_until(lambda: latest(victim) == "done", PATIENCE_S)
    raise AssertionError(f"{TRIES} compactions were never met at this stage")


def latest(victim: Victim) -> str:
    """What the log says of the latest compaction."""
    [entry] = victim.firn.ok({"operation": "COMPACTION_LOG", **ADDRESS, "limit": 1})["compactions"]
    return str(entry["state"])


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_compaction_killed_between_two_of_its_commits_keeps_what_it_had_committed(victim: Victim) -> None:
    """So many partitions that they take longer than the time between two commits."""
    address = {**ADDRESS, "table": "parts"}
    by_part = {"partitions": [{"field": "payload", "transform": "identity"}]}
    victim.firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA, "partition": by_part})
    for n in range(2):
        rows = [{"id": n * PARTS + i, "payload": f"p{i:03}"} for i in range(PARTS)]
        victim.firn.ok({"operation": "WRITE", **address, "records": rows})
    disk = victim.disk.of("parts")
    ids, before = disk.ids(), disk.snapshots()
    compact(victim, "parts", min_files=2, max_files=10_000, expire_snapshots=False)
    wait_until(lambda: disk.snapshots() > before, 60, every=EVERY_S)
    victim.kill()
    merged = 2 * PARTS - len(data_files(disk))
    assert 0 < merged < PARTS, "it was not between two commits"
    victim.start()
    victim.process.wait_until_ready()
    assert disk.ids() == ids
    assert 2 * PARTS - len(data_files(disk)) == merged
    assert files_of_compactions(disk) <= referred_to(disk)
    stats = victim.firn.ok({"operation": "COMPACT", **address, "min_files": 2, "max_files": 10_000})["stats"]
    assert (stats["files_compacted"], stats["files_after"]) == (2 * (PARTS - merged), PARTS)
    assert disk.ids() == ids


def data_files(disk: Disk) -> list[str]:
    """The data files of the table as it is."""
    files: list[str] = StaticTable.from_metadata(str(disk.metadata())).inspect.data_files()["file_path"].to_pylist()
    return files
