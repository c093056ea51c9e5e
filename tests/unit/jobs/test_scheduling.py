"""What is told of a schedule and its runs."""

from dataclasses import replace
from datetime import UTC, datetime

from service.ledger.schedules import Run
from service.scheduling import tell_run, tell_schedule
from service.upkeep.tally import Outcome, Tally
from tests.schedulers import TWO, schedule

ENDED = Run("r-1", "id-1", "done", "schedule", 1, 2, 3, 1, Tally().dumps())
RUNNING = replace(ENDED, id="r-2", state="running", ended_ms=None)


def test_a_run_that_has_not_ended_is_the_one_under_way_whatever_the_schedule_was_read_to_say() -> None:
    for noted in (None, "r-2"):
        told = tell_schedule(schedule(run=noted), [RUNNING, ENDED], 1)
        assert told.running is not None
        assert told.last_run is not None
        assert (told.running.run_id, told.last_run.run_id) == ("r-2", "r-1")
        assert [run.run_id for run in told.runs] == ["r-2"]
    told = tell_schedule(schedule(run="r-2"), [replace(ENDED, id="r-2"), ENDED], 0)
    assert (told.running, told.last_run and told.last_run.run_id, told.runs) == (None, "r-2", [])


def test_one_that_has_never_run_says_so() -> None:
    told = tell_schedule(schedule(delay_s=900), [], 5)
    assert (told.running, told.last_run, told.runs) == (None, None, [])
    assert (told.delay, told.next_run, told.task) == ("15m", TWO, {"operation": "COMPACT", "force": True})


def test_failures_are_told_first_then_what_was_skipped() -> None:
    tally = Tally(tables=3)
    for table, state in (("a", "done"), ("b", "skipped"), ("c", "failed")):
        tally = tally.plus(Outcome("n", table, state))  # type: ignore[arg-type]  # one of them
    told = tell_run(replace(ENDED, tally=tally.dumps(), error="all is lost"))
    assert [outcome.table for outcome in told.outcomes] == ["c", "b", "a"]
    assert (told.tables, told.done, told.failed, told.skipped, told.error) == (3, 1, 1, 1, "all is lost")
    assert told.due_at == datetime.fromtimestamp(0.001, UTC)
