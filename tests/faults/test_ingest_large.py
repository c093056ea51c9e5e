"""A CSV file as large as the JVM's heap is ingested, its rejects included."""

import itertools
from pathlib import Path

import pytest

from tests.faults.process import Process

GIB = 1 << 30
COLUMNS = [
    {"name": "id", "type": "INTEGER"},
    {"name": "day", "type": "DATE"},
    {"name": "customer", "type": "VARCHAR"},
    {"name": "price", "type": "DECIMAL(10,2)"},
    {"name": "score", "type": "DOUBLE"},
]
_LINES = "".join(
    f"{n},2024-01-{n % 28 + 1:02},customer {n % 997},{n % 9999}.{n % 90 + 10},{n}.5\n" for n in range(20_000)
)
GROUP = _LINES + "x,2024-01-01,wrong,1.00,1\n"


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_a_gibibyte_of_csv_is_ingested_with_a_heap_of_a_gibibyte(tmp_path: Path) -> None:
    path, groups = tmp_path / "big.csv", GIB // len(GROUP) + 1
    with path.open("w") as file:
        file.write("id,day,customer,price,score\n")
        for _ in itertools.repeat(None, groups):
            file.write(GROUP)
    assert path.stat().st_size >= GIB
    with Process(tmp_path / "home", SPARK__DRIVER_MEMORY="1g") as process:
        process.wait_until_ready()
        create = {"operation": "CREATE_TABLE", "tenant_id": "large", "config": {"name": "t"}}
        process.firn.ok({**create, "dataset": {"columns": COLUMNS}})
        request = {"operation": "INGEST", "tenant_id": "large", "table": "t", "source": str(path), "date": "2024-01-01"}
        process.firn.client.timeout = 1500
        done = process.firn.ok(request)
        assert (done["records_ingested"], done["records_rejected"]) == (20_000 * groups, groups)
        found = process.firn.rows("large", "t__quarantine", sort=["line"], projection=["line"])
        assert [row["line"] for row in found] == [1 + 20_001 * n for n in range(1, len(found) + 1)]
        assert process.firn.ok(request)["unchanged"] is True
        [jvm] = process.jvms()  # it did not run out of memory in between
        assert jvm
