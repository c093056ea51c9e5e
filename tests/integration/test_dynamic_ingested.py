"""Dynamic tables over ingestion tables: their queries may name the internal columns, as QUERY may."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn
from tests.integration.test_ingest_sql import CASES, DATASET, FILES
from tests.support.dynamic_served import ServedDynamicTable
from tests.support.ingesting import IngestedTable

DAILY = "SELECT _firn_date AS day, count(*) AS n, max(id) AS most FROM sales GROUP BY _firn_date"
NAMED = "SELECT *, s._firn_date AS day FROM sales s JOIN (SELECT * FROM more) m USING (id, kind)"


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    for name in ("more", "sales"):
        table = IngestedTable(firn, tenant, tmp_path, name, dataset=DATASET)
        for day, content in FILES.items():
            table.ingest(day, content)
    return table


def in_order(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return sorted((list(row.values()) for row in rows), key=str)


@pytest.mark.thorough
def test_a_query_that_names_internal_columns_is_refreshed_by_its_changes(
    firn: Firn, tenant: str, sales: IngestedTable
) -> None:
    daily, named = (ServedDynamicTable(firn, tenant, n, query) for n, query in (("daily", DAILY), ("named", NAMED)))
    assert in_order(daily.rows()) == [["2024-01-01", 2, 2], ["2024-01-02", 2, 3]]
    assert list(named.rows()[0]) == ["id", "kind", "day"]
    sales.ingest("2024-01-02", "id,kind\n7,c\n3,c\n1,a\n")
    sales.ingest("2024-02-01", "id,kind\n9,b\n")
    for table in (daily, named):
        assert table.refresh()["mode"] == "INCREMENTAL"
        assert table.ok("AUDIT_DYNAMIC_TABLE")["matches"]
    assert in_order(daily.rows()) == [["2024-01-01", 2, 2], ["2024-01-02", 3, 7], ["2024-02-01", 1, 9]]
    request = {"target_lag": "1 day", "query": "SELECT id, _firn_date FROM sales"}
    refused = firn.fail(
        {"operation": "CREATE_DYNAMIC_TABLE", "tenant_id": tenant, "name": "x", **request}, "INVALID_QUERY"
    )
    assert "_firn_date is a name that Firn keeps for itself; give the column another with AS" in refused["message"]


@pytest.mark.thorough
def test_a_star_means_what_it_means_in_a_query(firn: Firn, tenant: str, sales: IngestedTable) -> None:
    address = {"tenant_id": tenant, "table": "names"}
    schema = {"fields": {"id": {"type": "long"}, "name": {"type": "string"}}}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": schema})
    firn.ok({"operation": "WRITE", **address, "records": [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]})
    tried = 0
    for number, (query, names, rows) in enumerate(CASES):
        if any(name.startswith("_firn_") for name in names) or len(set(names)) < len(names):
            continue  # no table can have these columns
        table = ServedDynamicTable(firn, tenant, f"case_{number}", query, refresh_mode="FULL" if number % 2 else "AUTO")
        found = table.rows()
        assert (list(found[0]) if found else [], in_order(found)) == (names, sorted(rows, key=str)), query
        tried += 1
    assert tried > 10
