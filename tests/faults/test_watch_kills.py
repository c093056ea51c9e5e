"""A service that is killed while it ingests the files of a watched folder ingests each of them once."""

from collections import Counter
from pathlib import Path

import pytest

from service.model.names import TableName
from tests.faults.evidence import locked
from tests.faults.points import reached
from tests.faults.victim import RestartedService, Victim
from tests.harness import wait_until
from tests.support.ingesting import DATASET, HEADER, row

TENANT = "watched"


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_watched_files_are_ingested_once_if_the_service_is_killed_at_the_commit(
    service: RestartedService, tmp_path: Path
) -> None:
    victim = Victim(service, TableName(TENANT, "default", "sales"))
    watch = {"folder": str(tmp_path), "pattern": "sales_{date}.csv", "settle_seconds": 0}
    config = {"name": "sales", "ingestion": {"watch": watch}}
    victim.firn.ok({"operation": "CREATE_TABLE", "tenant_id": TENANT, "config": config, "dataset": DATASET})
    with locked(victim.disk.catalog) as catalog:
        for day in (1, 2):
            (tmp_path / f"sales_2024-01-0{day}.csv").write_text(HEADER + row(day) + row(day + 10))
        reached(lambda: any(victim.disk.uncommitted(batch) for batch in victim.disk.begun()))
        with locked(victim.disk.ledger):  # the table gets the rows, and the ledger does not know it
            begun = victim.disk.begun()[0]
            catalog.release()
            reached(lambda: begun in victim.disk.committed())
            victim.kill()
    (tmp_path / "sales_2024-01-03.csv").write_text(HEADER + row(3))
    victim.start()
    once = Counter({1: 1, 11: 1, 2: 1, 12: 1, 3: 1})
    wait_until(lambda: victim.disk.ids() == once, 120)
    done = victim.firn.ok({"operation": "WATCH", "tenant_id": TENANT, "table": "sales"})
    assert (done["files_found"], done["files_unchanged"], done["files"]) == (3, 3, [])
    assert victim.disk.ids() == once
