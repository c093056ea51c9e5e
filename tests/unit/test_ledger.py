"""The ledger: what was begun is noted before, what came of it after, and both outlive the process."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from service.errors import LedgerUnavailable
from service.ledger.ledger import Ledger, Mutation, open_ledger
from service.names import TableName
from service.settings import load

ORDERS = TableName("acme", "shop", "orders")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(path: Path) -> Ledger:
    return Ledger(f"sqlite:///{path}")


def noted(path: Path, batch: str) -> tuple[str, int | None]:
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT state, snapshot_id FROM mutations WHERE batch = ?", (batch,)).fetchone()
    return (row[0], row[1])


def test_what_was_begun_is_unfinished_until_its_end_is_noted(path: Path) -> None:
    ledger = opened(path)
    ledger.begin("one", ORDERS, "uuid-1", "WRITE", "request-1")
    ledger.begin("two", ORDERS, "uuid-1", "DELETE", "request-2")
    assert ledger.unfinished() == [Mutation("one", ORDERS, "uuid-1"), Mutation("two", ORDERS, "uuid-1")]
    ledger.end("one", 2**63 - 1)
    ledger.end("two", None)
    assert ledger.unfinished() == []
    assert (noted(path, "one"), noted(path, "two")) == (("done", 2**63 - 1), ("void", None))


def test_notes_outlive_the_ledger_that_wrote_them(path: Path) -> None:
    first = opened(path)
    first.begin("one", ORDERS, "uuid-1", "WRITE", "request-1")
    assert first.count_write("uuid-1") == 1
    first.close()
    second = opened(path)
    assert second.unfinished() == [Mutation("one", ORDERS, "uuid-1")]
    assert second.count_write("uuid-1") == 2


def test_a_batch_is_noted_once(path: Path) -> None:
    ledger = opened(path)
    ledger.begin("one", ORDERS, "uuid-1", "WRITE", "r")
    with pytest.raises(LedgerUnavailable):
        ledger.begin("one", ORDERS, "uuid-1", "WRITE", "r")
    assert len(ledger.unfinished()) == 1


def test_a_long_request_id_is_cut_not_refused(path: Path) -> None:
    opened(path).begin("one", ORDERS, "uuid-1", "WRITE", "r" * 1000)


def test_writes_are_counted_by_table(path: Path) -> None:
    ledger = opened(path)
    assert [ledger.count_write("a") for _ in range(3)] == [1, 2, 3]
    assert ledger.count_write("b") == 1


def test_writes_counted_side_by_side_are_each_counted_once(path: Path) -> None:
    """No two writes may believe to be the fifth; also the very first ones of a table, from two connections."""
    ledgers, counted = [opened(path), opened(path)], []

    def count(ledger: Ledger) -> None:
        for _ in range(15):
            counted.append(ledger.count_write("t"))

    threads = [threading.Thread(target=count, args=(ledgers[i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(counted) == list(range(1, 61))


def test_notes_are_safe_on_disk_when_a_call_returns(path: Path) -> None:
    """WAL and synchronous=FULL: another process sees the note, and a crash of the machine does not lose it."""
    ledger = opened(path)
    ledger.begin("one", ORDERS, "uuid-1", "WRITE", "r")
    assert noted(path, "one") == ("begun", None)
    with ledger._engine.connect() as connection:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    assert (journal, synchronous) == ("wal", 2)


def test_a_ledger_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="unable to open database file"):
        opened(tmp_path / "nowhere" / "ledger.db")


def test_a_ledger_that_is_no_database_says_so(path: Path) -> None:
    path.write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(LedgerUnavailable, match="not a database"):
        opened(path)


def test_by_default_it_lies_under_home(tmp_path: Path) -> None:
    open_ledger(load({"FIRN_HOME": str(tmp_path)})).close()
    assert (tmp_path / "ledger.db").exists()


def test_what_ended_long_ago_is_forgotten_and_what_has_not_ended_is_not(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    for batch in ("ended", "begun"):
        ledger.begin(batch, TableName("a", "b", "c"), "uuid", "WRITE", "r")
    ledger.end("ended", 1)
    ledger.forget(before_ms=2**53)
    assert [left.batch for left in ledger.unfinished()] == ["begun"]
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        assert database.execute("SELECT batch FROM mutations").fetchall() == [("begun",)]
