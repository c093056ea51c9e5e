"""Repartitions under way are known to whoever starts after an end that nobody expected."""

from pathlib import Path

from service.ledger.repartitions import RepartitionNote, RepartitionNotes
from service.names import TableName
from tests.fakes import FakeOwners, MuteLedger

TABLE = TableName("acme", "shop", "orders")
NEW = TableName("acme", "shop", "new")


def note(id: str, target: TableName | None = None, begun_ms: int = 1) -> RepartitionNote:
    return RepartitionNote(id, TABLE, "uuid-1", target, f"file:///data/{id}", begun_ms)


def test_what_an_instance_left_behind_is_found_by_the_next_and_what_ended_is_not(tmp_path: Path) -> None:
    before = MuteLedger(f"sqlite:///{tmp_path}/ledger.db")
    notes = RepartitionNotes(before)
    notes.begin(note("second", NEW, 2))
    notes.begin(note("first"))
    notes.begin(note("ended"))
    notes.end("ended")
    assert notes.left() == []  # they are under way
    after = RepartitionNotes(MuteLedger(f"sqlite:///{tmp_path}/ledger.db"))
    found = after.left()
    assert [(n.id, n.table, n.target, n.folder, n.table_uuid) for n in found] == [
        ("first", TABLE, None, "file:///data/first", "uuid-1"),
        ("second", TABLE, NEW, "file:///data/second", "uuid-1"),
    ]
    after.end("first")
    after.end("second")
    assert after.left() == []


def test_what_an_instance_that_is_there_works_on_is_its_own_affair(tmp_path: Path) -> None:
    owners = FakeOwners("one")
    ledgers = [MuteLedger(f"sqlite:///{tmp_path}/ledger.db") for _ in range(2)]
    ledgers[0].owners, ledgers[1].owners = owners, owners.beside("two")
    RepartitionNotes(ledgers[0]).begin(note("its"))
    assert RepartitionNotes(ledgers[1]).left() == []
    owners.close()
    assert [n.id for n in RepartitionNotes(ledgers[1]).left()] == ["its"]
