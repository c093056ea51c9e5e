"""A job is known from its beginning to a week after its end, also to a process that did not see it end."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from service.catalog.tables import Table
from service.errors import Cancelled, CatalogUnavailable, CommitConflict, LedgerUnavailable, NotFound
from service.jobs.job import BulkProgress, Job
from service.jobs.jobs import ClaimTaken, Jobs
from service.ledger.jobs import JobRecords
from service.ledger.ledger import Transaction
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.types import Field, Primitive, TableSchema
from tests.fakes import FakeCatalog, FakeOwners
from tests.support.composed import Composed

NAME = TableName("acme", "shop", "orders")
SCHEMA = TableSchema((Field("id", Primitive("long")),))
PROMISE = b'{"success": true, "records_written": 3, "metadata": {"request_id": "r"}}'
WEEK_MS = 7 * 24 * 3600 * 1000


class World:
    """A ledger and a catalog that outlive the processes which use them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.catalog = FakeCatalog()
        self.table: Table = self.catalog.create(NAME, SCHEMA, (), {})

    def process(self, owners: FakeOwners | None = None) -> "Process":
        return Process(self, owners)


class Process(Jobs):
    """The jobs of one process, or of one of several instances."""

    def __init__(self, world: World, owners: FakeOwners | None = None) -> None:
        composed = Composed(world.path, catalog=world.catalog, owners=owners)
        self.ledger, self.commits = composed.ledger, composed.commits
        self._table = world.table
        super().__init__(composed.parts[JobRecords], self.commits)

    def tries(self, job: Job, batch: str, promise: bytes | None = None, within: Transaction | None = None) -> None:
        """As a load does: the batch is noted before."""
        self.commits.batches.begin(batch, self._table, "WRITE", [Call("r")])
        super().tries(job, batch, promise, within)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger.db")


def started(jobs: Jobs, world: World, progress: Any = None, running: Call | None = None) -> Job:
    return jobs.accept("BULK", world.table, progress or BulkProgress("writing", 3, 50), PROMISE, running)


def outcome(described: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in described.items() if k in ("state", "result", "error")}


