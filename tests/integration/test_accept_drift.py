"""ACCEPT_DRIFT: the columns of a refused file become part of the dataset and the table."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.harness import Firn
from tests.support.ingesting import COLUMNS, IngestedTable

CONTENT = "id,sold_on,quantity,price,shop,size\n1,2024-01-01,1,1.00,north,7\n"


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    return IngestedTable(firn, tenant, tmp_path, dataset={"columns": COLUMNS})


def test_a_refused_change_is_adopted(sales: IngestedTable) -> None:
    sales.refuse("FILE_REJECTED", "2024-01-01", CONTENT)
    state = sales.state()
    plan = sales.ok("ACCEPT_DRIFT", dry_run=True)
    assert sales.state() == state
    done = sales.ok("ACCEPT_DRIFT", date="2024-01-01")
    assert done["changes"] == plan["plan"]["changes"]
    assert done["changes"] == [
        {"column": "shop", "change": "added", "to": "VARCHAR"},
        {"column": "size", "change": "added", "to": "BIGINT"},
        {"column": "product", "change": "optional"},
    ]
    columns = {one["name"]: one for one in yaml.safe_load(done["dataset"])["columns"]}
    assert (columns["size"]["type"], columns["product"]["optional"]) == ("BIGINT", True)
    sales.ingest("2024-01-01", sales.files / "sales_2024-01-01.csv")
    [found] = sales.rows()
    assert (found["shop"], found["size"], found["product"]) == ("north", 7, None)
    assert sales.ok("ACCEPT_DRIFT")["changes"] == []


def test_there_must_be_a_refused_file(sales: IngestedTable) -> None:
    assert "was refused" in sales.fail("INVALID_REQUEST", "ACCEPT_DRIFT")["message"]
    sales.refuse("FILE_REJECTED", "2024-01-01", CONTENT)
    assert sales.fail("INVALID_REQUEST", "ACCEPT_DRIFT", date="2024-01-02")["field"] == "date"


def decimals(sales: IngestedTable, name: str, digits: int, *values: str) -> Path:
    """A Parquet file whose price has this many digits."""
    kind = pa.decimal128(digits, 2)
    rows = {"id": [1 + i for i in range(len(values))], "price": pa.array([Decimal(v) for v in values], kind)}
    path = sales.files / name
    pq.write_table(pa.table(rows), path)
    return path


PRICED = {"columns": [COLUMNS[0], {"name": "price", "type": "DECIMAL(6,2)"}]}


@pytest.mark.thorough
def test_a_decimal_column_becomes_wider_with_the_file_if_it_evolves(firn: Firn, tenant: str, tmp_path: Path) -> None:
    rules = {**PRICED, "on_drift": {"retyped": "evolve"}}
    sales = IngestedTable(firn, tenant, tmp_path, dataset=rules)
    assert "drift" not in sales.ingest("2024-01-01", decimals(sales, "a.parquet", 6, "1.50"))
    done = sales.ingest("2024-01-02", decimals(sales, "b.parquet", 12, "1234567890.25"))
    assert done["drift"] == {"retyped": {"price": "DECIMAL(12,2)"}}
    assert sales.description["schema"]["fields"]["price"]["type"] == "decimal(12,2)"
    assert [r["price"] for r in sales.rows(sort=["id", "price"])] == ["1.50", "1234567890.25"]
    narrow = {"dataset": rules}
    assert sales.ingest("2024-01-03", decimals(sales, "c.parquet", 6, "2.50"), **narrow)["records_ingested"] == 1


def test_a_file_that_was_refused_because_of_wide_decimals_can_be_accepted(
    firn: Firn, tenant: str, tmp_path: Path
) -> None:
    sales = IngestedTable(firn, tenant, tmp_path, dataset={**PRICED, "max_rejects": 0})
    path = decimals(sales, "a.parquet", 12, "1.50", "1234567890.25")
    refused = sales.refuse("FILE_REJECTED", "2024-01-01", path)
    assert "ACCEPT_DRIFT" in refused["message"]
    assert sales.ok("ACCEPT_DRIFT")["changes"] == [
        {"column": "price", "change": "retyped", "from": "DECIMAL(6,2)", "to": "DECIMAL(12,2)"}
    ]
    assert sales.ingest("2024-01-01", path)["records_ingested"] == 2
    assert sales.ok("ACCEPT_DRIFT")["changes"] == []
