"""Who writes files that no snapshot holds yet is noted from before the first of them until after the last."""

from pathlib import Path

import pytest

from service.errors import CommitConflict, LedgerUnavailable
from service.ledger.ledger import Ledger
from service.ledger.writers import Writers
from tests.fakes import FakeOwners, MuteLedger


class BrokenLedger(MuteLedger):
    """A ledger that can be read, and for a while not written."""

    broken = False

    def _writing(self):  # type: ignore[no-untyped-def]  # the same as the one it stands for
        if self.broken:
            raise LedgerUnavailable("the ledger does not answer")
        return super()._writing()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> BrokenLedger:
    return BrokenLedger(f"sqlite:///{path}")


def whats(writers: Writers, table_uuid: str = "uuid-1") -> list[str]:
    return [writer.what for writer in writers.active(table_uuid)]


def test_a_writer_is_known_while_it_writes_and_to_nobody_afterwards(ledger: BrokenLedger) -> None:
    writers = Writers(ledger)
    with writers.writing("uuid-1", "a bulk load") as first, writers.writing("uuid-2", "a compaction"):
        with writers.writing("uuid-1", "a compaction"):
            assert whats(writers) == ["a bulk load", "a compaction"]
            assert writers.active("uuid-1")[0].begun_ms == first.begun_ms
        assert whats(writers) == ["a bulk load"]
    with pytest.raises(ZeroDivisionError), writers.writing("uuid-1", "what fails"):
        raise ZeroDivisionError
    assert whats(writers) == whats(writers, "uuid-2") == []


def test_who_cannot_be_noted_does_not_begin(ledger: BrokenLedger) -> None:
    writers, begun = Writers(ledger), []
    ledger.broken = True
    with pytest.raises(LedgerUnavailable), writers.writing("uuid-1", "a bulk load"):
        begun.append(1)
    ledger.broken = False
    assert (begun, whats(writers)) == ([], [])


def test_a_ledger_that_is_silent_at_the_end_fails_nobody_and_is_told_later(ledger: BrokenLedger) -> None:
    writers = Writers(ledger)
    with writers.writing("uuid-1", "a bulk load"):
        ledger.broken = True
    ledger.broken = False
    assert whats(writers) == []
    assert whats(Writers(ledger)) == []


def test_what_an_earlier_process_left_noted_is_forgotten(path: Path, ledger: BrokenLedger) -> None:
    with Writers(ledger).writing("uuid-1", "a bulk load"):
        assert whats(Writers(Ledger(f"sqlite:///{path}"))) == []


class TestTogether:
    """Several instances on one ledger."""

    @pytest.fixture
    def here(self, ledger: BrokenLedger) -> Writers:
        ledger.owners = FakeOwners("here")
        return Writers(ledger)

    @pytest.fixture
    def there(self, path: Path, ledger: BrokenLedger, here: Writers) -> Writers:
        other = MuteLedger(f"sqlite:///{path}")
        assert isinstance(ledger.owners, FakeOwners)
        other.owners = ledger.owners.beside("there")
        return Writers(other)

    def test_others_at_work_are_seen(self, here: Writers, there: Writers) -> None:
        with there.writing("uuid-1", "a bulk load") as writer:
            assert [w.owner for w in here.active("uuid-1")] == ["there"]
            writer.still_noted()

    def test_one_that_was_taken_for_gone_may_not_commit_what_it_wrote(self, here: Writers, there: Writers) -> None:
        with there.writing("uuid-1", "a bulk load") as writer:
            there._ledger.owners.close()
            assert whats(here) == []
            with pytest.raises(CommitConflict, match="could not see us"):
                writer.still_noted()
