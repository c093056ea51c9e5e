"""The ledger: what was begun is noted before, what came of it after, and both outlive the process."""

import sqlite3
import threading
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.schema import CreateTable

from service.errors import LedgerUnavailable
from service.ledger.ledger import Batch, KeyRecord, Ledger, NewBatch, delete_old_records, open_ledger
from service.ledger.schema import LAYOUT, metadata
from service.ledger.undo_records import UndoRecords
from service.model.names import TableName
from service.model.times import HOUR_MS
from service.settings import Settings, load
from tests.fakes import QuickLedger

ORDERS = TableName("acme", "shop", "orders")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return opened(path)


def opened(path: Path) -> Ledger:
    return QuickLedger(f"sqlite:///{path}")


def started(batch: str, table_uuid: str = "uuid-1", **expected: Any) -> NewBatch:
    return NewBatch(batch, ORDERS, table_uuid, "WRITE", **{"request_ids": ["r"], **expected})


def noted(path: Path, batch: str) -> tuple[str, int | None]:
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT state, snapshot_id FROM batches WHERE batch = ?", (batch,)).fetchone()
    return (row[0], row[1])


def kept(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(row[0] for row in database.execute(f"SELECT {'id' if table == 'keys' else 'batch'} FROM {table}"))


def aged(path: Path, table: str, column: str, hours: int) -> None:
    """Make every note of a table so much older."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE {table} SET {column} = {column} - ?", (hours * HOUR_MS,))
        database.commit()


def test_what_was_begun_is_unfinished_until_its_end_is_noted(ledger: Ledger, path: Path) -> None:
    ledger.begin(started("one", request_ids=["r1", "r2"], records=7))
    ledger.begin(NewBatch("two", ORDERS, "uuid-1", "DELETE", ["r3"]))
    me = ledger.owners.me
    one = Batch("one", ORDERS, "uuid-1", "WRITE", "begun", None, 2, 7, me)
    assert ledger.unfinished() == [one, Batch("two", ORDERS, "uuid-1", "DELETE", "begun", None, 1, 0, me)]
    ledger.end("one", 2**63 - 1)
    ledger.end("two", None)
    assert ledger.unfinished() == []
    assert (noted(path, "one"), noted(path, "two")) == (("done", 2**63 - 1), ("void", None))


def test_a_batch_is_found_as_it_was_noted(ledger: Ledger) -> None:
    ledger.begin(started("one", request_ids=["r1", "r2"], records=2**40))
    me = ledger.owners.me
    assert ledger.find("one") == Batch("one", ORDERS, "uuid-1", "WRITE", "begun", None, 2, 2**40, me)
    ledger.end("one", 5)
    assert ledger.find("one") == Batch("one", ORDERS, "uuid-1", "WRITE", "done", 5, 2, 2**40, me)
    assert ledger.find("two") is None


def test_notes_outlive_the_ledger_that_wrote_them(path: Path) -> None:
    first = opened(path)
    first.begin(started("one", keys={"k": "print"}))
    first.count_writes("uuid-1", 4)
    first.close()
    second = opened(path)
    assert [(left.batch, left.owner) for left in second.unfinished()] == [("one", first.owners.me)]
    assert second.owners.gone(first.owners.me)
    assert second.key("k") == KeyRecord("print", "one", None, "begun", first.owners.me)
    assert second.writes("uuid-1") == 4


def test_a_batch_is_noted_once(ledger: Ledger) -> None:
    ledger.begin(started("one"))
    with pytest.raises(LedgerUnavailable):
        ledger.begin(started("one", keys={"k": "print"}))
    assert len(ledger.unfinished()) == 1
    assert ledger.key("k") is None, "a note is written whole or not at all"


def test_a_long_request_id_is_kept_whole(ledger: Ledger, path: Path) -> None:
    ledger.begin(started("one", request_ids=["r" * 1000, "s"]))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT request_ids FROM batches").fetchall() == [("r" * 1000 + "\ns",)]


class TestKeys:
    """A key is noted with its batch and answered with its end; a new attempt takes it over from one that failed."""

    def test_a_key_is_noted_with_its_batch_and_its_answer_with_the_end(self, ledger: Ledger) -> None:
        me = ledger.owners.me
        ledger.begin(started("one", keys={"k1": "print 1", "k2": "print 2"}))
        assert ledger.key("k1") == KeyRecord("print 1", "one", None, "begun", me)
        ledger.end("one", 5, {"k2": b'{"success": true}\n'})
        assert ledger.key("k1") == KeyRecord("print 1", "one", None, "done", me)
        assert ledger.key("k2") == KeyRecord("print 2", "one", b'{"success": true}\n', "done", me)
        assert ledger.key("k3") is None

    def test_a_batch_may_hold_more_keys_than_a_statement_takes_values(self, ledger: Ledger) -> None:
        prints = {f"k{i}": f"print {i}" for i in range(1201)}
        ledger.begin(started("one", keys=prints))
        ledger.begin(started("two", keys=prints))
        ledger.end("two", 5, {key: key.encode() for key in prints})
        for i in (0, 500, 1200):
            assert ledger.key(f"k{i}") == KeyRecord(f"print {i}", "two", f"k{i}".encode(), "done", ledger.owners.me)

    def test_a_key_goes_with_its_next_attempt(self, ledger: Ledger) -> None:
        ledger.begin(started("one", keys={"k1": "print 1", "k2": "print 2"}))
        ledger.end("one", None)
        ledger.begin(started("two", keys={"k1": "print 1"}))
        assert ledger.key("k1") == KeyRecord("print 1", "two", None, "begun", ledger.owners.me)
        assert ledger.key("k2") == KeyRecord("print 2", "one", None, "void", ledger.owners.me)

    def test_an_answer_is_kept_whether_or_not_its_key_was_noted_before(self, ledger: Ledger) -> None:
        ledger.begin(started("one", keys={"k1": "print 1"}))
        ledger.answer("k1", "print 1", b"first")
        ledger.answer("k2", "print 2", b"second")
        assert ledger.key("k1") == KeyRecord("print 1", "one", b"first", "begun", ledger.owners.me)
        assert ledger.key("k2") == KeyRecord("print 2", None, b"second", None, None)

    def test_the_first_answer_is_kept_and_given(self, ledger: Ledger) -> None:
        """Whoever comes to another one says what was said before."""
        assert [ledger.answer("k", "print", body) for body in (b"first", b"second")] == [b"first", b"first"]
        known = ledger.key("k")
        assert known
        assert known.answer == b"first"

    def test_an_answer_of_any_bytes_and_size_is_kept_as_it_was(self, ledger: Ledger) -> None:
        body = bytes(range(256)) * 8192
        ledger.answer("k", "print", body)
        known = ledger.key("k")
        assert known
        assert known.answer == body


class TestWhatMustStay:
    """Which snapshots of a table answers are still made from."""

    def test_a_snapshot_is_awaited_until_every_key_of_its_batch_is_answered(self, ledger: Ledger) -> None:
        ledger.begin(started("one", keys={"k1": "p", "k2": "p"}))
        assert ledger.snapshots_awaiting_response("uuid-1") == set()
        ledger.end("one", 5)
        assert ledger.snapshots_awaiting_response("uuid-1") == {5}
        ledger.answer("k1", "p", b"a")
        assert ledger.snapshots_awaiting_response("uuid-1") == {5}
        ledger.answer("k2", "p", b"a")
        assert ledger.snapshots_awaiting_response("uuid-1") == set()

    def test_neither_without_a_key_nor_of_another_table_nor_of_what_came_to_nothing(self, ledger: Ledger) -> None:
        ledger.begin(started("no key"))
        ledger.end("no key", 5)
        ledger.begin(started("void", keys={"k1": "p"}))
        ledger.end("void", None)
        ledger.begin(started("answered", keys={"k2": "p"}))
        ledger.end("answered", 6, {"k2": b"a"})
        ledger.begin(started("elsewhere", "uuid-2", keys={"k3": "p"}))
        ledger.end("elsewhere", 7)
        assert ledger.snapshots_awaiting_response("uuid-1") == set()
        assert ledger.snapshots_awaiting_response("uuid-2") == {7}


class TestWrites:
    """How many WRITEs a table has had: all that were noted, by whomever."""

    def test_they_are_counted_by_table(self, ledger: Ledger) -> None:
        assert ledger.writes("a") == 0
        ledger.count_writes("a", 3)
        ledger.count_writes("b", 1)
        ledger.count_writes("a", 4)
        assert (ledger.writes("a"), ledger.writes("b")) == (7, 1)

    def test_they_may_come_with_the_end_of_a_batch(self, ledger: Ledger) -> None:
        for batch, writes in (("one", 12), ("two", 3)):
            ledger.begin(started(batch))
            ledger.end(batch, 5, None, ("uuid-1", writes))
        assert ledger.writes("uuid-1") == 15

    def test_those_of_several_threads_and_instances_add_up(self, path: Path) -> None:
        ledgers = [opened(path), opened(path)]

        def count(thread: int) -> None:
            for i in range(10):
                ledgers[thread % 2].count_writes("a", i)

        threads = [threading.Thread(target=count, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert [ledger.writes("a") for ledger in ledgers] == [4 * 45] * 2


class TestForgetting:
    """What is past its time goes; what has not ended, and what an answer may still be made from, stays."""

    def test_what_ended_long_ago_goes_and_what_has_not_ended_does_not(self, ledger: Ledger, path: Path) -> None:
        for batch in ("ended", "void", "begun"):
            ledger.begin(started(batch))
        ledger.end("ended", 1)
        ledger.end("void", None)
        ledger.forget(2**53, 0)
        assert kept(path, "batches") == ["begun"]

    def test_an_old_key_goes_with_or_without_an_answer(self, ledger: Ledger, path: Path) -> None:
        ledger.begin(started("one", keys={"answered": "p", "not": "p"}))
        ledger.end("one", 1, {"answered": b"a"})
        ledger.answer("without a batch", "p", b"a")
        ledger.forget(0, 0)
        assert len(kept(path, "keys")) == 3
        ledger.forget(0, 2**53)
        assert kept(path, "keys") == []

    def test_but_not_while_nobody_knows_what_became_of_its_batch(self, ledger: Ledger, path: Path) -> None:
        """It would be a new request then, and its change might be made twice."""
        ledger.begin(started("one", keys={"k": "p"}))
        ledger.forget(2**53, 2**53)
        assert (kept(path, "keys"), kept(path, "batches")) == (["k"], ["one"])

    def test_a_key_is_kept_for_as_long_as_the_setting_says(self, ledger: Ledger, path: Path) -> None:
        settings = settings_with(idempotency_key_retention_hours=30)
        ledger.answer("old", "p", b"a")
        aged(path, "keys", "noted_ms", 1)
        ledger.answer("young", "p", b"a")
        aged(path, "keys", "noted_ms", 29)
        delete_old_records(ledger, settings)
        assert kept(path, "keys") == ["young"]

    @pytest.mark.parametrize("hours", [24, 30 * 24, 8760])
    def test_a_key_never_outlives_the_note_of_its_batch(self, ledger: Ledger, path: Path, hours: int) -> None:
        """A key whose batch is not known any more would make its change a second time."""
        ledger.begin(started("one", keys={"k": "p"}))
        ledger.end("one", 1)
        for table, column in (("batches", "ended_ms"), ("keys", "noted_ms")):
            aged(path, table, column, hours - 1)
        delete_old_records(ledger, settings_with(idempotency_key_retention_hours=hours))
        assert (kept(path, "keys"), kept(path, "batches")) == (["k"], ["one"])

    def test_notes_of_changes_without_a_snapshot_are_kept_for_a_month(self, ledger: Ledger, path: Path) -> None:
        for batch, snapshot_id in (("void", None), ("made", 0)):
            ledger.begin(started(batch))
            ledger.end(batch, snapshot_id)
        for hours, left in ((30 * 24 - 1, ["made", "void"]), (2, [])):
            aged(path, "batches", "ended_ms", hours)
            delete_old_records(ledger, Settings())
            assert kept(path, "batches") == left

    def test_the_last_changes_of_each_table_are_kept_for_a_year(
        self, ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its history names the requests of snapshots that have not expired."""
        monkeypatch.setattr("service.ledger.ledger._LAST", 3)
        for number in range(5):
            ledger.begin(started(f"many-{number}", "uuid-many"))
            ledger.end(f"many-{number}", number + 1)
            aged(path, "batches", "ended_ms", 1)
        ledger.begin(started("few", "uuid-few"))
        ledger.end("few", 1)
        aged(path, "batches", "ended_ms", 30 * 24)
        delete_old_records(ledger, Settings())
        assert kept(path, "batches") == ["few", "many-2", "many-3", "many-4"]
        aged(path, "batches", "ended_ms", 336 * 24 - 2)
        delete_old_records(ledger, Settings())
        assert kept(path, "batches") == ["few", "many-4"]


def settings_with(idempotency_key_retention_hours: int) -> Settings:
    return load({"FIRN_LIMITS__IDEMPOTENCY_KEY_RETENTION_HOURS": str(idempotency_key_retention_hours)})


def test_notes_made_side_by_side_are_all_kept(path: Path) -> None:
    """From many threads and two connections; writers wait for each other, and readers for nobody."""
    ledgers = [opened(path), opened(path)]

    def note(thread: int) -> None:
        for i in range(10):
            batch = f"{thread}-{i}"
            ledgers[thread % 2].begin(started(batch, keys={batch: "p"}))
            ledgers[1 - thread % 2].end(batch, i, {batch: b"a"})

    threads = [threading.Thread(target=note, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(kept(path, "batches")) == len(kept(path, "keys")) == 40
    assert ledgers[0].unfinished() == []


def test_changes_of_one_kind_are_found_among_others(ledger: Ledger) -> None:
    for batch, operation in (("one", "WRITE"), ("two", "DEDUPLICATE"), ("three", "DEDUPLICATE")):
        ledger.begin(NewBatch(batch, ORDERS, "uuid-1", operation, ["r"]))
    assert UndoRecords(ledger).among("DEDUPLICATE", ["one", "two", "gone"]) == {"two"}


def test_a_reader_does_not_wait_for_a_writer(ledger: Ledger) -> None:
    ledger.begin(started("one", keys={"k": "p"}))
    with ledger._writing() as connection:
        connection.exec_driver_sql("DELETE FROM keys")
        assert ledger.key("k") == KeyRecord("p", "one", None, "begun", ledger.owners.me)
    assert ledger.key("k") is None


def test_notes_are_safe_on_disk_when_a_call_returns(path: Path) -> None:
    """WAL and synchronous=FULL: another process sees the note, and a crash of the machine does not lose it."""
    ledger = Ledger(f"sqlite:///{path}")
    ledger.begin(started("one"))
    assert noted(path, "one") == ("begun", None)
    with ledger._engine.connect() as connection:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    assert (journal, synchronous) == ("wal", 2)


def test_a_ledger_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="unable to open database file"):
        Ledger(f"sqlite:///{tmp_path}/nowhere/ledger.db")


def test_a_ledger_that_is_no_database_says_so(path: Path) -> None:
    path.write_text("this is no database, whatever its name says" * 100)
    with pytest.raises(LedgerUnavailable, match="not a database"):
        Ledger(f"sqlite:///{path}")


@pytest.mark.parametrize("number", [None, 7])
def test_a_ledger_of_another_layout_is_refused_in_one_line(path: Path, number: int | None) -> None:
    Ledger(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE layout" if number is None else f"UPDATE layout SET number = {number}")
        database.commit()
    with pytest.raises(LedgerUnavailable) as refused:
        Ledger(f"sqlite:///{path}")
    assert f"its layout is {number or 'unknown'}, this version needs {LAYOUT}" in refused.value.message
    assert "\n" not in refused.value.message


def test_whoever_changes_a_table_changes_the_number_of_the_layout() -> None:
    statements = "".join(str(CreateTable(table)) for table in metadata.sorted_tables)
    assert (LAYOUT, zlib.crc32(statements.encode())) == (4, 646492471), "the tables have changed: add 1 to LAYOUT"


def test_by_default_it_lies_under_home_and_opening_it_tidies_it(tmp_path: Path) -> None:
    settings = load({"FIRN_HOME": str(tmp_path)})
    first = open_ledger(settings)
    first.answer("old", "p", b"a")
    first.close()
    aged(tmp_path / "ledger.db", "keys", "noted_ms", 25)
    open_ledger(settings).close()
    assert kept(tmp_path / "ledger.db", "keys") == []
