"""Work in the background has a job from its request on, and ends in exactly one of the ways there are."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.errors import Cancelled, CommitConflict, FirnError, LedgerUnavailable, ShuttingDown, TooManyRequests
from service.jobs.background import Background
from service.jobs.job import Job
from service.jobs.jobs import Jobs
from service.ledger.jobs import JobRecords
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.types import Field, Primitive, TableSchema
from service.settings import LimitSettings, Settings
from tests.fakes import MuteLedger
from tests.support.composed import Composed

NAME = TableName("acme", "shop", "orders")
SCHEMA = TableSchema((Field("id", Primitive("long")),))
ANSWER = b'{"success": true}'


@dataclass
class Progress:
    phase: str = "waiting"
    files_done: int = 0


def unless_cancelled(running: Call) -> bytes:
    running.check()
    return ANSWER


class Work:
    """A piece of work that stops where the test wants it to, and goes on when it says so."""

    def __init__(self, then: Callable[[Call], bytes] = lambda running: ANSWER) -> None:
        self.then = then
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.running: Call | None = None

    def __call__(self, running: Call) -> bytes:
        self.running = running
        self.begun.set()
        assert self.go_on.wait(30)
        return self.then(running)


class Place(Composed):
    """One thread for jobs, over a ledger of its own."""

    def __init__(self, ledger_file: Path, limits: LimitSettings | None = None) -> None:
        super().__init__(ledger_file, settings=Settings(limits=limits or LimitSettings(maintenance_threads=1)))
        self.table = self.catalog.create(NAME, SCHEMA, (), {})
        self.jobs, self.background = self.parts[Jobs], self.parts[Background]
        self.records = JobRecords(MuteLedger(f"sqlite:///{ledger_file}"))

    def another(self) -> Jobs:
        """The jobs of another process."""
        return Composed(self.ledger_file, catalog=self.catalog).parts[Jobs]

    def start(self, work: Callable[[Call], bytes], progress: Any = None) -> str:
        return self.background.start("COMPACT", self.table, progress or Progress(), Call("r"), work)

    def over(self) -> None:
        """Return when nothing is under way."""
        with self.background._changed:
            assert self.background._changed.wait_for(lambda: not self.background._in_progress, 30)

    def state(self, job: str) -> str:
        """As this process tells it, and as the ledger does to another, which are the same."""
        state: str = self.jobs.describe(job)["state"]
        noted = self.records.find(job)
        assert noted
        assert noted.state == state
        return state


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "ledger.db")
    yield place
    place.background.close(30)


def started(place: Place, work: Work) -> str:
    job = place.start(work)
    assert work.begun.wait(30)
    return job


def test_a_job_is_queued_then_running_then_done(place: Place) -> None:
    first, second = Work(), Work()
    one, two = started(place, first), place.start(second)
    assert (place.state(one), place.state(two)) == ("running", "queued")
    assert first.running
    assert first.running.job_id == one
    first.go_on.set()
    assert second.begun.wait(30)
    assert (place.state(one), place.state(two)) == ("done", "running")
    second.go_on.set()
    place.over()
    described = place.another().describe(two)
    assert (described["state"], described["kind"], described["result"]) == ("done", "COMPACT", {"success": True})


def test_a_tenant_queues_a_share_of_the_jobs_and_another_one_still_can(tmp_path: Path) -> None:
    limits = LimitSettings(maintenance_threads=1, pending_maintenance=4)
    place = Place(tmp_path / "ledger.db", limits)
    work, other = Work(), Work()
    jobs = [place.start(work) for _ in range(3)]
    with pytest.raises(TooManyRequests, match="3 jobs of this tenant are queued or run already"):
        place.start(work)
    quiet = place.catalog.create(TableName("quiet", "default", "t"), SCHEMA, (), {})
    last = place.background.start("COMPACT", quiet, Progress(), Call("r"), other)
    with pytest.raises(TooManyRequests, match="4 jobs are queued or run already"):
        place.background.start("COMPACT", quiet, Progress(), Call("r"), other)
    work.go_on.set()
    other.go_on.set()
    place.over()
    assert [place.state(job) for job in (*jobs, last)] == ["done"] * 4
    assert place.background._room.taken == 0
    place.background.close(30)


def test_progress_is_told_while_it_runs_and_kept_after(place: Place) -> None:
    progress, work = Progress(), Work()

    def do(running: Call) -> bytes:
        progress.phase, progress.files_done = "merging", 7
        return work(running)

    job = place.start(do, progress)
    assert work.begun.wait(30)
    assert place.jobs.describe(job)["progress"] == {"phase": "merging", "files_done": 7}
    progress.files_done = 9
    work.go_on.set()
    place.over()
    for jobs in (place.jobs, place.another()):
        assert jobs.describe(job)["progress"] == {"phase": "merging", "files_done": 9}


def raising(failure: BaseException) -> Work:
    def then(running: Call) -> bytes:
        raise failure

    return Work(then)


def test_a_refusal_is_the_jobs_error(place: Place) -> None:
    work = raising(CommitConflict("beaten \ud800", details={"groups": 3}))
    job = started(place, work)
    work.go_on.set()
    place.over()
    assert place.state(job) == "failed"
    assert place.another().describe(job)["error"] == {
        "code": "COMMIT_CONFLICT",
        "message": "beaten \\ud800",
        "retryable": True,
        "details": {"groups": 3},
    }


def test_a_defect_is_told_by_an_id_that_the_log_has_and_nothing_of_the_inside(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    work = raising(RuntimeError("secret"))
    job = started(place, work)
    work.go_on.set()
    place.over()
    assert place.state(job) == "failed"
    error = place.jobs.describe(job)["error"]
    assert (error["code"], "secret" in json.dumps(error)) == ("INTERNAL_ERROR", False)
    assert error["details"]["error_id"] in caplog.text
    assert "secret" in caplog.text


def test_a_job_that_is_cancelled_before_it_starts_never_runs(place: Place) -> None:
    first, second, third = Work(), Work(), Work()
    one, two = started(place, first), place.start(second)
    assert place.jobs.cancel(two)["state"] == "cancelled"
    assert place.jobs.describe(two)["error"]["code"] == "CANCELLED"
    first.go_on.set()
    assert place.state(two) == "cancelled"
    started(place, third)
    third.go_on.set()
    place.over()
    assert (place.state(one), place.state(two), second.begun.is_set()) == ("done", "cancelled", False)


def test_a_job_that_is_cancelled_while_it_runs_is_told_and_ends_as_cancelled(place: Place) -> None:
    work, told = Work(unless_cancelled), list[str]()
    job = started(place, work)
    assert work.running
    work.running.on_cancel(lambda: told.append("told"))
    described = place.jobs.cancel(job)
    assert (described["state"], described["cancelling"], told) == ("running", True, ["told"])
    work.go_on.set()
    place.over()
    assert place.state(job) == "cancelled"
    assert place.another().describe(job)["error"] == {
        "code": "CANCELLED",
        "message": "the job was cancelled",
        "retryable": False,
    }


def test_what_a_cancelled_job_had_done_may_stand_in_its_error(place: Place) -> None:
    work = raising(Cancelled(details={"files": 3}))
    job = started(place, work)
    place.jobs.cancel(job)
    work.go_on.set()
    place.over()
    assert place.jobs.describe(job)["error"]["details"] == {"files": 3}


@pytest.mark.parametrize("failure", [RuntimeError("Job 7 cancelled"), CommitConflict("beaten")])
def test_whatever_a_job_fails_with_once_it_is_cancelled_is_the_cancel(
    place: Place, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    work = raising(failure)
    job = started(place, work)
    place.jobs.cancel(job)
    caplog.set_level(logging.INFO)
    work.go_on.set()
    place.over()
    assert place.state(job) == "cancelled"
    assert str(failure) in caplog.text


def test_a_job_that_got_its_work_done_all_the_same_is_done(place: Place) -> None:
    work = Work()
    job = started(place, work)
    place.jobs.cancel(job)
    work.go_on.set()
    place.over()
    assert place.state(job) == "done"
    assert place.jobs.cancel(job)["state"] == "done"


def test_a_start_that_the_ledger_could_not_note_keeps_no_job_from_running(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mute(job: str) -> None:
        raise LedgerUnavailable("no answer")

    monkeypatch.setattr(place.jobs.records, "run", mute)
    work = Work()
    job = started(place, work)
    assert place.jobs.describe(job)["state"] == "running"
    work.go_on.set()
    place.over()
    assert place.state(job) == "done"


class TestStopping:
    """A stop leaves nothing under way, and a job that it ended says so, also after the next start."""

    def test_what_runs_is_told_and_was_interrupted_and_what_waits_was_too(self, place: Place) -> None:
        work, waiting = Work(unless_cancelled), Work()
        running, queued = started(place, work), place.start(waiting)
        assert work.running
        work.running.on_cancel(work.go_on.set)
        assert place.background.busy
        place.background.close(30)
        assert not place.background.busy
        for job in (running, queued):
            assert place.state(job) == "interrupted"
            error = place.another().describe(job)["error"]
            assert (error["code"], error["retryable"]) == ("UNAVAILABLE", True)
            assert "what it had committed by then stays" in error["message"]
        assert not waiting.begun.is_set()

    def test_work_that_does_not_notice_is_not_waited_for(self, place: Place) -> None:
        work = Work()
        job = started(place, work)
        place.background.close(0)
        assert (place.state(job), place.background.busy) == ("interrupted", True)
        work.go_on.set()
        place.over()
        assert place.state(job) == "interrupted"

    def test_what_was_done_in_time_is_done(self, place: Place) -> None:
        work = Work()
        job = started(place, work)
        place.background.stop()
        work.go_on.set()
        place.background.close(30)
        assert place.state(job) == "done"

    def test_nothing_new_is_taken(self, place: Place) -> None:
        place.background.stop()
        with pytest.raises(ShuttingDown):
            place.start(Work())
        assert place.records.unfinished() == []

    def test_what_comes_just_then_is_refused_and_leaves_no_job_that_runs(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        accept = place.jobs.accept

        def stopped_after(*args: Any, **how: Any) -> Job:
            job = accept(*args, **how)
            place.background.stop()
            return job

        monkeypatch.setattr(place.jobs, "accept", stopped_after)
        with pytest.raises(ShuttingDown):
            place.start(Work())
        assert (place.records.unfinished(), place.background.busy) == ([], False)

    def test_a_job_that_a_crash_ended_was_interrupted(self, place: Place) -> None:
        work, waiting = Work(), Work()
        jobs = [started(place, work), place.start(waiting)]
        later = place.another()
        assert later.recover() == 2
        assert [later.describe(job)["state"] for job in jobs] == ["interrupted"] * 2
        work.go_on.set()
        waiting.go_on.set()

    def test_a_cancelled_job_is_a_refusal_that_nobody_repeats(self) -> None:
        assert isinstance(Cancelled(), FirnError)
        assert (Cancelled.status, Cancelled.retryable) == (409, False)
