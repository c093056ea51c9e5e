"""INGEST_RANGE: the files of many dates, several in each commit; a date that fails does not stop the others."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn, wait_until
from tests.support.ingesting import HEADER, IngestedTable, row


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    return IngestedTable(firn, tenant, tmp_path)


def a_range(sales: IngestedTable, first: int = 1, last: int = 5) -> dict[str, Any]:
    source = str(sales.files / "sales_{date}.csv")
    return {"source": source, "from": f"2024-01-0{first}", "to": f"2024-01-0{last}"}


def states(done: dict[str, Any]) -> list[str]:
    return [one["state"] for one in done["days"]]


def test_a_bad_day_and_a_missing_one_do_not_stop_the_others(sales: IngestedTable) -> None:
    for day in (1, 2, 4, 5):
        sales.file(f"sales_2024-01-0{day}.csv", HEADER + row(day) + (row("x") if day == 4 else ""))
    sales.file("sales_2024-01-02.csv", "id,other\n1,2\n")
    before = len(sales.ok("HISTORY")["snapshots"])
    done = sales.ok("INGEST_RANGE", **a_range(sales))
    assert states(done) == ["ingested", "failed", "missing", "ingested", "ingested"]
    assert [done[f"days_{state}"] for state in ("ingested", "unchanged", "missing", "failed")] == [3, 0, 1, 1]
    assert (done["records_read"], done["records_ingested"], done["records_rejected"]) == (4, 3, 1)
    assert done["days"][1]["error"]["code"] == "FILE_REJECTED"
    assert done["days"][1]["error"]["details"]["drift"]["new"] == ["other"]
    assert done["days"][3]["rejects"] == {"id: not a BIGINT": 1}
    assert sales.ids() == [1, 4, 5]
    assert len(sales.ok("HISTORY")["snapshots"]) == before + 1
    assert [r["raw"].partition(",")[0] for r in sales.quarantined()] == ["x"]


@pytest.mark.thorough
def test_sent_again_it_goes_on_where_it_stopped(sales: IngestedTable) -> None:
    for day in (1, 2):
        sales.file(f"sales_2024-01-0{day}.csv", HEADER + row(day))
    first = sales.ok("INGEST_RANGE", **a_range(sales), days_per_commit=1)
    assert states(first) == ["ingested", "ingested", "missing", "missing", "missing"]
    sales.file("sales_2024-01-03.csv", HEADER + row(3))
    sales.file("sales_2024-01-01.csv", HEADER + row(10))
    again = sales.ok("INGEST_RANGE", **a_range(sales))
    assert states(again) == ["ingested", "unchanged", "ingested", "missing", "missing"]
    assert sales.ids() == [2, 3, 10]
    unchanged = sales.ok("INGEST_RANGE", **a_range(sales))
    assert unchanged["days_unchanged"] == 3
    assert unchanged["metadata"]["snapshot_id"] == again["metadata"]["snapshot_id"]


def test_a_dry_run_changes_nothing(sales: IngestedTable) -> None:
    sales.file("sales_2024-01-01.csv", HEADER + row(1) + row("x"))
    state = sales.state()
    done = sales.ok("INGEST_RANGE", **a_range(sales), dry_run=True)
    assert done["dry_run"] is True
    assert (done["plan"]["records_ingested"], done["plan"]["records_rejected"]) == (1, 1)
    assert sales.state() == state


def test_a_job_shows_its_progress_in_days_and_rows(sales: IngestedTable) -> None:
    for day in (1, 2, 3):
        sales.file(f"sales_2024-01-0{day}.csv", HEADER + row(day) + row(day + 10))
    request = sales.request("INGEST_RANGE", **a_range(sales), days_per_commit=2, **{"async": True})
    started = sales.firn.parsed(sales.firn.send(request))
    job: dict[str, Any] = {}

    def has_ended() -> bool:
        job.update(sales.firn.client.get(started["status_url"]).json()["job"])
        return job["state"] not in ("queued", "running")

    wait_until(has_ended, 60)
    assert job["state"] == "done"
    assert job["result"]["days_ingested"] == 3
    progress = job["progress"]
    assert (progress["days_total"], progress["days_done"], progress["records_ingested"]) == (5, 5, 6)
    assert len(sales.ids()) == 6


def test_the_first_file_gives_the_columns_of_a_table_without_a_dataset(firn: Firn, tenant: str, tmp_path: Path) -> None:
    table = IngestedTable(firn, tenant, tmp_path, dataset=None)
    table.file("sales_2024-01-02.csv", "id,what\n1,a\n")
    table.file("sales_2024-01-03.csv", "id,what\n2,3\n")
    done = table.ok("INGEST_RANGE", **a_range(table))
    assert done["days_ingested"] == 2
    assert table.rows(sort=["id"]) == [{"id": 1, "what": "a"}, {"id": 2, "what": "3"}]


@pytest.mark.thorough
def test_columns_that_files_of_one_commit_add_are_all_kept(firn: Firn, tenant: str, tmp_path: Path) -> None:
    dataset = {"columns": [{"name": "id", "type": "BIGINT"}], "on_drift": {"new": "evolve", "missing": "ignore"}}
    table = IngestedTable(firn, tenant, tmp_path, dataset=dataset)
    for day, extra in ((1, "a"), (2, "b")):
        table.file(f"sales_2024-01-0{day}.csv", f"id,{extra}\n{day},7\n")
    assert table.ok("INGEST_RANGE", **a_range(table))["days_ingested"] == 2
    assert table.rows(sort=["id"]) == [{"id": 1, "a": 7, "b": None}, {"id": 2, "a": None, "b": 7}]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"source": "sales.csv"}, "source", "{date}"),
        ({"source": "{week}/{date}.csv"}, "source", "{week}"),
        ({"to": "2023-12-31"}, "to", "before"),
        ({"to": "2044-01-01"}, "to", "3660"),
        ({"from": "1.1.2024"}, "from", "2024-01-31"),
    ],
)
def test_an_impossible_range_is_refused(sales: IngestedTable, fields: dict[str, Any], field: str, words: str) -> None:
    error = sales.fail("INVALID_REQUEST", "INGEST_RANGE", **{**a_range(sales), **fields})
    assert error["field"] == field
    assert words in error["message"]
