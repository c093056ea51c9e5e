"""Mode auto on a service that is left alone: nobody asks, and the small files are merged."""

from pathlib import Path

import pytest

from tests.faults.process import Process
from tests.harness import wait_until

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_table_in_mode_auto_is_compacted_without_being_asked(tmp_path: Path) -> None:
    often = {"ICEBERG__COMPACTION__AUTO_INTERVAL_S": "1", "ICEBERG__COMPACTION__AUTO_SMALL_FILES_FACTOR": "1"}
    with Process(tmp_path / "home", **often) as process:
        process.wait_until_ready()
        firn = process.firn
        for table, mode in (("orders", "auto"), ("people", "recommend")):
            schema, properties = {"fields": {"id": {"type": "long"}}}, {"compaction": {"mode": mode}}
            create = {"operation": "CREATE_TABLE", **ADDRESS, "table": table}
            firn.ok({**create, "schema": schema, "properties": properties})
            for n in range(5):
                firn.ok({"operation": "WRITE", **ADDRESS, "table": table, "records": [{"id": n}]})

        def logged(table: str) -> list[dict[str, object]]:
            return list(firn.ok({"operation": "COMPACTION_LOG", **ADDRESS, "table": table})["compactions"])

        wait_until(lambda: any(entry["state"] == "done" for entry in logged("orders")), 60)
        assert {entry["requested_by"] for entry in logged("orders")} == {"auto"}
        described = firn.ok({"operation": "DESCRIBE_TABLE", **ADDRESS})["description"]
        assert (described["row_count"], described["file_count"] < 5) == (5, True)
        assert logged("people") == []
