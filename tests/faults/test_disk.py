"""A disk that fills up: what is refused is refused cleanly, and what was acknowledged is there."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import Load
from tests.faults.process import Process
from tests.harness import Firn, wait_until

ADDRESS = {"tenant_id": "disk", "table": "kept"}
SCHEMA = {"fields": {"id": {"type": "long", "required": True}, "payload": {"type": "string"}}}
MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def ids(firn: Firn) -> Counter[int]:
    return Counter(row["id"] for row in firn.rows("disk", "kept", projection=["id"]))


def fill(folder: Path, leave: int) -> Path:
    """A file that leaves only so many bytes free."""
    ballast = folder / "ballast"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast.write_bytes(b"\0" * (free - leave))
    return ballast


@pytest.mark.timeout(300)
def test_a_full_disk_loses_nothing_acknowledged_and_is_survived(small_disk: Path) -> None:
    """Writes are refused with 503 while the disk is full, reads go on, and once there is room writes do too."""
    with Process(small_disk / "home", LIMITS__STOP_TIMEOUT_S="5") as process:
        firn = process.firn
        process.wait_until_ready()
        firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": SCHEMA})
        noise = os.urandom(100_000).hex()
        firn.ok({"operation": "WRITE", **ADDRESS, "records": [{"id": -1, "payload": noise}]})
        ballast = fill(small_disk, leave=3 * MIB)
        with Load(firn, ADDRESS, clients=4, payload=noise) as load:
            wait_until(lambda: len(load.responses.refused) >= 12, 60)
            responses = load.stop()
        responses.acknowledged.add(-1)
        assert len(responses.acknowledged) > 5
        codes = Counter(responses.refused.values())
        assert set(codes) <= {"STORAGE_UNAVAILABLE", "CATALOG_UNAVAILABLE", "LEDGER_UNAVAILABLE"}, codes
        responses.check(ids(firn))
        assert process.health() == 200

        ballast.unlink()
        with Load(firn, ADDRESS, clients=4, first_id=1_000_000) as load:
            load.wait_for(8, 60)
            later = load.stop()
        assert later.refused == {}
        responses.acknowledged |= later.acknowledged
        responses.check(ids(firn))
        firn.ok({"operation": "COMPACT", **ADDRESS, "force": True})
        responses.check(ids(firn))
        process.terminate()
        assert process.exit_code(30) == 0
