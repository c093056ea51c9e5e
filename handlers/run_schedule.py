"""RUN_SCHEDULE: what a schedule does, now."""

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.errors import CommitConflict
from service.jobs.schedules.schedules import Schedules
from service.ledger.jobs import JobRecord
from service.model.call import Call
from service.model.names import TableName
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, operation
from service.operations.schedule_results import RunResult, run_result

SHOWN = 1000
ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "baskets"}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"item": {"type": "string"}}}},
    *({"operation": "WRITE", **ADDRESS, "records": [{"item": f"no-{i}"}]} for i in range(2)),
    {
        "operation": "CREATE_SCHEDULE",
        "tenant_id": "acme",
        "namespace": "shop",
        "name": "shop-nightly",
        "cron": "15 3 * * *",
        "task": {"operation": "COMPACT", "force": True},
    },
)
EXAMPLES = (
    Example(
        "Run a schedule now and wait for it",
        {"operation": "RUN_SCHEDULE", "tenant_id": "acme", "name": "shop-nightly", "wait": True},
        response(
            snapshot=False,
            started=True,
            run={
                "run_id": "<any>",
                "state": "done",
                "asked_by": "<any>",
                "due_at": None,
                "begun_at": "<any>",
                "ended_at": "<any>",
                "attempts": 1,
                "tables": 1,
                "done": 1,
                "failed": 0,
                "skipped": 0,
                "outcomes": [
                    {
                        "namespace": "shop",
                        "table": "baskets",
                        "state": "done",
                        "reason": None,
                        "error": None,
                        "time_ms": "<any>",
                    }
                ],
                "error": None,
            },
            tables=[{"namespace": "shop", "table": "baskets"}],
        ),
        given=GIVEN,
    ),
)


class RunSchedule(Request):
    operation: Literal["RUN_SCHEDULE"]
    name: str = Field(description="the schedule's name")
    wait: bool = Field(default=False, description="answer when the run has ended, not when it has begun")


class TableTold(BaseModel):
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")


class RunScheduleResult(Result):
    started: bool = Field(
        description="whether this request began the run; false where one was under way, which is told"
    )
    run: RunResult = Field(description="the run, as LIST_SCHEDULES shows it later")
    tables: list[TableTold] = Field(description="the tables it concerns, in order; the first thousand")


@operation(RunSchedule, RunScheduleResult, pool="metadata", examples=EXAMPLES)
def run_schedule(request: RunSchedule, call: Call, schedules: Schedules) -> "RunScheduleResult | Future[bytes]":
    """Run a schedule now, enabled or not and whatever the hour; when it is due next does not change."""
    schedules = schedules
    found = schedules.find(request.tenant_id, request.name)
    tables = sorted(schedules.scheduler.tables_of(found), key=lambda name: (name.namespace, name.table))
    live = schedules.run(found, call.id)
    if live is None:
        return _result(_under_way(request, schedules), tables, started=False)
    if not request.wait:
        return _result(live.run, tables, started=True)
    answer: Future[bytes] = Future()

    def told(over: "Future[JobRecord | None]") -> None:
        try:
            run = over.result() or schedules.found_run(live.run.id) or replace(live.run, state="cancelled")
            answer.set_result(call.respond(_result(run, tables, started=True)))
        except BaseException as e:
            answer.set_exception(e)

    live.over.add_done_callback(told)
    return answer


def _under_way(request: RunSchedule, schedules: Schedules) -> JobRecord:
    now = schedules.find(request.tenant_id, request.name)
    if now.run is None:
        raise CommitConflict("another run of this schedule began and ended this moment; send the request again")
    return now.run


def _result(run: JobRecord, tables: list[TableName], *, started: bool) -> RunScheduleResult:
    told = run_result(run)
    told.tables = told.tables or len(tables)
    shown = [TableTold(namespace=name.namespace, table=name.table) for name in tables[:SHOWN]]
    return RunScheduleResult(started=started, run=told, tables=shown)
