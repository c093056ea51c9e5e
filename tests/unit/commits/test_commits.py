"""A change: in its turn, noted before, stamped, and looked up before anything is said of it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from service.catalog.tables import Table
from service.commits.batches import MAKE
from service.commits.commit import TRIES, CommitFunction
from service.errors import (
    CatalogUnavailable,
    CommitConflict,
    EngineUnavailable,
    FirnError,
    InvalidQuery,
    LedgerUnavailable,
    OutcomeUnknown,
    TableNotFound,
)
from service.ledger.schema import batches
from service.ledger.table_records import DROP
from service.model.call import Call
from service.model.names import BATCH_PROPERTY, TableName, dropped_table_name
from tests.harness import wait_until
from tests.unit.desk import ASK, NEW, ORDERS, OTHERS, SCHEMA, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "ledger.db")


def test_a_change_is_noted_before_it_is_tried_and_its_snapshot_after(desk: Desk) -> None:
    def change(table: Table, batch: str) -> None:
        assert [m.batch for m in desk.ledger.unfinished()] == [batch]
        desk.append(table, batch)

    effect = desk.commits.commit(desk.catalog.load(ORDERS), "WRITE", ASK, change)
    assert effect.snapshot
    assert effect.snapshot_id == effect.snapshot.snapshot_id == effect.after.current_snapshot_id
    assert desk.notes() == [("done", effect.snapshot.snapshot_id)]


def test_an_effect_without_a_snapshot_is_held_by_the_current_one(desk: Desk) -> None:
    current = desk.run(desk.append)
    effect = desk.commits.commit(desk.catalog.load(ORDERS), "DELETE", ASK, lambda table, batch: None)
    assert (effect.snapshot, effect.snapshot_id) == (None, current)


def test_a_note_says_who_asked_for_what(desk: Desk) -> None:
    desk.commits.commit(desk.catalog.load(ORDERS), "UPSERT", Call("r" * 1000), desk.append)
    with desk.ledger._engine.connect() as connection:
        row = connection.execute(select(batches)).one()
    assert (row.tenant, row.namespace, row.table_name, row.operation) == ("acme", "shop", "orders", "UPSERT")
    assert (row.table_uuid, row.requests, row.request_ids) == (desk.catalog.tables[ORDERS].uuid, 1, "r" * 200)


def test_a_change_that_commits_nothing_is_void(desk: Desk) -> None:
    assert desk.run(lambda table, batch: None) is None
    assert desk.notes() == [("void", None)]


def test_anothers_commit_meanwhile_is_not_taken_for_ours(desk: Desk) -> None:
    def change(table: Table, batch: str) -> None:
        desk.append(table, batch)
        desk.append(table, "another's")

    ours = desk.run(change)
    assert desk.catalog.tables[ORDERS].history[0].snapshot_id == ours


def test_who_listens_is_told_of_every_commit_and_of_nothing_else(desk: Desk) -> None:
    told: list[tuple[TableName, str]] = []
    desk.commits.when_committed(lambda name, uuid: told.append((name, uuid)))
    desk.run(desk.append)
    desk.run(lambda table, batch: None)
    with pytest.raises(InvalidQuery):
        desk.run(fail_with(InvalidQuery("no")))
    desk.run(desk.append, OTHERS)
    assert told == [(name, desk.catalog.tables[name].uuid) for name in (ORDERS, OTHERS)]


def fail_with(failure: Exception) -> CommitFunction:
    def change(table: Table, batch: str) -> None:
        raise failure

    return change


@pytest.mark.parametrize("failure", [InvalidQuery("no"), EngineUnavailable("gone"), RuntimeError("a defect")])
def test_a_failure_before_the_commit_is_told_and_noted_void(desk: Desk, failure: Exception) -> None:
    def change(table: Table, batch: str) -> None:
        raise failure

    with pytest.raises(type(failure)) as told:
        desk.run(change)
    assert told.value is failure
    assert (desk.notes(), desk.history()) == ([("void", None)], 0)


@pytest.mark.parametrize(
    "failure", [EngineUnavailable("gone"), CommitConflict("beaten?"), OutcomeUnknown("who knows"), RuntimeError("?")]
)
def test_a_failure_after_the_commit_is_a_success(desk: Desk, failure: Exception) -> None:
    """Only the table's history says whether a commit happened; it happened once, so it is not tried again."""

    def change(table: Table, batch: str) -> None:
        desk.append(table, batch)
        raise failure

    made = desk.run(change)
    assert made is not None
    assert (desk.notes(), desk.history()) == ([("done", made)], 1)


