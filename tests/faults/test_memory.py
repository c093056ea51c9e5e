"""A table four times as large as the JVM's heap is compacted; the memory that takes does not follow its files."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from service.names import TableName
from tests.faults.process import Process

NAME = TableName("memory", "default", "big")
ADDRESS = {"tenant_id": NAME.tenant, "namespace": NAME.namespace, "table": NAME.table}
HEAP_MB = 768
# What a JVM takes beside its heap: code, threads, classes, buffers.
BESIDE_MB = 900


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_a_table_of_four_heaps_is_compacted_in_bounded_memory(tmp_path: Path) -> None:
    few, many = (
        compacted(tmp_path / "few", files=300, rows=1_310_720 // 10),
        compacted(tmp_path / "many", files=3000, rows=131_072),
    )
    assert many < HEAP_MB + BESIDE_MB, f"{many} MiB"
    # A tenth of the files, and of the bytes: little less, as the heap is used as far as it goes.
    assert many < few + 300, f"{many} MiB for ten times the files of {few} MiB"


def compacted(home: Path, files: int, rows: int) -> int:
    """Compact a table of so many files of a mebibyte; the most MiB that the JVM had of the machine's memory."""
    with Process(home, SPARK__DRIVER_MEMORY=f"{HEAP_MB}m") as process:
        process.wait_until_ready()
        process.firn.ok({"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}})
        total = fill(home, files, rows)
        dry = process.firn.post({"operation": "COMPACT", **ADDRESS, "dry_run": True, "max_files": 100_000})
        assert dry["plan"]["files"] == files
        process.firn.client.timeout = 900
        answer = process.firn.ok({"operation": "COMPACT", **ADDRESS, "max_files": 100_000})
        assert answer["stats"]["files_compacted"] == files
        assert answer["stats"]["groups_failed"] == answer["stats"]["conflicts"] == 0
        assert answer["stats"]["files_after"] <= 2 + dry["plan"]["expected_files"]
        figures = [{"op": "count"}, {"op": "sum", "field": "id", "alias": "sum"}]
        [row] = process.firn.ok({"operation": "QUERY", **ADDRESS, "aggregations": figures})["data"]
        assert (row["count"], row["sum"]) == (files * rows, total)
        [jvm] = process.jvms()
        status = Path(f"/proc/{jvm}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


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
