"""ACCEPT_DRIFT: the columns of a refused file become part of the dataset and the table."""

from pathlib import Path

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
