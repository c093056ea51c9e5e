"""Ingestion tables that are renamed, dropped and restored: their rejected rows go with them, and to no other table."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.ingesting import COLUMNS, HEADER, IngestedTable, row

RULES: dict[str, Any] = {"columns": COLUMNS, "filters": [{"column": "quantity", "operator": ">", "value": 1}]}
CORRECTED: dict[str, Any] = {"columns": COLUMNS}
DAY = "2024-01-01"


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    table = IngestedTable(firn, tenant, tmp_path, dataset=RULES)
    table.ingest(DAY, HEADER + row(1, quantity=9) + row(2))
    return table


def replayed(firn: Firn, tenant: str, table: str) -> int:
    answer = firn.ok({"operation": "REPLAY", "tenant_id": tenant, "table": table, "dataset": CORRECTED})
    return int(answer["records_ingested"])


@pytest.mark.thorough
def test_rejected_rows_are_replayed_into_the_renamed_table(firn: Firn, tenant: str, sales: IngestedTable) -> None:
    sales.ok("RENAME_TABLE", new_name="takings")
    assert replayed(firn, tenant, "takings") == 1
    assert [r["id"] for r in firn.rows(tenant, "takings", sort=["id"])] == [1, 2]
    same = {"source": str(sales.file("a.csv", HEADER + row(1, quantity=9) + row(2))), "date": DAY}
    again = {"operation": "INGEST", "tenant_id": tenant, "table": "takings", **same}
    assert firn.ok(again)["quarantine_table"] == "takings__quarantine"
    assert len(firn.rows(tenant, "takings__quarantine")) == 1


@pytest.mark.thorough
def test_a_new_table_of_the_name_has_none_of_the_rows_that_the_dropped_one_rejected(
    firn: Firn, tenant: str, sales: IngestedTable, tmp_path: Path
) -> None:
    sales.ok("DROP_TABLE")
    new = IngestedTable(firn, tenant, tmp_path, dataset=RULES)
    assert replayed(firn, tenant, "sales") == 0
    new.ingest(DAY, HEADER + row(3) + row(4))
    assert [r["raw"].split(",")[0] for r in new.quarantined()] == ["3", "4"]
    sales.ok("RESTORE_TABLE", new_name="before")
    assert replayed(firn, tenant, "before") == 1
    assert [r["id"] for r in firn.rows(tenant, "before", sort=["id"])] == [1, 2]
    assert len(new.quarantined()) == 2
