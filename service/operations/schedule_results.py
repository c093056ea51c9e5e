"""Schedules and their runs in responses."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.jobs.schedules.tally import RunTally, TableOutcome
from service.jobs.schedules.task import loads
from service.jobs.schedules.times import show_delay
from service.ledger.jobs import JobRecord
from service.ledger.schedules import Schedule
from service.model.identity.principal import Principal
from service.model.names import TableName
from service.model.times import utc, utc_or_none
from service.model.wire import omit_when_null

SeesWhole = Callable[[TableName], bool]
"""Whether no policy hides a part of a table from the reader."""
RunState = Literal["running", "done", "partly", "failed", "interrupted", "missed", "cancelled"]


class TableOutcomeResult(BaseModel):
    """The outcome of a run for one table."""

    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")
    state: Literal["done", "failed", "skipped"] = Field(
        description="`skipped`: not started, outside the table's window"
    )
    reason: str | None = omit_when_null("why it was skipped, or why there was nothing to do")
    error: dict[str, Any] | None = omit_when_null(
        "`code` and `message` if it failed; not for readers from whom a policy hides rows or columns of the table"
    )
    duration_ms: int = Field(description="how long it took")


class RunResult(BaseModel):
    """One run of a schedule."""

    job_id: str = Field(description="the id of its job, for /jobs/{id}")
    state: RunState = Field(
        description="`partly`: some tables failed; `interrupted`: its instance stopped, and another instance or the "
        "next start continues it; `missed`: skipped, with `catch_up: false`; `cancelled`: its job was cancelled, or "
        "the schedule deleted"
    )
    requested_by: str = Field(description="`schedule`, or the request that started it")
    due_at: datetime | None = omit_when_null("when it was due; absent if a request started it")
    started_at: datetime = Field(description="when it started")
    ended_at: datetime | None = omit_when_null("when it ended")
    attempts: int = Field(description="how many times an instance has started or continued it")
    tables: int = Field(description="how many tables it covers")
    done: int = Field(description="for how many tables the operation succeeded")
    failed: int = Field(description="for how many it failed")
    skipped: int = Field(description="for how many it was not started")
    outcomes: list[TableOutcomeResult] = Field(description="the outcome for each table; at most 100, failures first")
    error: str | None = omit_when_null("why the whole run failed")


class ScheduleResult(BaseModel):
    """One schedule."""

    name: str = Field(description="the schedule's name")
    cron: str = Field(description="its cron expression")
    timezone: str = Field(description="its IANA time zone")
    delay: str | None = omit_when_null("how much later than the cron expression says it runs")
    scope: Literal["table", "namespace", "tenant"] = Field(description="which tables it covers")
    namespace: str | None = omit_when_null("their namespace; absent for all of the tenant")
    table: str | None = omit_when_null("the table; absent if it covers several")
    task: dict[str, Any] = Field(
        description="the operation that it runs; without its options for readers from whom a policy hides rows or "
        "columns of the table. If it covers several tables, only administrators of all of them see options other than "
        "numbers and booleans"
    )
    enabled: bool = Field(description="whether it runs automatically")
    catch_up: bool = Field(description="whether missed runs are caught up")
    created_at: datetime = Field(description="when it was created")
    next_run_at: datetime | None = omit_when_null("when it is next due; absent while it is disabled")
    running: RunResult | None = omit_when_null("the run in progress")
    last_run: RunResult | None = omit_when_null("the last run that ended")
    runs: list[RunResult] = Field(description="the latest runs, newest first; `runs` in the request says how many")


def run_result(run: JobRecord) -> RunResult:
    tally = RunTally.loads(run.progress)
    return RunResult(
        job_id=run.id,
        state=run.state,  # type: ignore[arg-type]  # the ledger holds text
        requested_by=run.requested_by,
        due_at=utc_or_none(run.details.get("due_ms")),
        started_at=utc(run.created_ms),
        ended_at=utc_or_none(run.ended_ms),
        attempts=run.fence,
        tables=tally.tables,
        done=tally.done,
        failed=tally.failed,
        skipped=tally.skipped,
        outcomes=[_outcome(outcome) for outcome in sorted(tally.outcomes, key=_failures_first)],
        error=json.loads(run.outcome),
    )


def visible_run(run: RunResult, tenant: str, sees_whole: SeesWhole) -> RunResult:
    """Without the errors about tables of which the reader sees only a part: they can quote rows."""
    outcomes = [
        one
        if one.error is None or sees_whole(TableName(tenant, one.namespace, one.table))
        else one.model_copy(update={"error": None})
        for one in run.outcomes
    ]
    return run.model_copy(update={"outcomes": outcomes})


def shown_run(run: JobRecord) -> dict[str, Any]:
    """A run as a job: its progress, and its result once it has ended."""
    tally = RunTally.loads(run.progress)
    counts = {"tables": tally.tables, "done": tally.done, "failed": tally.failed, "skipped": tally.skipped}
    ended = {} if run.ended_ms is None else {"result": {"success": True, "started": True, "run": run_result(run)}}
    return {"progress": counts, **ended}


def schedule_result(
    schedule: Schedule, latest: list[JobRecord], shown: int, principal: Principal, sees_whole: SeesWhole
) -> ScheduleResult:
    """A schedule with its latest runs, newest first; the list `runs` has the first `shown` of them."""

    def visible(run: JobRecord) -> RunResult:
        return visible_run(run_result(run), schedule.tenant, sees_whole)

    # Only the runs themselves say this: one may have started since the schedule was read.
    running = next((run for run in latest if run.ended_ms is None), None)
    last = next((run for run in latest if run.ended_ms is not None), None)
    return ScheduleResult(
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        delay=show_delay(schedule.delay_s),
        scope=schedule.scope,  # type: ignore[arg-type]  # the ledger holds text
        namespace=schedule.namespace,
        table=schedule.table,
        task=_visible_task(schedule, principal, sees_whole),
        enabled=schedule.enabled,
        catch_up=schedule.catch_up,
        created_at=utc(schedule.created_ms),
        next_run_at=utc_or_none(schedule.next_ms),
        running=None if running is None else visible(running),
        last_run=None if last is None else visible(last),
        runs=[visible(run) for run in latest[:shown]],
    )


def _visible_task(schedule: Schedule, principal: Principal, sees_whole: SeesWhole) -> dict[str, Any]:
    """The task; only its operation for who sees a part of its table, because options can name columns and values.

    Of several tables, any may have a policy, so only their administrators see options that can.
    """
    task, operation = loads(schedule.task), "operation"
    if task.keys() <= {operation}:
        return task
    if schedule.namespace is not None and schedule.table is not None:
        whole = sees_whole(TableName(schedule.tenant, schedule.namespace, schedule.table))
        return task if whole else {operation: task[operation]}
    if principal.may("admin", schedule.tenant, schedule.namespace):
        return task
    return {name: value for name, value in task.items() if name == operation or isinstance(value, bool | int | float)}


def _failures_first(outcome: TableOutcome) -> tuple[int, str, str]:
    return ("failed", "skipped", "done").index(outcome.state), outcome.namespace, outcome.table


def _outcome(outcome: TableOutcome) -> TableOutcomeResult:
    return TableOutcomeResult(
        namespace=outcome.namespace,
        table=outcome.table,
        state=outcome.state,
        reason=outcome.reason,
        error=outcome.error,
        duration_ms=outcome.ms,
    )
