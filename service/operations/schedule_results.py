"""What is told of schedules and their runs, by every operation that tells of them."""

import json
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.jobs.schedules.tally import RunTally, TableOutcome
from service.jobs.schedules.task import loads
from service.jobs.schedules.times import show_delay
from service.ledger.jobs import JobRecord
from service.ledger.schedules import Schedule

RunState = Literal["running", "done", "partly", "failed", "interrupted", "missed", "cancelled"]


class TableOutcomeResult(BaseModel):
    """What became of one table."""

    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name")
    state: Literal["done", "failed", "skipped"] = Field(
        description="`skipped`: the operation was not begun, as outside of the table's window"
    )
    reason: str | None = Field(description="why it was skipped, or why nothing needed to be done")
    error: dict[str, Any] | None = Field(description="`code` and `message`, where it failed")
    time_ms: int = Field(description="how long it took")


class RunResult(BaseModel):
    """One run."""

    run_id: str = Field(description="the run's id")
    state: RunState = Field(
        description="`partly`: some tables failed; `interrupted`: its instance stopped, and another one, or the next "
        "start, goes on with it; `missed`: left out, with `catch_up: false`; `cancelled`: the schedule was deleted"
    )
    asked_by: str = Field(description="`schedule`, or the request that asked for it")
    due_at: datetime | None = Field(description="when it was due; null where a request asked for it")
    begun_at: datetime = Field(description="when it began")
    ended_at: datetime | None = Field(description="when it ended")
    attempts: int = Field(description="how many instances have begun it or gone on with it")
    tables: int = Field(description="the tables it concerns")
    done: int = Field(description="those on which the operation succeeded")
    failed: int = Field(description="those on which it failed")
    skipped: int = Field(description="those on which it was not begun")
    outcomes: list[TableOutcomeResult] = Field(
        description="what became of each; of many tables a hundred, failures first"
    )
    error: str | None = Field(description="why the run failed as a whole")


class ScheduleResult(BaseModel):
    """One schedule."""

    name: str = Field(description="its name")
    cron: str = Field(description="its cron expression")
    timezone: str = Field(description="the place whose clock it goes by")
    delay: str | None = Field(description="how much later it runs")
    scope: Literal["table", "namespace", "all"] = Field(description="which tables it has")
    namespace: str | None = Field(description="their namespace; null for all")
    table: str | None = Field(description="the table; null for all")
    task: dict[str, Any] = Field(description="what it runs")
    enabled: bool = Field(description="whether it runs by itself")
    catch_up: bool = Field(description="whether missed runs are caught up")
    created_at: datetime = Field(description="when it was made")
    next_run: datetime | None = Field(description="when it is due next; null while it is disabled")
    running: RunResult | None = Field(description="the run under way")
    last_run: RunResult | None = Field(description="the one before")
    runs: list[RunResult] = Field(description="the latest ones, newest first, as many as `runs` asks for")


def run_result(run: JobRecord) -> RunResult:
    tally = RunTally.loads(run.progress)
    return RunResult(
        run_id=run.id,
        state=run.state,  # type: ignore[arg-type]  # the ledger holds text
        asked_by=run.requested_by,
        due_at=moment(run.details.get("due_ms")),
        begun_at=_at(run.created_ms),
        ended_at=moment(run.ended_ms),
        attempts=run.fence,
        tables=tally.tables,
        done=tally.done,
        failed=tally.failed,
        skipped=tally.skipped,
        outcomes=[_tell_outcome(outcome) for outcome in sorted(tally.outcomes, key=_failures_first)],
        error=json.loads(run.outcome),
    )


def schedule_result(schedule: Schedule, latest: list[JobRecord], shown: int) -> ScheduleResult:
    """A schedule with its latest runs, newest first, `shown` of which are told in a list too."""
    # By the runs alone: one may have begun since the schedule was read.
    running = next((run for run in latest if run.ended_ms is None), None)
    before = next((run for run in latest if run.ended_ms is not None), None)
    return ScheduleResult(
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        delay=show_delay(schedule.delay_s),
        scope=schedule.scope,  # type: ignore[arg-type]  # the ledger holds text
        namespace=schedule.namespace,
        table=schedule.table,
        task=loads(schedule.task),
        enabled=schedule.enabled,
        catch_up=schedule.catch_up,
        created_at=_at(schedule.created_ms),
        next_run=moment(schedule.next_ms),
        running=None if running is None else run_result(running),
        last_run=None if before is None else run_result(before),
        runs=[run_result(run) for run in latest[:shown]],
    )


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else _at(ms)


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _failures_first(outcome: TableOutcome) -> tuple[int, str, str]:
    return ("failed", "skipped", "done").index(outcome.state), outcome.namespace, outcome.table


def _tell_outcome(outcome: TableOutcome) -> TableOutcomeResult:
    return TableOutcomeResult(
        namespace=outcome.namespace,
        table=outcome.table,
        state=outcome.state,
        reason=outcome.reason,
        error=outcome.error,
        time_ms=outcome.ms,
    )
