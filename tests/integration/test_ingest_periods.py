"""COMPACT with a period: the days of a month or week become one file, and nothing is counted twice."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.harness import Firn
from tests.support.ingesting import HEADER, IngestedTable, row

WEEK = [f"2024-01-0{day}" for day in range(1, 8)]  # 2024-W01
WEEKLY: dict[str, Any] = {"compaction": {"strategy": {"type": "weekly"}}}


def weekly(firn: Firn, tenant: str, folder: Path, *, days: int = 7, **config: Any) -> IngestedTable:
    """A table of weeks, with a row of each day that was ingested."""
    table = IngestedTable(firn, tenant, folder, **{**WEEKLY, **config})
    for number, day in enumerate(WEEK[:days], 1):
        table.ingest(day, HEADER + row(number))
    return table


def exporting(folder: Path, **strategy: Any) -> dict[str, Any]:
    storage = {"type": "local", "base_path": str(folder / "out"), "format": "parquet"}
    return {"export": True, "storage": storage, "compaction": {"strategy": {"type": "weekly", **strategy}}}


def exported(folder: Path) -> dict[str, list[int]]:
    """The ids in each exported file."""
    return {path.name: sorted(pq.read_table(path)["id"].to_pylist()) for path in sorted((folder / "out").iterdir())}


@pytest.mark.thorough
def test_the_days_of_a_period_become_one_file(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path)
    sales.ingest("2024-01-08", HEADER + row(8))
    sales.ingest("2024-01-09", HEADER + row(9))
    planned = sales.ok("COMPACT", period="2024-W01", dry_run=True)
    assert planned["plan"]["periods"] == [
        {"period": "2024-W01", "records": 7, "files_before": 7, "files_after": 1, "source_files_deleted": 0}
    ]
    done = sales.ok("COMPACT", period="2024-W01")
    assert done["compacted"] is True
    assert done["periods"] == planned["plan"]["periods"]
    assert sales.description["file_count"] == 3  # the other week was left alone
    assert sales.ids() == list(range(1, 10))
    again = sales.ok("COMPACT", period="2024-W01")
    assert (again["compacted"], again["reason"]) == (False, "the files of each period are merged already")


@pytest.mark.thorough
def test_an_incomplete_period_is_refused_with_the_missing_dates(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path, days=5)
    refused = sales.fail("INVALID_REQUEST", "COMPACT", period="2024-W01")
    assert refused["details"]["missing_dates"] == ["2024-01-06", "2024-01-07"]
    assert "2024-01-06 to 2024-01-07" in refused["message"]
    assert sales.description["file_count"] == 5
    assert sales.ok("COMPACT", period="2024-W01", allow_incomplete=True)["periods"][0]["files_after"] == 1


def test_a_date_ingested_again_after_the_merge_counts_once(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path)
    sales.ok("COMPACT", period="2024-W01")
    sales.ingest("2024-01-03", HEADER + row(3) + row(30))
    done = sales.ok("COMPACT", period="2024-W01")
    assert (done["periods"][0]["files_before"], done["periods"][0]["files_after"]) == (2, 1)
    assert done["periods"][0]["records"] == 8
    assert sales.ids() == [1, 2, 3, 4, 5, 6, 7, 30]
    assert sales.ingest("2024-01-03", HEADER + row(3) + row(30))["unchanged"] is True


@pytest.mark.thorough
def test_due_merges_complete_periods_and_names_the_others(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path)
    sales.ingest("2024-01-09", HEADER + row(9))
    done = sales.ok("COMPACT", period="due")
    assert [one["period"] for one in done["periods"]] == ["2024-W01"]
    [skipped] = done["periods_skipped"]
    assert skipped["period"] == "2024-W02"
    assert skipped["missing_dates"][:2] == ["2024-01-08", "2024-01-10"]
    assert "2024-W02 was skipped" in done["reason"]
    assert sales.ok("COMPACT", period="due")["periods"] == []


@pytest.mark.thorough
def test_delete_source_deletes_the_files_that_were_merged(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path)
    done = sales.ok("COMPACT", period="2024-W01", delete_source=True)
    assert done["periods"][0]["source_files_deleted"] == 7
    assert len(sales.on_disk("*.parquet")) == 1
    assert sales.ids() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.thorough
def test_delete_source_keeps_the_files_that_a_tag_needs(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path)
    backup = sales.ok("DELETE", filter={"id": 1}, create_backup=True)
    assert backup["success"]
    done = sales.ok("COMPACT", period="2024-W01", delete_source=True)
    assert done["periods"][0]["source_files_deleted"] == 0
    assert sales.ids() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"period": "2024-01"}, "period"),
        ({"period": "2024-W60"}, "period"),
        ({"period": "2024-W30"}, "period"),
        ({"allow_incomplete": True}, "allow_incomplete"),
        ({"period": "due", "min_files": 5}, "min_files"),
        ({"period": "due", "delete_source": True, "expire_snapshots": False}, "expire_snapshots"),
    ],
)
def test_an_impossible_period_is_one_clear_error(
    firn: Firn, tenant: str, tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    sales = weekly(firn, tenant, tmp_path, days=0)
    assert sales.fail("INVALID_REQUEST", "COMPACT", **fields)["field"] == field


def test_an_ordinary_table_has_no_periods(firn: Firn, tenant: str) -> None:
    address = {"tenant_id": tenant, "table": "plain"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"id": {"type": "long"}}}})
    error = firn.fail({"operation": "COMPACT", **address, "period": "2024-01"}, "INVALID_REQUEST")
    assert error["field"] == "period"
    assert "not made from a table file" in error["message"]


@pytest.mark.thorough
def test_each_day_is_exported_and_a_merged_period_too(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path, **exporting(tmp_path))
    assert exported(tmp_path) == {f"{day}.parquet": [i] for i, day in enumerate(WEEK, 1)}
    done = sales.ok("COMPACT", period="2024-W01")
    assert done["periods"][0]["output"] == str(tmp_path / "out/2024-W01.parquet")
    assert exported(tmp_path)["2024-W01.parquet"] == [1, 2, 3, 4, 5, 6, 7]
    sales.ingest("2024-01-03", HEADER + row(33))
    assert exported(tmp_path)["2024-01-03.parquet"] == [33]
    sales.ok("COMPACT", period="2024-W01")
    assert exported(tmp_path)["2024-W01.parquet"] == [1, 2, 4, 5, 6, 7, 33]


@pytest.mark.thorough
def test_once_the_daily_files_are_deleted_a_new_ingest_rewrites_the_period(
    firn: Firn, tenant: str, tmp_path: Path
) -> None:
    sales = weekly(firn, tenant, tmp_path, **exporting(tmp_path, delete_source=True))
    done = sales.ok("COMPACT", period="2024-W01")
    assert done["periods"][0]["source_files_deleted"] == 7
    assert exported(tmp_path) == {"2024-W01.parquet": [1, 2, 3, 4, 5, 6, 7]}
    sales.ingest("2024-01-03", HEADER + row(33))
    assert exported(tmp_path) == {"2024-W01.parquet": [1, 2, 4, 5, 6, 7, 33]}


def test_an_export_that_fails_is_a_warning_and_export_repeats_it(firn: Firn, tenant: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("not a folder")
    sales = IngestedTable(firn, tenant, tmp_path, **exporting(tmp_path))
    done = sales.ingest("2024-01-01", HEADER + row(1))
    assert done["records_ingested"] == 1
    assert "not exported" in done["warnings"][0]
    (tmp_path / "out").unlink()
    assert sales.ok("EXPORT", dry_run=True)["plan"]["files"] == [str(tmp_path / "out/2024-01-01.parquet")]
    written = sales.ok("EXPORT")
    assert (written["files_written"], written["files_current"]) == (1, 0)
    assert written["files"][0] | {"bytes": 0} == {
        "path": str(tmp_path / "out/2024-01-01.parquet"),
        "records": 1,
        "bytes": 0,
    }
    assert exported(tmp_path) == {"2024-01-01.parquet": [1]}
    again = sales.ok("EXPORT")
    assert (again["files_written"], again["files_current"]) == (0, 1)


@pytest.mark.thorough
def test_export_follows_a_change_of_rows(firn: Firn, tenant: str, tmp_path: Path) -> None:
    sales = weekly(firn, tenant, tmp_path, days=2, **exporting(tmp_path))
    sales.ok("DELETE", filter={"id": 2})
    assert sales.ok("EXPORT")["files_written"] == 2  # an edit may have changed any date
    assert exported(tmp_path) == {"2024-01-01.parquet": [1], "2024-01-02.parquet": []}
    period = sales.ok("EXPORT", period="2024-W01")
    assert [one["records"] for one in period["files"]] == [1]