def test_a_beaten_change_is_tried_again_on_the_new_table_with_a_stamp_of_its_own(desk: Desk) -> None:
    batches: list[str] = []

    def change(table: Table, batch: str) -> None:
        batches.append(batch)
        if len(batches) < 3:
            desk.append(table, "another's")
            raise CommitConflict("beaten")
        assert len(table.snapshots()) == 2
        desk.append(table, batch)

    made = desk.run(change)
    assert len(set(batches)) == 3
    assert sorted(desk.notes(), key=str) == [("done", made), ("void", None), ("void", None)]


def test_a_change_that_is_always_beaten_is_refused_in_the_end(desk: Desk) -> None:
    tries: list[str] = []

    def change(table: Table, batch: str) -> None:
        tries.append(batch)
        raise CommitConflict("beaten")

    with pytest.raises(CommitConflict):
        desk.run(change)
    assert len(tries) == TRIES
    assert desk.notes() == [("void", None)] * TRIES


def test_an_unknown_outcome_stays_unfinished_and_is_not_tried_again(desk: Desk) -> None:
    tries: list[str] = []

    def change(table: Table, batch: str) -> None:
        tries.append(batch)
        raise OutcomeUnknown("who knows")

    with pytest.raises(OutcomeUnknown):
        desk.run(change)
    assert (len(tries), [m.batch for m in desk.ledger.unfinished()]) == (1, tries)


@pytest.mark.parametrize("failure", [None, EngineUnavailable("gone")])
def test_a_catalog_that_is_silent_for_a_moment_is_asked_again(desk: Desk, failure: FirnError | None) -> None:
    def change(table: Table, batch: str) -> None:
        desk.append(table, batch)
        desk.catalog.failures = [CatalogUnavailable("silent")]
        if failure:
            raise failure

    made = desk.run(change)
    assert made is not None
    assert desk.notes() == [("done", made)]


@pytest.mark.parametrize("failure", [None, EngineUnavailable("gone")])
def test_a_catalog_that_is_silent_after_a_change_makes_its_outcome_unknown(
    desk: Desk, failure: FirnError | None
) -> None:
    def change(table: Table, batch: str) -> None:
        desk.append(table, batch)
        desk.catalog.failures = [CatalogUnavailable("silent") for _ in range(3)]
        if failure:
            raise failure

    with pytest.raises(OutcomeUnknown) as unknown:
        desk.run(change)
    [left] = desk.ledger.unfinished()
    assert unknown.value.details == {"batch": left.batch}
    assert desk.restarted().commits.batches.recover() == 1
    assert desk.notes() == [("done", desk.catalog.tables[ORDERS].current_snapshot_id)]


def test_a_ledger_that_is_silent_after_the_commit_does_not_make_a_failure_of_it(desk: Desk) -> None:
    """The commit is the effect and nothing else decides; the note is finished by the next start."""
    desk.ledger.mute = frozenset({"end"})
    made = desk.run(desk.append)
    assert made is not None
    assert desk.notes() == [("begun", None)]
    desk.ledger.mute = frozenset()
    assert desk.restarted().commits.batches.recover() == 1
    assert desk.notes() == [("done", made)]


def test_a_change_that_cannot_be_noted_is_not_tried(desk: Desk) -> None:
    desk.ledger.mute = frozenset({"begin"})
    with pytest.raises(LedgerUnavailable):
        desk.run(desk.append)
    assert (desk.notes(), desk.history()) == ([], 0)


