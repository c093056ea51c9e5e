"""Long work that goes on after its response is answered alike everywhere: 202, a job's id and its path."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from handlers import discover
from service.app import App
from service.jobs.schedules.schedules import Schedules
from service.jobs.schedules.tally import RunTally
from service.operations.envelope import status_of
from service.operations.operation import AcceptedResult, Operation
from tests.harness import Firn, wait_until
from tests.support.served import served

TABLE = {"table": "orders", "schema": {"fields": {"id": {"type": "long"}}}}
STARTED = {"success", "job_id", "status_url", "metadata"}
BY_DAY: dict[str, Any] = {"partition": {"partitions": [{"field": "id", "transform": "bucket", "num_buckets": 2}]}}
FILE = {"source": "no-such-file.csv", "date": "2024-01-31"}
ASYNC: dict[str, dict[str, Any]] = {
    "COMPACT": {},
    "REPARTITION": BY_DAY,
    "UNDO": {"request_id": "unknown"},
    "INGEST": FILE,
    "INGEST_RANGE": {"source": "no-such-file_{date}.csv", "from": "2024-01-30", "to": "2024-01-31"},
    "EXPORT": {},
    "REPLAY": {},
}
# They need Spark before they respond, or a dynamic table: tests/integration has their jobs.
ON_DYNAMIC_TABLES = {"AUDIT_DYNAMIC_TABLE", "CREATE_DYNAMIC_TABLE", "REFRESH_DYNAMIC_TABLE"}


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


def job(firn: Firn, path: str) -> dict[str, Any]:
    found: dict[str, Any] = firn.parsed(firn.client.get(path))["job"]
    return found


@pytest.mark.parametrize("operation", discover(), ids=lambda operation: operation.name)
def test_an_operation_with_async_declares_the_response_of_a_job(operation: Operation) -> None:
    in_background = any(info.alias == "async" for info in operation.request.model_fields.values())
    assert in_background is (operation.name in {*ASYNC, *ON_DYNAMIC_TABLES})
    assert (AcceptedResult in operation.also) is in_background


@pytest.mark.parametrize("name", ASYNC)
@pytest.mark.parametrize("more", [{}, {"dry_run": True}, {"idempotency_key": "k"}])
def test_async_is_answered_with_202_and_where_to_look(firn: Firn, tenant: str, name: str, more: dict[str, Any]) -> None:
    made = {"config": {"name": "orders"}} if name in ("EXPORT", "REPLAY") else TABLE
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, **made})
    request = {"operation": name, "tenant_id": tenant, "table": "orders", "async": True, **ASYNC[name], **more}
    response = firn.send(request)
    body = firn.parsed(response)
    assert (response.status_code, set(body)) == (202, STARTED)
    assert body["status_url"] == f"/jobs/{body['job_id']}"
    assert job(firn, body["status_url"])["kind"] == name


def test_an_event_is_answered_with_the_status_202(firn: Firn, tenant: str) -> None:
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, **TABLE})
    request = {"operation": "COMPACT", "tenant_id": tenant, "table": "orders", "async": True}
    event = {"httpMethod": "POST", "path": "/database", "body": json.dumps(request)}
    answer = firn.event(event)
    assert (answer["statusCode"], set(json.loads(answer["body"]))) == (202, STARTED)


def test_a_stored_response_is_sent_again_with_its_status(firn: Firn, tenant: str) -> None:
    firn.ok({"operation": "CREATE_SCHEDULE", "tenant_id": tenant, **SCHEDULE})
    request = {"operation": "RUN_SCHEDULE", "tenant_id": tenant, "name": "nightly", "idempotency_key": "k"}
    first, again = firn.send(request), firn.send(request)
    assert (first.status_code, again.status_code, again.content) == (202, 202, first.content)


def test_a_response_about_columns_with_these_names_is_no_job(firn: Firn, tenant: str) -> None:
    fields = {"job_id": {"type": "string"}, "status_url": {"type": "string"}}
    create = {"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "links", "schema": {"fields": fields}}
    firn.ok(create)
    more = {"operation": "ALTER_TABLE", "tenant_id": tenant, "table": "links", "add_columns": {"x": {"type": "long"}}}
    assert firn.send(more).status_code == 200


SCHEDULE = {"name": "nightly", "cron": "0 2 29 2 *", "task": {"operation": "COMPACT"}}


def test_a_run_of_a_schedule_is_a_job(firn: Firn, tenant: str) -> None:
    firn.ok({"operation": "CREATE_SCHEDULE", "tenant_id": tenant, **SCHEDULE})
    response = firn.send({"operation": "RUN_SCHEDULE", "tenant_id": tenant, "name": "nightly"})
    body = firn.parsed(response)
    assert (response.status_code, set(body)) == (202, STARTED | {"started", "tables"})
    wait_until(lambda: "ended_at" in job(firn, body["status_url"]), 30, every=0.01)
    ended = job(firn, body["status_url"])
    covered = {"tenant_id": tenant, "namespace": "default"}
    assert (ended["kind"], ended["state"], ended["table"]) == ("RUN_SCHEDULE", "done", covered)
    assert ended["progress"] == {"tables": 0, "done": 0, "failed": 0, "skipped": 0}
    [schedule] = firn.ok({"operation": "LIST_SCHEDULES", "tenant_id": tenant, "runs": 1})["schedules"]
    assert (ended["result"]["run"], body["job_id"]) == (schedule["runs"][0], schedule["runs"][0]["job_id"])
    waited = firn.send({"operation": "RUN_SCHEDULE", "tenant_id": tenant, "name": "nightly", "wait": True})
    assert (waited.status_code, firn.parsed(waited)["run"]["state"]) == (200, "done")


def test_a_cancelled_run_of_a_schedule_has_ended_and_can_commit_nothing_more(firn: Firn, app: App, tenant: str) -> None:
    firn.ok({"operation": "CREATE_SCHEDULE", "tenant_id": tenant, **SCHEDULE})
    schedules = app.parts[Schedules]
    schedule = schedules.find(tenant, "nightly")
    notes = schedules.scheduler.notes
    run = notes.claim(schedule, "request r", 1, RunTally().dumps(), due=False, run_id="a-run")
    assert run is not None
    assert job(firn, "/jobs/a-run")["state"] == "running"
    cancelled = firn.parsed(firn.client.delete("/jobs/a-run"))["job"]
    assert (cancelled["state"], cancelled["result"]["run"]["state"]) == ("cancelled", "cancelled")
    assert "error" not in cancelled
    assert not notes.jobs.holds(run)
    assert firn.parsed(firn.client.delete("/jobs/a-run"))["job"] == cancelled


def test_only_a_response_that_promises_a_job_is_read_to_find_its_status() -> None:
    assert status_of(b'{"schema":{"status_url":{"type":"string"}}}') == 200
    assert status_of(b'{"job_id":"a","status_url":"/jobs/a"}') == 202
    assert status_of(b"not even JSON") == 200
