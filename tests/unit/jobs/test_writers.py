"""A job that writes files is known as one from before the first of them until its end, and can be fenced off."""

from pathlib import Path

import pytest

from service.errors import Cancelled, CommitConflict, LedgerUnavailable
from service.jobs.job import BULK
from service.jobs.jobs import Jobs
from service.ledger.ledger import Ledger
from service.model.call import Call
from tests.fakes import FakeOwners, MuteLedger
from tests.jobs import begin, jobs_on, table_of

ONE, TWO = table_of("uuid-1"), table_of("uuid-2")


class BrokenLedger(MuteLedger):
    """A ledger that can be read, and for a while not written."""

    broken = False

    def _writing(self, within=None):  # type: ignore[no-untyped-def]  # the same as the one it stands for
        if self.broken:
            raise LedgerUnavailable("the ledger does not respond")
        return super()._writing(within)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> BrokenLedger:
    return BrokenLedger(f"sqlite:///{path}")


def whats(jobs: Jobs, table_uuid: str = "uuid-1") -> list[str]:
    return [jobs.what(job) for job in jobs.writing(table_uuid)]


def test_a_writer_is_known_while_it_writes_and_to_nobody_afterwards(ledger: BrokenLedger) -> None:
    jobs = jobs_on(ledger)
    with begin(jobs, BULK, ONE) as first, begin(jobs, "COMPACT", TWO):
        with begin(jobs, "COMPACT", ONE):
            assert whats(jobs) == ["a bulk load", "a compaction"]
            assert jobs.writing("uuid-1")[0].started_ms == first.record.started_ms
        assert whats(jobs) == ["a bulk load"]
    with pytest.raises(ZeroDivisionError), begin(jobs, BULK, ONE):
        raise ZeroDivisionError
    assert whats(jobs) == whats(jobs, "uuid-2") == []


def test_who_cannot_be_noted_does_not_begin(ledger: BrokenLedger) -> None:
    jobs, begun = jobs_on(ledger), []
    ledger.broken = True
    with pytest.raises(LedgerUnavailable), begin(jobs, BULK, ONE):
        begun.append(1)
    ledger.broken = False
    assert (begun, whats(jobs)) == ([], [])


def test_a_ledger_that_is_silent_at_the_end_fails_nobody_and_is_told_later(ledger: BrokenLedger) -> None:
    jobs = jobs_on(ledger)
    with begin(jobs, BULK, ONE):
        ledger.broken = True
    ledger.broken = False
    assert whats(jobs) == []
    assert whats(jobs_on(ledger)) == []
    jobs.look()
    assert jobs.records.unfinished() == []


def test_what_an_earlier_process_left_is_nobodys_whatever_the_table(path: Path, ledger: BrokenLedger) -> None:
    with begin(jobs_on(ledger), BULK, ONE), begin(jobs_on(ledger), "COMPACT", TWO):
        later = jobs_on(Ledger(f"sqlite:///{path}"))
        assert whats(later) == []
        assert later.recover() == 2
        assert later.records.unfinished() == []


@pytest.mark.parametrize(
    ("failure", "state"), [(None, "done"), (CommitConflict("beaten"), "failed"), (Cancelled(), "cancelled")]
)
def test_a_job_that_nobody_asked_for_by_id_ends_as_its_block_does_and_is_not_listed(
    ledger: BrokenLedger, failure: Exception | None, state: str
) -> None:
    jobs = jobs_on(ledger)
    try:
        with begin(jobs, "COMPACT", ONE, Call("r"), wish=1) as job:
            job.note(expected=2)
            if failure:
                raise failure
    except type(failure or OSError):
        pass
    found = jobs.records.find(job.id)
    assert found
    assert (found.state, found.requested_by, found.details) == (state, "request r", {"wish": 1, "expected": 2})
    assert jobs.latest("acme", None, 10) == []


class TestTogether:
    """Several instances on one ledger."""

    @pytest.fixture
    def here(self, ledger: BrokenLedger) -> Jobs:
        ledger.owners = FakeOwners("here")
        return jobs_on(ledger)

    @pytest.fixture
    def there(self, path: Path, ledger: BrokenLedger, here: Jobs) -> Jobs:
        other = MuteLedger(f"sqlite:///{path}")
        assert isinstance(ledger.owners, FakeOwners)
        other.owners = ledger.owners.beside("there")
        return jobs_on(other)

    def test_others_at_work_are_seen(self, here: Jobs, there: Jobs) -> None:
        with begin(there, BULK, ONE) as job:
            assert [w.owner for w in here.writing("uuid-1")] == ["there"]
            job.commit_gate()

    @pytest.mark.parametrize("found_by", [lambda here: whats(here), Jobs.settle])
    def test_one_that_was_taken_for_gone_may_not_commit_what_it_wrote(
        self, here: Jobs, there: Jobs, found_by: object
    ) -> None:
        assert callable(found_by)
        with begin(there, BULK, ONE) as job:
            there.records._ledger.owners.close()
            assert whats(here) == [] if found_by is whats else found_by(here) in ([], 1)
            with pytest.raises(CommitConflict, match="could not see us"):
                job.commit_gate()
