"""What is told of a schedule and its runs."""

from dataclasses import replace
from datetime import UTC, datetime

from service.jobs.schedules.tally import RunTally, TableOutcome
from service.ledger.jobs import JobRecord
from service.ledger.schedules import RUN
from service.model.identity.principal import LOCAL
from service.operations.schedule_results import run_result, schedule_result
from tests.schedulers import ONE, TWO, schedule

ENDED = JobRecord(
    "r-1",
    RUN,
    ONE,
    state="done",
    claim="id-1",
    requested_by="schedule",
    progress=RunTally().dumps(),
    details={"due_ms": 1},
    created_ms=2,
    ended_ms=3,
)
RUNNING = replace(ENDED, id="r-2", state="running", ended_ms=None)


def test_a_run_that_has_not_ended_is_the_one_in_progress_whatever_was_read_of_the_schedule() -> None:
    for noted in (None, RUNNING):
        result = schedule_result(schedule(run=noted), [RUNNING, ENDED], 1, LOCAL, lambda name: True)
        assert result.running is not None
        assert result.last_run is not None
        assert (result.running.job_id, result.last_run.job_id) == ("r-2", "r-1")
        assert [run.job_id for run in result.runs] == ["r-2"]
    result = schedule_result(schedule(run=RUNNING), [replace(ENDED, id="r-2"), ENDED], 0, LOCAL, lambda name: True)
    assert (result.running, result.last_run and result.last_run.job_id, result.runs) == (None, "r-2", [])


def test_one_that_has_never_run_says_so() -> None:
    result = schedule_result(schedule(delay_s=900), [], 5, LOCAL, lambda name: True)
    assert (result.running, result.last_run, result.runs) == (None, None, [])
    assert (result.delay, result.next_run_at, result.task) == ("15m", TWO, {"operation": "COMPACT", "force": True})


def test_failures_are_told_first_then_what_was_skipped() -> None:
    tally = RunTally(tables=3)
    for table, state in (("a", "done"), ("b", "skipped"), ("c", "failed")):
        tally = tally.plus(TableOutcome("n", table, state))  # type: ignore[arg-type]  # one of them
    result = run_result(replace(ENDED, progress=tally.dumps(), outcome=b'"all is lost"'))
    assert [outcome.table for outcome in result.outcomes] == ["c", "b", "a"]
    assert (result.tables, result.done, result.failed, result.skipped, result.error) == (3, 1, 1, 1, "all is lost")
    assert result.due_at == datetime.fromtimestamp(0.001, UTC)
