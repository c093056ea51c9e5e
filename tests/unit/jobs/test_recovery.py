"""What a job left is removed by whoever starts next; what somebody still works on is left alone."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.errors import OutcomeUnknown, StorageUnavailable
from service.jobs.jobs import Jobs, Kind
from service.ledger.jobs import JobRecord
from tests.fakes import FakeOwners, MuteLedger
from tests.jobs import begin, jobs_on, table_of

TABLE = table_of("uuid-1")


@dataclass
class Processes:
    """Processes on one ledger, which remove folders."""

    path: Path
    removed: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def another(self, owners: FakeOwners | None = None) -> Jobs:
        ledger = MuteLedger(f"sqlite:///{self.path}")
        if owners is not None:
            ledger.owners = owners
        jobs = jobs_on(ledger)
        jobs.register("REPARTITION", Kind("a repartition", self._clean_up))
        return jobs

    def _clean_up(self, left: JobRecord) -> dict[str, str]:
        if self.failures:
            raise self.failures.pop()
        self.removed.append(left.details["folder"])
        return {"note": "removed"}


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "ledger.db")


def test_what_an_instance_left_is_removed_by_the_next_and_what_ended_is_not(processes: Processes) -> None:
    before = processes.another()
    with begin(before, "REPARTITION", TABLE, folder="ended"):
        pass
    with begin(before, "REPARTITION", TABLE, folder="first"), begin(before, "REPARTITION", TABLE, folder="second"):
        assert (before.recover(), processes.removed) == (0, [])  # they are in progress
        after = processes.another()
        assert (after.settle(), processes.removed) == (2, [])  # Spark is not there yet
        after.recover()
        assert sorted(processes.removed) == ["first", "second"]
        after.recover()
        assert len(processes.removed) == 2
    assert [job.details.get("note") for job in after.records.log("REPARTITION", 3)].count("removed") == 0, (
        "the end of its owner counts"
    )


def test_what_an_instance_that_is_there_works_on_is_its_own_affair(processes: Processes) -> None:
    owners = FakeOwners("one")
    one, two = processes.another(owners), processes.another(owners.beside("two"))
    with begin(one, "REPARTITION", TABLE, folder="its"):
        assert (two.recover(), processes.removed) == (0, [])
        owners.close()
        assert (two.recover(), processes.removed) == (1, ["its"])


def test_what_cannot_be_removed_now_is_tried_again_and_keeps_no_other_from_it(processes: Processes) -> None:
    before, after = processes.another(), processes.another()
    processes.failures = [StorageUnavailable("no answer")]
    with begin(before, "REPARTITION", TABLE, folder="one"), begin(before, "REPARTITION", TABLE, folder="two"):
        after.recover()
        assert len(processes.removed) == 1
        after.records.forget({}, 0, 2**60)  # it is not forgotten before
        after.recover()
        assert sorted(processes.removed) == ["one", "two"]


def fails(jobs: Jobs) -> None:
    with suppress(OutcomeUnknown), begin(jobs, "REPARTITION", TABLE, folder="its") as job:
        job.leaves_files = True
        raise OutcomeUnknown("who knows")


def is_stopped(jobs: Jobs) -> None:
    job = jobs.accept("REPARTITION", TABLE, Progress())
    with begin(jobs, "REPARTITION", TABLE, job.call, folder="its"):
        jobs.interrupted(job)


@dataclass
class Progress:
    done: int = 0


@pytest.mark.parametrize(("ends", "state"), [(fails, "failed"), (is_stopped, "interrupted")])
def test_what_a_job_could_not_remove_itself_is_removed_once_its_instance_is_gone(
    processes: Processes, ends: Callable[[Jobs], None], state: str
) -> None:
    owners = FakeOwners("one")
    one, two = processes.another(owners), processes.another(owners.beside("two"))
    ends(one)
    for jobs in (one, two):
        jobs.recover()
    assert processes.removed == []
    owners.close()
    two.recover()
    [job] = two.records.log("REPARTITION", 2)
    assert (processes.removed, job.state, job.details["note"]) == (["its"], state, "removed")
    assert job.ended_ms is not None
