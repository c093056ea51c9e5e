"""The internal columns of ingestion tables: hidden unless they are named, and kept by everything that rewrites rows."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.ingesting import HEADER, IngestedTable, row

DAYS = {"2024-01-01": [1, 2], "2024-01-02": [3, 4], "2024-02-01": [5]}


def ingested(firn: Firn, tenant: str, folder: Path) -> IngestedTable:
    table = IngestedTable(firn, tenant, folder)
    for day, ids in DAYS.items():
        table.ingest(day, HEADER + "".join(row(n) for n in ids))
    return table


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    return ingested(firn, tenant, tmp_path)


@pytest.fixture(scope="module")
def unchanged(firn: Firn, tmp_path_factory: pytest.TempPathFactory) -> IngestedTable:
    """A table that no test changes."""
    return ingested(firn, "ingest-columns", tmp_path_factory.mktemp("unchanged"))


def places(table: IngestedTable) -> dict[int, tuple[str, str, str]]:
    return {r["id"]: (r["_firn_period"], r["_firn_date"], r["_firn_file"].rpartition("/")[2]) for r in table.dated()}


def expected(*ids: int) -> dict[int, tuple[str, str, str]]:
    every = {n: (day[:7], day, f"sales_{day}.csv") for day, numbers in DAYS.items() for n in numbers}
    return {n: every[n] for n in ids}


def test_no_answer_shows_them_unless_they_are_named(unchanged: IngestedTable) -> None:
    assert not any(name.startswith("_firn_") for name in unchanged.rows()[0])
    assert not any(name.startswith("_firn_") for name in unchanged.description["schema"]["fields"])
    assert unchanged.description["partition"] == {"partitions": []}
    assert places(unchanged) == expected(1, 2, 3, 4, 5)
    assert unchanged.ids(filter={"_firn_period": "2024-01"}) == [1, 2, 3, 4]
    grouped = unchanged.rows(group_by=["_firn_date"], aggregations=[{"op": "count"}], sort=["_firn_date"])
    assert [r["_firn_date"] for r in grouped] == list(DAYS)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM sales", {"id", "sold_on", "product", "quantity", "price"}),
        ("SELECT * FROM sales WHERE _firn_date = DATE'2024-01-01'", {"id", "sold_on", "product", "quantity", "price"}),
        ("SELECT id, _firn_file FROM sales", {"id", "_firn_file"}),
        ("SELECT s.*, s._firn_period FROM sales s", {"id", "sold_on", "product", "quantity", "price", "_firn_period"}),
        ("SELECT _firn_period, count(*) AS n FROM sales GROUP BY _firn_period", {"_firn_period", "n"}),
    ],
)
def test_sql_shows_them_only_if_it_names_them(unchanged: IngestedTable, sql: str, names: set[str]) -> None:
    found = unchanged.firn.ok({"operation": "QUERY", "tenant_id": unchanged.tenant, "sql": sql})["data"]
    assert set(found[0]) == names


def test_rows_keep_them_in_every_change(sales: IngestedTable) -> None:
    sales.ok("UPDATE", filter={"id": {"gt": 1}}, updates={"product": "x"})
    sales.ok("DELETE", filter={"id": 2})
    assert places(sales) == expected(1, 3, 4, 5)
    sales.ok("DEDUPLICATE", key_cols=["product"], order_by=["id"])
    assert places(sales) == expected(1, 3)
    sales.ok("COMPACT", force=True)
    assert places(sales) == expected(1, 3)


@pytest.mark.thorough
def test_what_is_undone_or_restored_has_them_again(sales: IngestedTable) -> None:
    deleted = sales.ok("DELETE", filter={"id": {"in": [2, 3]}}, create_backup=True)
    sales.ok("DELETE", filter={"id": 5})
    sales.ok("UNDO", request_id=deleted["metadata"]["request_id"])
    assert places(sales) == expected(1, 2, 3, 4)
    sales.ok("RESTORE_BACKUP", name=deleted["backup"])
    assert places(sales) == expected(1, 2, 3, 4, 5)


@pytest.mark.thorough
def test_an_ingest_can_be_undone(sales: IngestedTable) -> None:
    content = HEADER + row(30)
    done = sales.ingest("2024-01-02", content)
    sales.ok("UNDO", request_id=done["metadata"]["request_id"])
    assert places(sales) == expected(1, 2, 3, 4, 5)
    assert sales.ingest("2024-01-02", content)["records_ingested"] == 1


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("WRITE", {"records": [{"id": 9}]}),
    ("WRITE", {"records": [{"id": 9}], "mode": "overwrite"}),
    ("UPSERT", {"records": [{"id": 9}], "key_cols": ["id"]}),
    ("REPARTITION", {"partition": {"partitions": [{"field": "id", "transform": "identity"}]}}),
    ("REINITIALISE_TABLE", {"confirm": True}),
]


@pytest.mark.parametrize(("operation", "fields"), REFUSED)
def test_operations_that_know_no_date_are_refused(
    unchanged: IngestedTable, operation: str, fields: dict[str, Any]
) -> None:
    assert "INGEST" in unchanged.fail("INVALID_REQUEST", operation, **fields)["message"]


def test_a_bulk_load_is_refused(unchanged: IngestedTable) -> None:
    path = f"/tables/{unchanged.tenant}/default/sales/records"
    sent = unchanged.firn.client.post(path, content=b'{"id": 9}\n', headers={"Content-Type": "application/x-ndjson"})
    assert (sent.status_code, sent.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_the_description_has_the_table_file_and_the_dataset(unchanged: IngestedTable) -> None:
    found = unchanged.description["ingestion"]
    assert found["table"] == {"name": "sales"}
    assert [column["name"] for column in found["dataset"]["columns"]] == [
        "id",
        "sold_on",
        "product",
        "quantity",
        "price",
    ]
