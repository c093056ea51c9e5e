"""Edits of a table in S3, moto's, in this process: those that share commits, delete files, and bodies merged by key."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.process import Process
from tests.harness import Firn
from tests.integration.test_s3_and_glue import REGION, aws, objects

__all__ = ["aws"]  # the fixture

TABLE = {"tenant_id": "acme", "namespace": "default", "table": "stock"}
SCHEMA = {"fields": {"id": {"type": "long"}, "n": {"type": "integer"}}, "primary_key": ["id"]}
CLIENTS = 12


def found(firn: Firn) -> dict[int, int]:
    rows = firn.rows(TABLE["tenant_id"], TABLE["table"])
    by_id = {row["id"]: row["n"] for row in rows}
    assert len(by_id) == len(rows)
    return by_id


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_rows_are_changed_deleted_merged_and_undone(aws: str, tmp_path: Path) -> None:
    properties = {"s3.endpoint": aws, "s3.path-style-access": "true", "s3.region": REGION, "client.region": REGION}
    settings = {"CATALOG__WAREHOUSE": "s3://lake/warehouse", "CATALOG__PROPERTIES": json.dumps(properties)}
    with Process(tmp_path / "home", **settings) as process:
        process.wait_until_ready()
        firn = process.firn

        def ok(operation: str, **fields: Any) -> dict[str, Any]:
            return firn.ok({"operation": operation, **TABLE, **fields})

        def merge(records: list[dict[str, int]], key: str) -> dict[str, Any]:
            body = "\n".join(map(json.dumps, records)).encode()
            path = "/tables/acme/default/stock/records?mode=upsert"
            headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
            answer = firn.parsed(firn.client.post(path, content=body, headers=headers, timeout=120))
            assert answer["success"], answer
            return answer

        ok("CREATE_TABLE", schema=SCHEMA, properties={"row_level": "merge_on_read"})
        ok("WRITE", records=[{"id": i, "n": 0} for i in range(100)])
        rows = dict.fromkeys(range(100), 0)

        def change(number: int) -> list[int]:
            """An UPDATE, an UPSERT and a DELETE of a client's own rows."""
            mine = number * 3
            done = [
                ok("UPDATE", filter={"id": mine}, updates={"n": 1})["records_updated"],
                ok("UPSERT", records=[{"id": mine + 1, "n": 2}, {"id": 1000 + number, "n": 2}])["records_inserted"],
                ok("DELETE", filter={"id": mine + 2})["records_deleted"],
            ]
            rows.update({mine: 1, mine + 1: 2, 1000 + number: 2})
            del rows[mine + 2]
            return done

        with ThreadPoolExecutor(CLIENTS) as pool:
            assert list(pool.map(change, range(CLIENTS))) == [[1, 1, 1]] * CLIENTS
        assert found(firn) == rows
        commits = ok("HISTORY", limit=100)["snapshots"]
        assert any(len(commit["request_ids"]) > 1 for commit in commits), "no edits shared a commit"
        assert objects(aws, "deletes.parquet", "warehouse/"), "there are no delete files"

        scanned = ok("UPDATE", filter={"n": {"gte": 1}}, updates={"n": {"expression": "n + 10"}})
        assert scanned["records_updated"] == 3 * CLIENTS
        after = {key: n + 10 if n else 0 for key, n in rows.items()}
        assert found(firn) == after

        records = [{"id": i, "n": 7} for i in range(90, 110)]
        merged = merge(records, "once")
        assert (merged["records_updated"], merged["records_inserted"]) == (10, 10)
        assert merge(records, "once") == merged
        assert found(firn) == {**after, **dict.fromkeys(range(90, 110), 7)}
        undone = ok("UNDO", request_id=merged["metadata"]["request_id"])
        assert (undone["records_removed"], undone["records_restored"]) == (20, 10)
        assert found(firn) == after

        stats = ok("COMPACT", force=True, snapshot_retention_hours=0)["stats"]
        assert stats["files_after"] == 1
        assert found(firn) == after
        assert ok("DESCRIBE_TABLE")["description"]["row_count"] == len(after)