def test_a_table_dropped_under_a_change_is_not_found_and_the_note_is_void(desk: Desk) -> None:
    def change(table: Table, batch: str) -> None:
        desk.catalog.drop(table, purge=False)
        raise TableNotFound("gone")

    with pytest.raises(TableNotFound):
        desk.run(change)
    assert desk.notes() == [("void", None)]


def test_a_missing_table_is_refused_before_anything_is_noted(desk: Desk) -> None:
    with pytest.raises(TableNotFound):
        desk.run(desk.append, TableName("acme", "shop", "never"))
    assert desk.notes() == []


class Overlap:
    """A change that takes a while, and how many ran at once."""

    def __init__(self, desk: Desk, stay: float = 0.02) -> None:
        self.desk = desk
        self.stay = stay
        self.inside = 0
        self.most = 0
        self.lock = threading.Lock()

    def __call__(self, table: Table, batch: str) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(self.stay)
        with self.lock:
            self.inside -= 1
        self.desk.append(table, batch)


def together(*calls: threading.Thread) -> None:
    for call in calls:
        call.start()
    for call in calls:
        call.join(20)
        assert not call.is_alive()


def test_changes_of_one_table_run_one_at_a_time(desk: Desk) -> None:
    change = Overlap(desk)
    together(*(threading.Thread(target=desk.run, args=(change,)) for _ in range(6)))
    assert (change.most, desk.history()) == (1, 6)


def test_changes_of_two_tables_run_side_by_side(desk: Desk) -> None:
    meet = threading.Barrier(2, timeout=30)

    def change(table: Table, batch: str) -> None:
        meet.wait()
        desk.append(table, batch)

    together(*(threading.Thread(target=desk.run, args=(change, name)) for name in (ORDERS, OTHERS)))
    assert (desk.history(ORDERS), desk.history(OTHERS)) == (1, 1)


def test_long_work_out_of_order_holds_up_no_change(desk: Desk) -> None:
    meet = threading.Barrier(2, timeout=30)

    def change(table: Table, batch: str) -> None:
        meet.wait()
        desk.append(table, batch)

    def long() -> None:
        desk.commits.commit(desk.catalog.load(ORDERS), "COMPACT", ASK, change, in_order=False)

    together(threading.Thread(target=long), threading.Thread(target=desk.run, args=(change,)))
    assert desk.history() == 2


def test_a_drop_waits_for_the_changes_before_it(desk: Desk) -> None:
    started, go_on = threading.Event(), threading.Event()

    def change(table: Table, batch: str) -> None:
        started.set()
        assert go_on.wait(30)
        assert ORDERS in desk.catalog.tables
        desk.append(table, batch)

    writing = threading.Thread(target=desk.run, args=(change,))
    dropping = threading.Thread(target=desk.life.drop, args=(ORDERS, ASK), kwargs={"purge": True})
    writing.start()
    assert started.wait(30)
    dropping.start()
    time.sleep(0.05)
    go_on.set()
    writing.join(30)
    dropping.join(30)
    assert desk.notes()[0][0] == "done"
    assert ORDERS not in desk.catalog.tables


class Waited:
    """Something that stood in a table's line while the change before it replaced the table by one of the same name."""

    def __init__(self, desk: Desk, act: Callable[[], object]) -> None:
        self.raised: FirnError | None = None
        started, go_on = threading.Event(), threading.Event()
        old = desk.catalog.tables[ORDERS].uuid

        def replace(table: Table, batch: str) -> None:
            started.set()
            assert go_on.wait(30)
            desk.catalog.drop(table, purge=False)
            desk.catalog.create(ORDERS, SCHEMA, (), {})

        def wait() -> None:
            try:
                act()
            except FirnError as e:
                self.raised = e

        def run() -> None:
            with suppress(TableNotFound):
                desk.run(replace)

        one, other = threading.Thread(target=run), threading.Thread(target=wait)
        one.start()
        assert started.wait(30)
        other.start()
        wait_until(lambda: len(desk.commits.locks._queues.get(old, ())) == 2, 5, every=0.001)
        go_on.set()
        one.join(30)
        other.join(30)


