"""A table four times as large as the JVM's heap is compacted; the memory that takes does not follow its files."""

import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from service.model.names import TableName
from tests.faults.process import Process

NAME = TableName("memory", "default", "big")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
HEAP_MB = 768
# What a JVM takes beside its heap: code, threads, classes, buffers.
BESIDE_MB = 900


# What the service's own process may take for the lists of some thousand files.
LISTS_MB = 150
MIB_OF_ROWS = (1 << 20) // 8


@dataclass(frozen=True)
class Peak:
    """The most MiB that the two processes had of the machine's memory; the service's beside what it had before."""

    jvm: int
    service: int


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_a_table_of_four_heaps_is_compacted_in_bounded_memory(tmp_path: Path) -> None:
    few, many = compacted(tmp_path / "few", files=300), compacted(tmp_path / "many", files=3000)
    assert many.jvm < HEAP_MB + BESIDE_MB, many
    # A tenth of the files, and of the bytes: little less, as the heap is used as far as it goes.
    assert many.jvm < few.jvm + 300, f"{many} for ten times the files of {few}"
    assert many.service < LISTS_MB, many


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_a_table_larger_than_the_heap_is_compacted_in_bounded_memory(tmp_path: Path) -> None:
    peak = compacted(tmp_path / "some", files=600, heap_mb=512)
    assert peak.jvm < 512 + BESIDE_MB, peak
    assert peak.service < LISTS_MB, peak


def compacted(home: Path, files: int, rows: int = MIB_OF_ROWS, heap_mb: int = HEAP_MB) -> Peak:
    """Compact a table of so many files of a mebibyte."""
    with Process(home, SPARK__DRIVER_MEMORY=f"{heap_mb}m") as process:
        process.wait_until_ready()
        process.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}})
        service_before = mib(process.id, "VmRSS")
        total = fill(home, files, rows)
        dry = process.firn.post({"operation": "COMPACT", **ADDRESS, "dry_run": True, "max_files": 100_000})
        assert dry["plan"]["files_removed"] == files
        process.firn.client.timeout = 900
        answer = process.firn.ok({"operation": "COMPACT", **ADDRESS, "max_files": 100_000})
        assert answer["stats"]["files_compacted"] == files
        assert answer["stats"]["groups_failed"] == answer["stats"]["conflicts"] == 0
        assert answer["stats"]["files_after"] <= 2 + dry["plan"]["files_added"]
        figures = [{"op": "count"}, {"op": "sum", "field": "id", "alias": "sum"}]
        [row] = process.firn.ok({"operation": "QUERY", **ADDRESS, "aggregations": figures})["data"]
        assert (row["count"], row["sum"]) == (files * rows, total)
        [jvm] = process.jvms()
        return Peak(mib(jvm, "VmHWM"), mib(process.id, "VmHWM") - service_before)


def mib(process: int, figure: str) -> int:
    """What the machine says of a process's memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(figure)).split()[1]) // 1024


def fill(home: Path, files: int, rows: int) -> int:
    """Add files of random numbers, which nothing makes smaller; the sum of all."""
    catalog = load_catalog("firn", type="sql", uri=f"sqlite:///{home}/catalog.db?timeout=30")
    table = catalog.load_table(NAME.identifier)
    folder = Path(table.location().removeprefix("file://")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    chance, total, paths = random.Random(5), 0, []
    for number in range(files):
        bits = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(chance.randbytes(8 * rows))])
        values = pc.shift_right(bits, 23)
        total += pc.sum(values).as_py()
        path = folder / f"filled-{number}.parquet"
        pq.write_table(pa.table({"id": values}), path, compression="none", use_dictionary=False)
        paths.append(str(path))
    for first in range(0, files, 500):
        catalog.load_table(NAME.identifier).add_files(paths[first : first + 500])
    return total