def test_a_running_job_shows_how_far_it_is(world: World) -> None:
    jobs, progress = world.process(), BulkProgress("writing", 3, 50)
    job = started(jobs, world, progress)
    progress.records = 7
    described = jobs.describe(job.id)
    assert (described["id"], described["kind"], described["state"]) == (job.id, "BULK", "running")
    assert described["progress"] == {"phase": "writing", "records": 7, "bytes": 50}
    assert described["table"] == {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
    assert not {"ended_at", "result", "error", "cancelling"} & set(described)


def test_progress_may_be_any_dataclass(world: World) -> None:
    @dataclass
    class Files:
        phase: str = "merging"
        files_done: int = 2

    jobs = world.process()
    job = started(jobs, world, Files())
    assert jobs.describe(job.id)["progress"] == {"phase": "merging", "files_done": 2}
    jobs.done(job, b"{}")
    assert world.process().describe(job.id)["progress"] == {"phase": "merging", "files_done": 2}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_has_ended_shows_what_came_of_it(world: World, restarted: bool) -> None:
    jobs, progress = world.process(), BulkProgress("writing", 3, 50)
    good, bad = started(jobs, world, progress), started(jobs, world)
    progress.phase = "done"
    jobs.done(good, b'{"success": true, "records_written": 3}')
    jobs.failed(bad, b'{"code": "COMMIT_CONFLICT"}')
    asked = world.process() if restarted else jobs
    assert outcome(asked.describe(good.id)) == {"state": "done", "result": {"success": True, "records_written": 3}}
    assert outcome(asked.describe(bad.id)) == {"state": "failed", "error": {"code": "COMMIT_CONFLICT"}}
    assert asked.describe(good.id)["progress"]["phase"] == "done"
    assert asked.describe(good.id)["ended_at"] >= asked.describe(good.id)["created_at"]


def test_an_unknown_job_is_not_found(world: World) -> None:
    with pytest.raises(NotFound, match="there is no job 'nope'"):
        world.process().describe("nope")


def test_ids_cannot_be_guessed_from_one_another(world: World) -> None:
    jobs = world.process()
    ids = {started(jobs, world).id for _ in range(20)}
    assert len(ids) == 20
    assert all(len(i) == 32 for i in ids)
    assert len({i[:6] for i in ids}) == 20


def test_a_job_whose_batch_the_table_has_is_done_though_its_process_died(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    jobs.tries(job, "beaten")
    jobs.tries(job, "batch-2")
    snapshot_id = world.catalog.append(NAME, "batch-2")
    later = world.process()
    assert later.recover() == 1
    expected = json.loads(PROMISE)
    expected["metadata"]["snapshot_id"] = str(snapshot_id)
    assert outcome(later.describe(job.id)) == {"state": "done", "result": expected}
    assert later.recover() == 0


def test_a_job_that_learns_its_response_only_before_its_commit_has_that(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    jobs.tries(job, "batch-1", b'{"records_updated": 7, "metadata": {}}')
    snapshot_id = world.catalog.append(NAME, "batch-1")
    later = world.process()
    assert later.recover() == 1
    expected = {"records_updated": 7, "metadata": {"snapshot_id": str(snapshot_id)}}
    assert outcome(later.describe(job.id)) == {"state": "done", "result": expected}


@pytest.mark.parametrize("tried", [None, "batch-1"])
def test_a_job_whose_batch_the_table_has_not_was_interrupted_when_its_process_died(
    world: World, tried: str | None
) -> None:
    jobs = world.process()
    job = started(jobs, world)
    if tried:
        jobs.tries(job, tried)
    world.catalog.append(NAME, "another")
    later = world.process()
    assert later.recover() == 1
    described = later.describe(job.id)
    assert (described["state"], described["error"]["code"], described["error"]["retryable"]) == (
        "interrupted",
        "UNAVAILABLE",
        True,
    )
    assert "nothing of it was written" in described["error"]["message"]


def test_a_job_whose_table_is_gone_was_interrupted(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    jobs.tries(job, "batch-1")
    world.catalog.append(NAME, "batch-1")
    world.catalog.drop(world.table, purge=True)
    world.catalog.create(NAME, SCHEMA, (), {})
    world.catalog.append(NAME, "batch-1")  # in another table of that name
    later = world.process()
    later.recover()
    assert later.describe(job.id)["state"] == "interrupted"


def test_nothing_is_said_of_a_job_while_the_catalog_is_silent(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    jobs.tries(job, "batch-1")
    world.catalog.append(NAME, "batch-1")
    world.catalog.failures += [CatalogUnavailable("no answer"), CatalogUnavailable("no answer")]
    later = world.process()
    assert later.recover() == 1
    with pytest.raises(CatalogUnavailable):
        later.describe(job.id)
    assert later.describe(job.id)["state"] == "done"


def test_recovery_leaves_alone_what_runs_in_this_process(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    assert jobs.recover() == 0
    assert jobs.describe(job.id)["state"] == "running"


def test_a_job_is_forgotten_a_week_after_its_end(world: World) -> None:
    jobs = world.process()
    old, young, running = started(jobs, world), started(jobs, world), started(jobs, world)
    jobs.done(old, b"{}")
    jobs.done(young, b"{}")
    now = time.time_ns() // 1_000_000
    for job, ended_ms in ((old, now - WEEK_MS - 1000), (young, now - WEEK_MS + 60_000)):
        jobs.records.end(replace(job.record, ended_ms=ended_ms))
    with pytest.raises(NotFound):
        jobs.describe(old.id)
    jobs.recover()
    assert jobs.records.find(old.id) is None
    with pytest.raises(NotFound):
        jobs.describe(old.id)
    assert jobs.describe(young.id)["state"] == "done"
    assert jobs.describe(running.id)["state"] == "running"


def test_an_end_that_the_ledger_could_not_note_is_still_told(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    world.path.rename(world.path.with_suffix(".away"))
    jobs.ledger.close()
    world.path.mkdir()
    jobs.done(job, b'{"success": true}')
    assert outcome(jobs.describe(job.id)) == {"state": "done", "result": {"success": True}}


def test_an_end_that_could_not_be_noted_is_noted_as_soon_as_it_can_be(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = world.process()
    job = started(jobs, world)
    with monkeypatch.context() as silent:

        def end(*_: object) -> None:
            raise LedgerUnavailable("no answer")

        silent.setattr(jobs.records, "end", end)
        jobs.done(job, b'{"success": true}')
        jobs.look()
    noted = jobs.records.find(job.id)
    assert noted
    assert noted.state == "running"
    jobs.look()
    assert outcome(world.process().describe(job.id)) == {"state": "done", "result": {"success": True}}


def test_a_restart_tells_how_far_an_interrupted_job_had_come(world: World) -> None:
    jobs = world.process()
    progress = BulkProgress()
    job = jobs.accept("BULK", world.table, progress)
    progress.records = 7
    jobs.look()
    later = world.process()
    later.recover()
    told = later.describe(job.id)
    assert (told["state"], told["progress"]["records"]) == ("interrupted", 7)


def test_the_first_end_of_a_job_counts(world: World) -> None:
    jobs = world.process()
    job = started(jobs, world)
    jobs.interrupted(job)
    jobs.done(job, b"{}")
    assert jobs.describe(job.id)["state"] == "interrupted"


@pytest.mark.parametrize("end", [Jobs.failed, Jobs.cancelled])
def test_what_fails_while_the_process_stops_was_interrupted_and_what_is_done_is_done(
    world: World, end: Callable[[Jobs, Job, bytes], None]
) -> None:
    jobs, running, sealed = world.process(), Call(), Call()
    failing, committing = started(jobs, world, running=running), started(jobs, world, running=sealed)
    sealed.seal()
    jobs.stop()
    assert (running.cancelled, sealed.cancelled) == (True, False)
    end(jobs, failing, b'{"code": "ENGINE_UNAVAILABLE"}')
    jobs.done(committing, b'{"success": true}')
    later = world.process()
    assert later.describe(failing.id)["error"]["code"] == "UNAVAILABLE"
    assert [later.describe(job.id)["state"] for job in (failing, committing)] == ["interrupted", "done"]


class TestCancelling:
    """Whoever does the work is told; how it ends is the work's to say."""

    def test_the_work_is_told_and_the_job_says_that_it_is_being_cancelled(self, world: World) -> None:
        jobs, running, told = world.process(), Call(), list[str]()
        job = started(jobs, world, running=running)
        running.on_cancel(lambda: told.append("now"))
        described = jobs.cancel(job.id)
        assert (described["state"], described["cancelling"], told) == ("running", True, ["now"])
        with pytest.raises(Cancelled):
            running.check()
        jobs.cancelled(job, b'{"code": "CANCELLED"}')
        for asked in (jobs, world.process()):
            assert outcome(asked.describe(job.id)) == {"state": "cancelled", "error": {"code": "CANCELLED"}}
            assert "cancelling" not in asked.describe(job.id)

    def test_a_job_that_has_ended_stays_as_it_is(self, world: World) -> None:
        jobs = world.process()
        job = started(jobs, world)
        jobs.done(job, b'{"success": true}')
        for asked in (jobs, world.process()):
            assert outcome(asked.cancel(job.id)) == {"state": "done", "result": {"success": True}}

    def test_a_job_that_is_past_cancelling_goes_on(self, world: World) -> None:
        jobs, running = world.process(), Call()
        job = started(jobs, world, running=running)
        running.seal()
        described = jobs.cancel(job.id)
        assert (described["state"], "cancelling" in described) == ("running", False)
        running.check()
        running.seal()

    def test_an_unknown_job_is_not_found(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.process().cancel("nope")

    def test_what_is_to_be_told_after_the_cancel_is_told_at_once_and_each_only_once(self) -> None:
        running, told = Call(), list[int]()
        running.on_cancel(lambda: told.append(1))
        assert running.cancel()
        assert running.cancel()
        running.on_cancel(lambda: told.append(2))
        assert (told, running.cancelled) == ([1, 2], True)
        with pytest.raises(Cancelled):
            running.seal()

    def test_one_who_cannot_be_told_keeps_nobody_from_being_told(self) -> None:
        running, told = Call(), list[int]()
        running.on_cancel(lambda: 1 / 0)
        running.on_cancel(lambda: told.append(2))
        assert running.cancel()
        assert told == [2]


class TestSeveralInstances:
    """A job is its instance's as long as that is there; then anybody finds out what became of it."""

    @pytest.fixture
    def there(self) -> FakeOwners:
        return FakeOwners("there")

    def test_anothers_running_job_is_shown_as_its_note_says_and_left_alone(
        self, world: World, there: FakeOwners
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world, BulkProgress("writing", 3, 50))
        other.tries(job, "batch-1")
        world.catalog.append(NAME, "batch-1")
        assert here.recover() == 0
        described = here.describe(job.id)
        assert described["state"] == "running"
        assert described["progress"] == {"phase": "writing", "records": 3, "bytes": 50}
        assert not {"ended_at", "result", "error"} & set(described)
        assert (world.catalog.fences, here.ledger.is_ours("batch-1"), other.ledger.is_ours("batch-1")) == (
            [],
            False,
            True,
        )
        other.done(job, b'{"success": true}')
        assert outcome(here.describe(job.id)) == {"state": "done", "result": {"success": True}}

    @pytest.mark.parametrize("by", ["recovery", "who asks"])
    @pytest.mark.parametrize("committed", [True, False])
    def test_the_job_of_an_instance_that_is_gone_is_settled(
        self, world: World, there: FakeOwners, committed: bool, by: str
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        other.tries(job, "batch-1")
        if committed:
            world.catalog.append(NAME, "batch-1")
        there.close()
        if by == "recovery":
            assert here.recover() == 1
            assert here.records.unfinished() == []
        assert here.describe(job.id)["state"] == ("done" if committed else "interrupted")
        assert world.catalog.fences == ["batch-1"]
        assert here.recover() == 0

    def test_one_that_had_tried_nothing_yet_was_interrupted(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        there.close()
        assert here.describe(job.id)["error"]["code"] == "UNAVAILABLE"
        assert world.catalog.fences == []

    def test_one_that_has_no_owner_is_settled_by_anybody(self, world: World, there: FakeOwners) -> None:
        other = world.process(there)
        job = started(other, world)
        with other.ledger._writing() as connection:
            connection.exec_driver_sql("UPDATE jobs SET owner = ''")
        assert world.process(there.beside("here")).recover() == 1
        assert world.process(there.beside("here")).describe(job.id)["state"] == "interrupted"

    def test_a_cancel_reaches_the_instance_that_has_the_job(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        running, bystander = Call(), Call()
        job = started(other, world, running=running)
        started(other, world, running=bystander)
        described = here.cancel(job.id)
        assert (described["state"], described["cancelling"], running.cancelled) == ("running", True, False)
        here.look()
        assert not running.cancelled
        other.look()
        assert (running.cancelled, bystander.cancelled) == (True, False)
        other.cancelled(job, b'{"code": "CANCELLED"}')
        assert outcome(here.cancel(job.id)) == {"state": "cancelled", "error": {"code": "CANCELLED"}}

    def test_what_was_cancelled_too_late_is_done(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        running = Call()
        job = started(other, world, running=running)
        running.seal()
        here.cancel(job.id)
        other.look()
        other.done(job, b'{"success": true}')
        assert outcome(here.describe(job.id)) == {"state": "done", "result": {"success": True}}

    def test_the_cancelled_job_of_an_instance_that_is_gone_was_interrupted(
        self, world: World, there: FakeOwners
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        there.close()
        assert here.cancel(job.id)["state"] == "interrupted"

    def test_others_see_how_far_a_job_was_when_its_owner_last_looked(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        progress = BulkProgress("writing", 3, 50)
        job = started(other, world, progress)
        progress.records = 9
        assert here.describe(job.id)["progress"]["records"] == 3
        other.look()
        assert here.describe(job.id)["progress"]["records"] == 9

    def test_a_silent_ledger_keeps_nobody_from_looking_again(
        self, world: World, there: FakeOwners, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        running = Call()
        here.cancel(started(other, world, running=running).id)
        with monkeypatch.context() as silent:

            def look(_: object) -> set[str]:
                raise LedgerUnavailable("no answer")

            silent.setattr(other.records, "look", look)
            other.look()
        assert not running.cancelled
        other.look()
        assert running.cancelled

    def test_who_settles_a_job_late_does_not_undo_its_end(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        seen = here.records.find(job.id)
        assert seen
        other.done(job, b'{"success": true}')
        assert here.records.take(seen, state="interrupted", outcome=b"{}", ended_ms=1) is None
        assert here.describe(job.id)["state"] == "done"

    def test_what_was_seen_before_another_batch_was_tried_settles_nothing(
        self, world: World, there: FakeOwners
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        other.tries(job, "batch-1")
        seen = here.records.find(job.id)
        assert seen
        other.tries(job, "batch-2")
        assert here.records.take(seen, state="interrupted", ended_ms=1) is None
        other.commits.batches.end("batch-2", world.catalog.append(NAME, "batch-2"))
        there.close()
        assert here.describe(job.id)["state"] == "done"

    def test_whoever_was_taken_for_gone_tries_no_other_batch(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        there.close()
        assert here.recover() == 1
        with pytest.raises(CommitConflict):
            other.tries(job, "batch-1")

    def test_an_end_of_the_owners_own_counts_though_others_gave_the_job_up(
        self, world: World, there: FakeOwners
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = started(other, world)
        there.close()
        assert here.recover() == 1
        other.done(job, b'{"success": true}')
        assert outcome(here.describe(job.id)) == {"state": "done", "result": {"success": True}}


def test_a_tenants_jobs_are_listed_the_latest_first_and_nobody_elses(world: World) -> None:
    jobs = world.process()
    other = world.catalog.create(TableName("globex", "shop", "orders"), SCHEMA, (), {})
    elsewhere = world.catalog.create(TableName("acme", "office", "letters"), SCHEMA, (), {})
    ids = []
    for table in (world.table, other, elsewhere, world.table):
        ids.append(jobs.accept("BULK", table, BulkProgress()).id)
        time.sleep(0.002)
    first, _, third, fourth = ids
    assert [job["id"] for job in jobs.latest("acme", None, 10)] == [fourth, third, first]
    assert [job["id"] for job in jobs.latest("acme", "shop", 10)] == [fourth, first]
    assert [job["id"] for job in jobs.latest("acme", None, 1)] == [fourth]
    assert jobs.latest("nobody", None, 10) == []


def test_a_list_tells_how_far_each_job_is_and_not_what_came_of_it(world: World) -> None:
    jobs, progress = world.process(), BulkProgress("writing", 3, 50)
    running = started(jobs, world, progress)
    progress.records = 7
    time.sleep(0.002)
    done = started(jobs, world)
    jobs.done(done, b'{"success": true}')
    ended, live = jobs.latest("acme", None, 10)
    assert (live["id"], live["state"], live["progress"]["records"]) == (running.id, "running", 7)
    assert (ended["id"], ended["state"], "ended_at" in ended, "result" in ended) == (done.id, "done", True, False)


def test_a_list_says_of_a_job_that_was_left_behind_that_it_was_interrupted(world: World) -> None:
    left = started(world.process(FakeOwners("a")), world)
    after = world.process(FakeOwners("b"))
    [job] = after.latest("acme", None, 10)
    assert (job["id"], job["state"], "error" in job) == (left.id, "interrupted", False)


def test_only_one_unfinished_job_has_a_claim(world: World) -> None:
    process = world.process()
    table, call = world.table, Call("r")
    with process.begin("REFRESH", table, BulkProgress(), call, claim="refresh t"):
        with (
            pytest.raises(ClaimTaken, match="another instance works on"),
            process.begin("REFRESH", table, BulkProgress(), call, claim="refresh t"),
        ):
            pass
        with process.begin("REFRESH", table, BulkProgress(), call, claim="refresh other"):
            pass
    with process.begin("REFRESH", table, BulkProgress(), call, claim="refresh t") as job:
        assert job.live
    assert process.records.unfinished() == []


def test_an_end_that_was_recorded_with_something_else_is_not_recorded_again(world: World) -> None:
    jobs = world.process()
    with jobs.begin("REFRESH", world.table, BulkProgress(), Call()) as job:
        with jobs.ledger.transaction() as transaction:
            jobs.end_within(job, transaction)
        job.end_recorded = True
        jobs.records.end = _must_not_be_called  # type: ignore[method-assign]
    assert jobs.records.unfinished() == []


def test_an_end_whose_transaction_failed_is_recorded_by_itself(world: World) -> None:
    jobs = world.process()
    with jobs.begin("REFRESH", world.table, BulkProgress(), Call()) as job:
        with suppress(LedgerUnavailable), jobs.ledger.transaction() as transaction:
            jobs.end_within(job, transaction)
            raise LedgerUnavailable("the disk is full")
        assert [one.id for one in jobs.records.unfinished()] == [job.id]
    assert jobs.records.unfinished() == []


def test_a_failure_after_an_end_that_was_recorded_counts(world: World) -> None:
    jobs = world.process()
    with suppress(NotFound), jobs.begin("REFRESH", world.table, BulkProgress(), Call()) as job:
        with jobs.ledger.transaction() as transaction:
            jobs.end_within(job, transaction)
        job.end_recorded = True
        raise NotFound("gone")
    found = jobs.records.find(job.id)
    assert found is not None
    assert found.state == "failed"


def test_what_is_recorded_with_a_claim_is_not_recorded_without_it(world: World) -> None:
    jobs = world.process()
    seen: list[str] = []

    def begin(who: str) -> AbstractContextManager[Job]:
        return jobs.begin(
            "REFRESH", world.table, BulkProgress(), Call(), claim="it", also=lambda transaction: seen.append(who)
        )

    with begin("first"), pytest.raises(ClaimTaken), begin("second"):
        raise AssertionError
    assert seen == ["first"]


def _must_not_be_called(*_: object) -> None:
    raise AssertionError