def test_a_change_that_waited_while_its_table_was_replaced_leaves_the_new_one_alone(desk: Desk) -> None:
    """It was checked against the old table's columns."""
    waited = Waited(desk, lambda: desk.run(desk.append))
    assert isinstance(waited.raised, TableNotFound)
    assert desk.history() == 0


def test_a_drop_that_waited_while_its_table_was_replaced_leaves_the_new_one_alone(desk: Desk) -> None:
    waited = Waited(desk, lambda: desk.life.drop(ORDERS, ASK, purge=True))
    assert isinstance(waited.raised, TableNotFound)
    assert ORDERS in desk.catalog.tables


def test_recovery_asks_the_history_what_became_of_each_note(desk: Desk) -> None:
    for batch, name in (("came", ORDERS), ("did not", ORDERS), ("elsewhere", OTHERS)):
        desk.begin(batch, name, desk.catalog.tables[name].uuid)
    came = desk.catalog.append(ORDERS, "came")
    later = desk.restarted()
    assert later.commits.batches.recover() == 3
    assert sorted(desk.notes(), key=str) == [("done", came), ("void", None), ("void", None)]
    assert later.commits.batches.recover() == 0


def test_recovery_leaves_alone_what_this_process_is_at(desk: Desk) -> None:
    """It may be committed at any moment: nothing may be said of it yet."""
    desk.begin("b1", ORDERS, desk.catalog.tables[ORDERS].uuid)
    assert desk.commits.batches.recover() == 0
    assert desk.notes() == [("begun", None)]


def test_recovery_knows_that_a_table_of_the_same_name_is_another(desk: Desk) -> None:
    desk.begin("came", ORDERS, desk.catalog.tables[ORDERS].uuid)
    desk.begin("lost", TableName("acme", "shop", "gone"), "no-uuid")
    desk.catalog.drop(desk.catalog.load(ORDERS), purge=False)
    desk.catalog.create(ORDERS, SCHEMA, (), {})
    desk.catalog.append(ORDERS, "came")
    assert desk.restarted().commits.batches.recover() == 2
    assert desk.notes() == [("void", None)] * 2


def test_recovery_leaves_a_note_it_cannot_ask_about(desk: Desk) -> None:
    """A catalog that is silent at start-up says nothing of what happened, and keeps nobody from being served."""
    for batch in ("b1", "b2"):
        desk.begin(batch, ORDERS, desk.catalog.tables[ORDERS].uuid)
    desk.catalog.failures = [CatalogUnavailable("silent")]
    assert desk.restarted().commits.batches.recover() == 2
    assert len(desk.ledger.unfinished()) == 1


def test_recovery_knows_a_table_by_the_batch_it_was_made_in(desk: Desk) -> None:
    desk.begin("made", NEW, "", MAKE)
    desk.begin("not made", ORDERS, "", MAKE)
    desk.begin("nor this", TableName("acme", "shop", "never"), "", MAKE)
    desk.catalog.create(NEW, SCHEMA, (), {BATCH_PROPERTY: "made"})
    assert desk.restarted().commits.batches.recover() == 3
    found = {batch: desk.ledger.find(batch) for batch in ("made", "not made", "nor this")}
    assert {batch: noted and noted.state for batch, noted in found.items()} == {
        "made": "done",
        "not made": "void",
        "nor this": "void",
    }


@pytest.mark.parametrize("made_again", [False, True])
def test_recovery_knows_that_a_drop_happened_by_the_table_being_where_dropped_ones_are(
    desk: Desk, made_again: bool
) -> None:
    dropped = desk.catalog.load(ORDERS)
    desk.begin("dropped", ORDERS, dropped.uuid, DROP)
    desk.begin("still there", OTHERS, desk.catalog.tables[OTHERS].uuid, DROP)
    desk.catalog.rename(dropped, dropped_table_name(dropped.uuid))
    if made_again:
        desk.catalog.create(ORDERS, SCHEMA, (), {})
    assert desk.restarted().commits.batches.recover() == 2
    found = [desk.ledger.find(batch) for batch in ("dropped", "still there")]
    assert [noted and noted.state for noted in found] == ["done", "void"]
