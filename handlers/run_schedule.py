"""RUN_SCHEDULE: what a schedule does, now."""

from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.context import Context
from service.errors import CommitConflict
from service.ledger.schedules import Run
from service.names import TableName
from service.operation import Example, Request, Result, operation
from service.scheduling import RunTold, tell_run

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
        {
            "success": True,
            "started": True,
            "run": {
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
            "tables": [{"namespace": "shop", "table": "baskets"}],
            "metadata": {"request_id": "<any>", "execution_time_ms": "<any>"},
        },
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
    run: RunTold = Field(description="the run, as LIST_SCHEDULES shows it later")
    tables: list[TableTold] = Field(description="the tables it concerns, in order; the first thousand")


@operation(RunSchedule, RunScheduleResult, pool="queries", examples=EXAMPLES)
def run_schedule(request: RunSchedule, context: Context) -> "RunScheduleResult | Future[bytes]":
    """Run a schedule now, enabled or not and whatever the hour; when it is due next does not change."""
    schedules = context.schedules
    found = schedules.find(request.tenant_id, request.name)
    tables = sorted(schedules.scheduler.tables_of(found), key=lambda name: (name.namespace, name.table))
    live = schedules.run(found, context.ask.request_id)
    if live is None:
        return _result(_under_way(request, context), tables, started=False)
    if not request.wait:
        return _result(live.claim.run, tables, started=True)
    answer: Future[bytes] = Future()

    def told(over: "Future[Run | None]") -> None:
        try:
            run = over.result() or schedules.found_run(live.claim.run.id) or replace(live.claim.run, state="cancelled")
            answer.set_result(context.reply(_result(run, tables, started=True)))
        except BaseException as e:
            answer.set_exception(e)

    live.over.add_done_callback(told)
    return answer


def _under_way(request: RunSchedule, context: Context) -> Run:
    now = context.schedules.find(request.tenant_id, request.name)
    run = context.schedules.found_run(now.run) if now.run else None
    if run is None:
        raise CommitConflict("another run of this schedule began and ended this moment; send the request again")
    return run


def _result(run: Run, tables: list[TableName], *, started: bool) -> RunScheduleResult:
    told = tell_run(run)
    told.tables = told.tables or len(tables)
    shown = [TableTold(namespace=name.namespace, table=name.table) for name in tables[:SHOWN]]
    return RunScheduleResult(started=started, run=told, tables=shown)
