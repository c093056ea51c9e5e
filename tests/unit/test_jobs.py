"""A job is known from its beginning to a week after its end, also to a process that did not see it end."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from service.catalog.tables import Table
from service.commits.ask import Ask
from service.commits.commit import Commits
from service.errors import CatalogUnavailable, NotFound
from service.jobs.jobs import Jobs, Progress
from service.ledger.jobs import JobNotes
from service.names import TableName
from service.schema import Field, Primitive, TableSchema
from tests.fakes import FakeCatalog, FakeOwners, MuteLedger

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
        self.ledger = MuteLedger(f"sqlite:///{world.path}")
        if owners is not None:
            self.ledger.owners = owners
        self.notes = JobNotes(self.ledger)
        self.commits = Commits(world.catalog.as_catalog, self.ledger, pauses_s=(0, 0))
        self._table = world.table
        super().__init__(self.notes, self.commits)

    def tries(self, job_id: str, batch: str) -> None:
        """As a load does: the batch is noted before."""
        self.commits.begin(batch, self._table, "WRITE", [Ask("r")])
        super().tries(job_id, batch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "ledger.db")


def begun(jobs: Jobs, world: World, progress: Progress | None = None) -> str:
    return jobs.begin("BULK", world.table, progress or Progress("writing", 3, 50), PROMISE)


def outcome(described: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in described.items() if k in ("state", "result", "error")}


def test_a_running_job_shows_how_far_it_is(world: World) -> None:
    jobs, progress = world.process(), Progress("writing", 3, 50)
    job = begun(jobs, world, progress)
    progress.records = 7
    described = jobs.describe(job)
    assert (described["id"], described["kind"], described["state"]) == (job, "BULK", "running")
    assert described["progress"] == {"phase": "writing", "records": 7, "bytes": 50}
    assert not {"ended_at", "result", "error"} & set(described)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_has_ended_shows_what_came_of_it(world: World, restarted: bool) -> None:
    jobs, progress = world.process(), Progress("writing", 3, 50)
    good, bad = begun(jobs, world, progress), begun(jobs, world)
    progress.phase = "done"
    jobs.done(good, b'{"success": true, "records_written": 3}')
    jobs.failed(bad, b'{"code": "COMMIT_CONFLICT"}')
    asked = world.process() if restarted else jobs
    assert outcome(asked.describe(good)) == {"state": "done", "result": {"success": True, "records_written": 3}}
    assert outcome(asked.describe(bad)) == {"state": "failed", "error": {"code": "COMMIT_CONFLICT"}}
    assert asked.describe(good)["progress"]["phase"] == "done"
    assert asked.describe(good)["ended_at"] >= asked.describe(good)["created_at"]


def test_an_unknown_job_is_not_found(world: World) -> None:
    with pytest.raises(NotFound, match="there is no job 'nope'"):
        world.process().describe("nope")


def test_ids_cannot_be_guessed_from_one_another(world: World) -> None:
    jobs = world.process()
    ids = {begun(jobs, world) for _ in range(20)}
    assert len(ids) == 20
    assert all(len(i) == 32 for i in ids)
    assert len({i[:6] for i in ids}) == 20


def test_a_job_whose_batch_the_table_has_is_done_though_its_process_died(world: World) -> None:
    jobs = world.process()
    job = begun(jobs, world)
    jobs.tries(job, "beaten")
    jobs.tries(job, "batch-2")
    snapshot_id = world.catalog.append(NAME, "batch-2")
    later = world.process()
    assert later.recover() == 1
    expected = json.loads(PROMISE)
    expected["metadata"]["snapshot_id"] = snapshot_id
    assert outcome(later.describe(job)) == {"state": "done", "result": expected}
    assert later.recover() == 0


@pytest.mark.parametrize("tried", [None, "batch-1"])
def test_a_job_whose_batch_the_table_has_not_has_failed_when_its_process_died(world: World, tried: str | None) -> None:
    jobs = world.process()
    job = begun(jobs, world)
    if tried:
        jobs.tries(job, tried)
    world.catalog.append(NAME, "another")
    later = world.process()
    assert later.recover() == 1
    described = later.describe(job)
    assert (described["state"], described["error"]["code"], described["error"]["retryable"]) == (
        "failed",
        "UNAVAILABLE",
        True,
    )


def test_a_job_whose_table_is_gone_has_failed(world: World) -> None:
    jobs = world.process()
    job = begun(jobs, world)
    jobs.tries(job, "batch-1")
    world.catalog.append(NAME, "batch-1")
    world.catalog.drop(world.table, purge=True)
    world.catalog.create(NAME, SCHEMA, (), {})
    world.catalog.append(NAME, "batch-1")  # in another table of that name
    later = world.process()
    later.recover()
    assert later.describe(job)["state"] == "failed"


def test_nothing_is_said_of_a_job_while_the_catalog_is_silent(world: World) -> None:
    jobs = world.process()
    job = begun(jobs, world)
    jobs.tries(job, "batch-1")
    world.catalog.append(NAME, "batch-1")
    world.catalog.failures += [CatalogUnavailable("no answer"), CatalogUnavailable("no answer")]
    later = world.process()
    assert later.recover() == 1
    with pytest.raises(CatalogUnavailable):
        later.describe(job)
    assert later.describe(job)["state"] == "done"


def test_recovery_leaves_alone_what_runs_in_this_process(world: World) -> None:
    jobs = world.process()
    job = begun(jobs, world)
    assert jobs.recover() == 0
    assert jobs.describe(job)["state"] == "running"


def test_a_job_is_forgotten_a_week_after_its_end(world: World) -> None:
    jobs = world.process()
    old, young, running = begun(jobs, world), begun(jobs, world), begun(jobs, world)
    jobs.done(old, b"{}")
    jobs.done(young, b"{}")
    now = time.time_ns() // 1_000_000
    jobs.notes.end(old, "done", None, b"{}", now - WEEK_MS - 1000)
    jobs.notes.end(young, "done", None, b"{}", now - WEEK_MS + 60_000)
    begun(jobs, world)
    with pytest.raises(NotFound):
        jobs.describe(old)
    assert jobs.describe(young)["state"] == "done"
    assert jobs.describe(running)["state"] == "running"


def test_an_end_that_the_ledger_could_not_note_is_still_told(world: World) -> None:
    jobs = world.process()
    job = begun(jobs, world)
    world.path.rename(world.path.with_suffix(".away"))
    jobs.ledger.close()
    world.path.mkdir()
    jobs.done(job, b'{"success": true}')
    assert outcome(jobs.describe(job)) == {"state": "done", "result": {"success": True}}


class TestSeveralInstances:
    """A job is its instance's as long as that is there; then anybody finds out what became of it."""

    @pytest.fixture
    def there(self) -> FakeOwners:
        return FakeOwners("there")

    def test_anothers_running_job_is_shown_as_its_note_says_and_left_alone(
        self, world: World, there: FakeOwners
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = begun(other, world, Progress("writing", 3, 50))
        other.tries(job, "batch-1")
        world.catalog.append(NAME, "batch-1")
        assert here.recover() == 0
        described = here.describe(job)
        assert described["state"] == "running"
        assert described["progress"] == {"phase": "writing", "records": 3, "bytes": 50}
        assert not {"ended_at", "result", "error"} & set(described)
        assert (world.catalog.fences, here.ledger.is_ours("batch-1"), other.ledger.is_ours("batch-1")) == (
            [],
            False,
            True,
        )
        other.done(job, b'{"success": true}')
        assert outcome(here.describe(job)) == {"state": "done", "result": {"success": True}}

    @pytest.mark.parametrize("by", ["recovery", "who asks"])
    @pytest.mark.parametrize("committed", [True, False])
    def test_the_job_of_an_instance_that_is_gone_is_settled(
        self, world: World, there: FakeOwners, committed: bool, by: str
    ) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = begun(other, world)
        other.tries(job, "batch-1")
        if committed:
            world.catalog.append(NAME, "batch-1")
        there.close()
        if by == "recovery":
            assert here.recover() == 1
            assert here.notes.unfinished() == []
        assert here.describe(job)["state"] == ("done" if committed else "failed")
        assert world.catalog.fences == ["batch-1"]
        assert here.recover() == 0

    def test_one_that_had_tried_nothing_yet_has_failed(self, world: World, there: FakeOwners) -> None:
        other, here = world.process(there), world.process(there.beside("here"))
        job = begun(other, world)
        there.close()
        assert here.describe(job)["error"]["code"] == "UNAVAILABLE"
        assert world.catalog.fences == []

    def test_a_note_that_an_earlier_version_made_belongs_to_nobody(self, world: World, there: FakeOwners) -> None:
        other = world.process(there)
        job = begun(other, world)
        with other.ledger._writing() as connection:
            connection.exec_driver_sql("UPDATE jobs SET owner = ''")
        assert world.process(there.beside("here")).recover() == 1
        assert world.process(there.beside("here")).describe(job)["state"] == "failed"
