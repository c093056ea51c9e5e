"""APPLY_TABLE applies a changed table file as a whole or not at all, and a trigger is a schedule: without Spark."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import handlers.create_table
from service.app import App
from service.catalog.tables import Catalog, Table
from service.ingest.drift import stored_drift
from service.ingest.history import IngestHistory
from service.ledger.ingestions import IngestionRecord, as_summary
from service.model.ingest.reserved import INGEST_PROPERTY
from service.model.names import TableName
from tests.harness import Firn
from tests.support.served import served

COLUMNS = [{"name": "id", "type": "INTEGER"}, {"name": "note", "type": "VARCHAR"}]
SCHEMA = pa.schema(
    [("id", pa.int32()), ("_firn_period", pa.string()), ("_firn_date", pa.date32()), ("_firn_file", pa.string())]
)
WEEKLY = {"strategy": {"type": "weekly"}}
TRIGGER = {"type": "schedule", "schedule": "0 3 * * 1", "timezone": "Europe/Zurich"}


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


class Sales:
    """An ingestion table of a tenant."""

    def __init__(self, firn: Firn, tenant: str, **config: Any) -> None:
        self.firn, self.tenant = firn, tenant
        self.send("CREATE_TABLE", {"compaction": WEEKLY, **config}, dataset={"columns": COLUMNS})

    def request(self, operation: str, config: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"operation": operation, "tenant_id": self.tenant, "config": {"name": "sales", **config}, **fields}

    def send(self, operation: str, config: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return self.firn.ok(self.request(operation, config, **fields))

    def refused(self, config: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return self.firn.fail(self.request("APPLY_TABLE", config, **fields), "INVALID_REQUEST")

    @property
    def loaded(self) -> Table:
        return self.firn.app.parts[Catalog].load(TableName(self.tenant, "default", "sales"))

    @property
    def columns(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.loaded.schema.fields}

    @property
    def schedules(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.firn.ok({"operation": "LIST_SCHEDULES", "tenant_id": self.tenant})[
            "schedules"
        ]
        return listed

    def ingest(self, day: date) -> None:
        run = IngestionRecord(f"{self.tenant}{day}", str(day), "f.csv", "h", "d", "restate", ended_ms=1)
        year, week, _ = day.isocalendar()
        row = {"id": 1, "_firn_period": f"{year}-W{week:02}", "_firn_date": day, "_firn_file": "f.csv"}
        summary = {INGEST_PROPERTY: json.dumps(as_summary([run]))}
        self.loaded.iceberg.append(pa.Table.from_pylist([row], SCHEMA), snapshot_properties=summary)


@pytest.fixture
def sales(firn: Firn, tenant: str) -> Sales:
    return Sales(firn, tenant)


def test_a_dry_run_shows_the_plan_and_the_same_request_applies_it(sales: Sales) -> None:
    sales.ingest(date(2024, 1, 1))
    config = {"description": "new", "compaction": {"strategy": {"type": "weekly", "delete_source": True}}}
    wider = [{"name": "id", "type": "BIGINT"}, COLUMNS[1], {"name": "city", "type": "VARCHAR"}]
    planned = sales.send("APPLY_TABLE", config, dataset={"columns": wider}, dry_run=True)
    assert planned["dry_run"] is True
    assert {one["path"]: (one.get("from"), one["to"]) for one in planned["plan"]["changes"]} == {
        "description": (None, "new"),
        "compaction.strategy.delete_source": (False, True),
        "dataset.columns.id.type": ("INTEGER", "BIGINT"),
        "dataset.columns.city": (None, {"name": "city", "type": "VARCHAR"}),
    }
    assert sales.columns == {"id": "integer", "note": "string"}
    done = sales.send("APPLY_TABLE", config, dataset={"columns": wider})
    assert (done["applied"], done["changes"]) == (True, planned["plan"]["changes"])
    assert sales.columns == {"id": "long", "note": "string", "city": "string"}
    assert sales.loaded.properties["comment"] == "new"
    again = sales.send("APPLY_TABLE", config, dataset={"columns": wider})
    assert (again["applied"], again["changes"]) == (False, [])
    without = {"compaction": config["compaction"]}
    assert sales.send("APPLY_TABLE", without)["applied"] is True
    assert "comment" not in sales.loaded.properties
    assert sales.columns["city"] == "string"  # without a dataset file the table keeps its own


def test_nothing_is_applied_if_one_part_is_refused(sales: Sales) -> None:
    sales.ingest(date(2024, 1, 1))
    before = sales.loaded.metadata_location
    refused = sales.refused({"description": "new"}, dataset={"columns": COLUMNS[:1]})
    found = {one["path"]: one["reason"] for one in refused["details"]["refused"]}
    assert found.keys() == {"compaction.strategy.type", "dataset.columns.note"}
    assert "ALTER_TABLE" in found["dataset.columns.note"]
    assert "nothing was applied" in refused["message"]
    assert sales.loaded.metadata_location == before


def test_before_there_are_rows_the_kind_of_period_can_change(sales: Sales) -> None:
    assert sales.send("APPLY_TABLE", {})["applied"] is True
    sales.ingest(date(2024, 1, 1))
    assert sales.refused({"compaction": WEEKLY})["details"]["refused"][0]["to"] == "weekly"


def test_an_ordinary_table_takes_no_table_file(firn: Firn, tenant: str) -> None:
    schema = {"fields": {"id": {"type": "long"}}}
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "sales", "schema": schema})
    request = {"operation": "APPLY_TABLE", "tenant_id": tenant, "config": {"name": "sales"}}
    assert firn.fail(request, "INVALID_REQUEST")["field"] == "config"
    missing = {"operation": "APPLY_TABLE", "tenant_id": tenant, "table": "sales"}
    assert firn.fail(missing, "INVALID_REQUEST")["field"] == "config"
    status = {"operation": "TABLE_STATUS", "tenant_id": tenant, "table": "sales"}
    assert "not made from a table file" in firn.fail(status, "INVALID_REQUEST")["message"]
    assert "not made from a table file" in firn.fail({**status, "operation": "EXPORT"}, "INVALID_REQUEST")["message"]


def test_a_trigger_is_a_schedule_that_follows_the_table_file_and_the_name(firn: Firn, tenant: str) -> None:
    sales = Sales(firn, tenant, compaction={**WEEKLY, "trigger": TRIGGER})
    [made] = sales.schedules
    assert (made["cron"], made["timezone"], made["table"]) == ("0 3 * * 1", "Europe/Zurich", "sales")
    assert made["task"] == {"operation": "COMPACT", "period": "due"}
    later = {**TRIGGER, "schedule": "0 4 * * 1"}
    sales.send("APPLY_TABLE", {"compaction": {**WEEKLY, "trigger": later}})
    assert [(one["name"], one["cron"]) for one in sales.schedules] == [(made["name"], "0 4 * * 1")]
    firn.ok({"operation": "RENAME_TABLE", "tenant_id": tenant, "table": "sales", "new_name": "sold"})
    assert [one["table"] for one in sales.schedules] == ["sold"]
    firn.ok({"operation": "RENAME_TABLE", "tenant_id": tenant, "table": "sold", "new_name": "sales"})
    sales.send("APPLY_TABLE", {"compaction": {**WEEKLY, "enabled": False, "trigger": later}})
    assert sales.schedules == []
    sales.send("APPLY_TABLE", {"compaction": {**WEEKLY, "trigger": TRIGGER}})
    assert len(sales.schedules) == 1
    sales.send("APPLY_TABLE", {"compaction": WEEKLY})
    assert sales.schedules == []


def test_a_scheduled_run_skips_an_incomplete_period_and_says_so(firn: Firn, tenant: str) -> None:
    sales = Sales(firn, tenant, compaction={**WEEKLY, "trigger": TRIGGER})
    sales.ingest(date(2024, 1, 3))
    request = {"operation": "RUN_SCHEDULE", "tenant_id": tenant, "name": sales.schedules[0]["name"], "wait": True}
    assert "2024-W01 was skipped, because it is incomplete" in json.dumps(firn.ok(request))


def test_an_async_request_that_is_impossible_is_refused_before_it_becomes_a_job(sales: Sales) -> None:
    address = {"tenant_id": sales.tenant, "table": "sales", "async": True}
    for request, field in (
        ({"operation": "COMPACT", "period": "2024-W01"}, "period"),
        ({"operation": "EXPORT", "date": "1.1.2024"}, "date"),
        ({"operation": "EXPORT", "date": "2024-01-01", "period": "2024-W01"}, "period"),
        ({"operation": "EXPORT", "from": "2024-01-02", "to": "2024-01-01"}, "to"),
    ):
        assert sales.firn.fail({**request, **address}, "INVALID_REQUEST")["field"] == field
    jobs = sales.firn.ok({"operation": "LIST_JOBS", "tenant_id": sales.tenant})["jobs"]
    assert jobs == []


def test_export_writes_files_without_spark(firn: Firn, tenant: str, tmp_path: Path) -> None:
    storage = {"type": "local", "base_path": str(tmp_path), "format": "csv"}
    sales = Sales(firn, tenant, storage=storage)
    sales.ingest(date(2024, 1, 3))
    request = {"operation": "EXPORT", "tenant_id": tenant, "table": "sales"}
    done = firn.ok(request)
    assert (done["files_written"], done["files"][0]["path"]) == (1, str(tmp_path / "2024-01-03.csv"))
    assert (tmp_path / "2024-01-03.csv").read_text() == '"id","note"\n1,\n'
    assert firn.ok(request)["files_current"] == 1


def test_a_table_whose_creation_ended_before_it_was_registered_is_registered_if_it_is_created_again(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, trigger = sales.firn.app.parts[IngestHistory].records, {"compaction": {"trigger": TRIGGER}}
    with monkeypatch.context() as patched:
        patched.setattr(handlers.create_table, "_register", lambda *_: None)
        sales.send("CREATE_TABLE", {"name": "late", **trigger})
    late = sales.firn.app.parts[Catalog].load(TableName(sales.tenant, "default", "late"))
    assert not records.knows(late.uuid)
    assert sales.schedules == []
    sales.send("CREATE_TABLE", {"name": "late", **trigger}, if_not_exists=True)
    assert records.knows(late.uuid)
    assert [one["table"] for one in sales.schedules] == ["late"]


def test_accept_drift_takes_the_table_file_as_other_operations_do(sales: Sales) -> None:
    drift = stored_drift({"drift": {"new": ["city"]}, "types": {"city": "VARCHAR"}})
    refused = IngestionRecord("r", "2024-01-01", "f.csv", "", "", "restate", state="refused", drift=drift)
    sales.firn.app.parts[IngestHistory].record(sales.loaded, [refused])
    error = sales.firn.fail(sales.request("ACCEPT_DRIFT", {"description": "other"}), "INVALID_REQUEST")
    assert error["field"] == "config"
    done = sales.send("ACCEPT_DRIFT", {"compaction": WEEKLY})
    assert done["changes"] == [{"column": "city", "change": "added", "to": "VARCHAR"}]
    assert sales.columns["city"] == "string"
