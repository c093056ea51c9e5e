"""RUN_SCHEDULE: run a schedule now."""

from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from service.commits.commit import Commits
from service.errors import CommitConflict, ScheduleNotFound
from service.guard.policies import Policies
from service.jobs.schedules.schedules import Schedules
from service.ledger.jobs import JobRecord
from service.model.call import Call
from service.model.names import TableName
from service.operations.examples import accepted, create_table, response, write
from service.operations.operation import AcceptedResult, Example, Result, ScheduleRequest, operation
from service.operations.schedule_results import RunResult, run_result, visible_run

_LISTED = 1000
SHOP = {"tenant_id": "acme", "namespace": "shop"}
BASKETS = {**SHOP, "table": "baskets"}
NIGHTLY = {"name": "shop-nightly", "cron": "15 3 * * *", "task": {"operation": "COMPACT", "force": True}}
TABLE = {"namespace": "shop", "table": "baskets"}
RUN = {
    "job_id": "<any>",
    "state": "done",
    "requested_by": "<any>",
    "started_at": "<any>",
    "ended_at": "<any>",
    "attempts": 1,
    "tables": 1,
    "done": 1,
    "failed": 0,
    "skipped": 0,
    "outcomes": [{**TABLE, "state": "done", "duration_ms": "<any>"}],
}
EXAMPLES = (
    Example(
        "Run a schedule now and wait for it",
        {"operation": "RUN_SCHEDULE", "tenant_id": "acme", "name": "shop-nightly", "wait": True},
        response(snapshot=False, started=True, run=RUN, tables=[TABLE]),
        given=(
            create_table(BASKETS, {"item": "string"}),
            write(BASKETS, {"item": "no-0"}),
            write(BASKETS, {"item": "no-1"}),
            {"operation": "CREATE_SCHEDULE", **SHOP, **NIGHTLY},
        ),
    ),
    Example(
        "Start a run, and follow it as a job",
        {"operation": "RUN_SCHEDULE", "tenant_id": "acme", "name": "shop-nightly"},
        accepted(started=True, tables=[TABLE]),
        given=(create_table(BASKETS, {"item": "string"}), {"operation": "CREATE_SCHEDULE", **SHOP, **NIGHTLY}),
    ),
)


class RunSchedule(ScheduleRequest):
    operation: Literal["RUN_SCHEDULE"]
    wait: bool = Field(default=False, description="respond when the run has ended, not when it has started")


class _InProgress(Exception):
    """The schedule runs already."""


class CoveredTable(BaseModel):
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")


_STARTED: Any = Field(description="whether this request started the run; false if a run was in progress already")
_TABLES: Any = Field(description="the tables that it covers, in order; at most 1,000")


class RunScheduleResult(Result):
    when: ClassVar[str] = "With `wait: true`, the response has"

    started: bool = _STARTED
    run: RunResult = Field(description="the run, which has ended")
    tables: list[CoveredTable] = _TABLES


class RunAcceptedResult(AcceptedResult):
    """The response once a run has started. Its job is the run."""

    when: ClassVar[str] = "Without `wait`, the HTTP status is 202, and the response has"

    started: bool = _STARTED
    tables: list[CoveredTable] = _TABLES


@operation(RunSchedule, RunScheduleResult, pool="metadata", examples=EXAMPLES, also=(RunAcceptedResult,))
def run_schedule(
    request: RunSchedule, call: Call, commits: Commits, schedules: Schedules, policies: Policies
) -> "RunScheduleResult | RunAcceptedResult | Future[bytes]":
    """Run a schedule now, even if it is disabled; its next due time does not change."""
    schedule = schedules.find(request.tenant_id, request.name, call.principal)
    tables = sorted(schedules.scheduler.tables_of(schedule), key=lambda name: (name.namespace, name.table))
    if earlier := commits.earlier_batch(call):
        started = schedules.find_run(earlier.batch)
        if started is None:
            raise ScheduleNotFound(
                f"the run that this idempotency_key started was deleted with its schedule {request.name!r}; choose "
                "another key to run the schedule that has this name now",
                field="name",
            )
        return _when_ended(started, tables, call, commits, schedules, policies)
    try:
        with commits.in_ledger(call) as change:
            run = schedules.claim(schedule, call.id, change.id, change.transaction)
            if run is None:
                raise _InProgress
            if not request.wait:
                change.respond(_accepted(run, tables, started=True))
    except _InProgress:
        return _accepted(_in_progress(request, schedules), tables, started=False)
    schedules.scheduler.go(schedule, run)
    if not request.wait:
        return _accepted(run, tables, started=True)
    return _when_ended(run, tables, call, commits, schedules, policies)


def _when_ended(
    run: JobRecord,
    tables: list[TableName],
    call: Call,
    commits: Commits,
    schedules: Schedules,
    policies: Policies,
) -> "Future[bytes]":
    body: Future[bytes] = Future()
    body.set_running_or_notify_cancel()  # nobody can cancel it: the run goes on, whoever waits for it

    def ended(over: "Future[JobRecord | None]") -> None:
        try:
            found = over.result() or replace(run, state="cancelled")
            visible = visible_run(run_result(found), found.table.tenant, partial(policies.sees_whole, call.principal))
            result = RunScheduleResult(started=True, run=visible, tables=_covered(tables))
            body.set_result(commits.store_response(call, call.respond(result)))
        except BaseException as e:
            body.set_exception(e)

    schedules.scheduler.when_ended(run.id).add_done_callback(ended)
    return body


def _in_progress(request: RunSchedule, schedules: Schedules) -> JobRecord:
    now = schedules.find(request.tenant_id, request.name)
    if now.run is None:
        raise CommitConflict("another run of this schedule started and ended just now; send the request again")
    return now.run


def _accepted(run: JobRecord, tables: list[TableName], *, started: bool) -> RunAcceptedResult:
    return RunAcceptedResult.of(run.id, started=started, tables=_covered(tables))


def _covered(tables: list[TableName]) -> list[CoveredTable]:
    return [CoveredTable(namespace=name.namespace, table=name.table) for name in tables[:_LISTED]]
