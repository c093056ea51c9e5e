"""A daily load whose sources, tables and exported files are all in S3; moto's, in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.process import Process
from tests.harness import Firn
from tests.integration.test_s3_and_glue import REGION, aws, objects, s3

__all__ = ["aws"]  # the fixture

TABLE = {"tenant_id": "acme", "namespace": "default", "table": "sales"}
HEADER = "id,amount\n"
COLUMNS = [{"name": "id", "type": "BIGINT"}, {"name": "amount", "type": "INTEGER"}]
CONFIG = {
    "name": "sales",
    "storage": {"type": "s3", "base_path": "s3://lake/exports/sales/"},
    "export": True,
    "ingestion": {"watch": {"folder": "s3://lake/in", "pattern": "sales_{date}.csv", "settle_seconds": 0}},
}


def put(address: str, day: int, text: str) -> None:
    s3(address).put_object(Bucket="lake", Key=f"in/sales_2024-01-{day:02}.csv", Body=(HEADER + text).encode())


def ids(firn: Firn) -> list[int]:
    asked = {"operation": "QUERY", **TABLE, "projection": ["id"], "sort": ["id"]}
    return [row["id"] for row in firn.ok(asked)["data"]]


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_files_are_watched_backfilled_replayed_merged_and_exported(aws: str, tmp_path: Path) -> None:
    properties = {"s3.endpoint": aws, "s3.path-style-access": "true", "s3.region": REGION, "client.region": REGION}
    settings = {"CATALOG__WAREHOUSE": "s3://lake/warehouse", "CATALOG__PROPERTIES": json.dumps(properties)}
    with Process(tmp_path / "home", **settings, INGEST__WATCH_INTERVAL_S="86400") as process:
        process.wait_until_ready()
        firn = process.firn

        def ok(operation: str, **fields: Any) -> dict[str, Any]:
            return firn.ok({"operation": operation, **TABLE, **fields})

        ok("CREATE_TABLE", config=CONFIG, dataset={"columns": COLUMNS, "on_error": "quarantine"})
        put(aws, 2, "2,20\n3,x\n")
        put(aws, 1, "1,10\n")
        watched = ok("WATCH")
        assert (watched["files_ingested"], watched["files_failed"]) == (2, 0)
        assert ids(firn) == [1, 2]
        for day in range(3, 32):
            put(aws, day, f"{day * 10},1\n")
        ranged = ok(
            "INGEST_RANGE", source="s3://lake/in/sales_{date}.csv", **{"from": "2024-01-01", "to": "2024-01-31"}
        )
        assert (ranged["days_ingested"], ranged["days_unchanged"]) == (29, 2)
        assert ok("WATCH")["files_unchanged"] == 31
        daily = objects(aws, ".parquet", "exports/sales/")
        assert len(daily) == 31
        replayed = ok("REPLAY", dataset={"columns": COLUMNS, "on_error": "null"})
        assert (replayed["records_read"], replayed["records_ingested"]) == (1, 1)
        assert ok("EXPORT")["files_written"] == 1
        merged = ok("COMPACT", period="2024-01", delete_source=True)
        assert merged["compacted"] is True
        assert ids(firn) == [1, 2, 3, *(day * 10 for day in range(3, 32))]
        assert [key.rpartition("/")[2] for key in objects(aws, ".parquet", "exports/sales/")] == ["2024-01.parquet"]
        put(aws, 2, "2,21\n")
        assert ok("WATCH")["files_ingested"] == 1
        assert ids(firn) == [1, 2, *(day * 10 for day in range(3, 32))]
