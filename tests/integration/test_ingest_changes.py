"""A changed table file is applied whole or not at all; its trigger is a schedule; TABLE_STATUS shows the state."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.ingesting import COLUMNS, HEADER, IngestedTable, row

TRIGGER = {"type": "schedule", "schedule": "0 3 * * 1", "timezone": "Europe/Zurich"}
WEEK = [f"2024-01-0{day}" for day in range(1, 8)]


def schedules(table: IngestedTable) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = table.firn.ok({"operation": "LIST_SCHEDULES", "tenant_id": table.tenant})[
        "schedules"
    ]
    return listed


def apply(table: IngestedTable, config: dict[str, Any], **fields: Any) -> dict[str, Any]:
    request = {"operation": "APPLY_TABLE", "tenant_id": table.tenant, "config": {"name": "sales", **config}, **fields}
    return table.firn.ok(request)


@pytest.fixture
def sales(firn: Firn, tenant: str, tmp_path: Path) -> IngestedTable:
    return IngestedTable(firn, tenant, tmp_path, compaction={"strategy": {"type": "weekly"}})


def test_what_can_be_applied_is_shown_and_applied(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1))
    wider = [*COLUMNS[:3], {"name": "quantity", "type": "BIGINT"}, COLUMNS[4], {"name": "city", "type": "VARCHAR"}]
    config = {"description": "a file a day", "compaction": {"strategy": {"type": "weekly", "delete_source": True}}}
    planned = apply(sales, config, dataset={"columns": wider}, dry_run=True)
    assert planned["dry_run"] is True
    assert {one["path"] for one in planned["plan"]["changes"]} == {
        "description",
        "compaction.strategy.delete_source",
        "dataset.columns.quantity.type",
        "dataset.columns.city",
    }
    assert sales.description["schema"]["fields"].keys() == {c["name"] for c in COLUMNS}
    done = apply(sales, config, dataset={"columns": wider})
    assert (done["applied"], done["changes"]) == (True, planned["plan"]["changes"])
    fields = sales.description["schema"]["fields"]
    assert (fields["quantity"]["type"], fields["city"]["type"]) == ("long", "string")
    header = HEADER.strip() + ",city\n"
    sales.ingest("2024-01-02", header + row(2, quantity=5_000_000_000).strip() + ",Chur\n")
    assert [(r["quantity"], r["city"]) for r in sales.rows(sort=["id"])] == [(1, None), (5_000_000_000, "Chur")]
    again = apply(sales, config, dataset={"columns": wider})
    assert (again["applied"], again["changes"]) == (False, [])


def test_nothing_is_applied_if_one_part_is_refused(sales: IngestedTable) -> None:
    sales.ingest("2024-01-01", HEADER + row(1))
    before = sales.state()
    config = {"name": "sales", "description": "new", "compaction": {"strategy": {"type": "monthly"}}}
    refused = sales.firn.fail(
        {"operation": "APPLY_TABLE", "tenant_id": sales.tenant, "config": config, "dataset": {"columns": COLUMNS[:2]}},
        "INVALID_REQUEST",
    )
    paths = [one["path"] for one in refused["details"]["refused"]]
    assert paths == ["compaction.strategy.type", *(f"dataset.columns.{c['name']}" for c in COLUMNS[2:])]
    assert all(one["reason"] for one in refused["details"]["refused"])
    assert sales.state() == before
    assert "description" not in sales.description["properties"]


@pytest.mark.thorough
def test_a_trigger_is_a_schedule_that_follows_the_table_file(firn: Firn, tenant: str, tmp_path: Path) -> None:
    weekly = {"strategy": {"type": "weekly"}, "trigger": TRIGGER}
    sales = IngestedTable(firn, tenant, tmp_path, compaction=weekly)
    [made] = schedules(sales)
    assert (made["cron"], made["timezone"], made["table"]) == ("0 3 * * 1", "Europe/Zurich", "sales")
    assert made["task"] == {"operation": "COMPACT", "period": "due"}
    later = {**weekly, "trigger": {**TRIGGER, "schedule": "0 4 * * 1"}}
    apply(sales, {"compaction": later})
    [replaced] = schedules(sales)
    assert (replaced["name"], replaced["cron"]) == (made["name"], "0 4 * * 1")
    for number, day in enumerate([*WEEK, "2024-01-09"]):
        sales.ingest(day, HEADER + row(number))
    run = firn.ok({"operation": "RUN_SCHEDULE", "tenant_id": tenant, "name": made["name"], "wait": True})
    assert "2024-W02 was skipped" in str(run)
    assert sales.description["file_count"] == 2
    firn.ok({"operation": "RENAME_TABLE", "tenant_id": tenant, "table": "sales", "new_name": "sold"})
    assert [one["table"] for one in schedules(sales)] == ["sold"]
    firn.ok({"operation": "RENAME_TABLE", "tenant_id": tenant, "table": "sold", "new_name": "sales"})
    apply(sales, {"compaction": {"strategy": {"type": "weekly"}}})
    assert schedules(sales) == []


@pytest.mark.thorough
def test_the_status_counts_what_was_ingested_missing_and_merged(sales: IngestedTable) -> None:
    for number, day in enumerate(WEEK):
        sales.ingest(day, HEADER + row(number))
    sales.ingest("2024-01-10", HEADER + row(10))
    sales.ingest("2024-01-10", HEADER + row(11))
    refused = sales.refuse("FILE_REJECTED", "2024-01-11", b"\xff\xfe\x00")
    assert "Its header is not utf-8: csv.encoding" in refused["message"]
    before = sales.ok("TABLE_STATUS")
    assert (before["ingestions"], before["dates"], before["records"], before["files"]) == (9, 8, 8, 8)
    assert (before["first_date"], before["last_date"]) == ("2024-01-01", "2024-01-10")
    assert before["missing_dates"] == ["2024-01-08", "2024-01-09"]
    assert before["compactions"] == 0
    assert "first_compacted_period" not in before
    assert [one["date"] for one in before["errors"]] == ["2024-01-11"]
    assert Path(before["ledger"]).is_file()
    sales.ok("COMPACT", period="2024-W01")
    after = sales.ok("TABLE_STATUS")
    assert (after["compactions"], after["files"]) == (1, 2)
    assert after["first_compacted_period"] == after["last_compacted_period"] == "2024-W01"
    assert [(one["period"], one["days"], one["files"], one["compacted"]) for one in after["periods"]] == [
        ("2024-W01", 7, 1, True),
        ("2024-W02", 1, 1, False),
    ]
