"""A change: in its turn, noted before, stamped, and looked up before anything is said of it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from service.catalog.tables import Table
from service.commits.batches import MAKE
from service.commits.commit import TRIES, AlsoRecorded, CommitFunction, CommitResult
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
from service.ledger.ledger import Transaction
from service.ledger.schema import batches
from service.ledger.table_records import DROP
from service.model.call import Call
from service.model.names import BATCH_PROPERTY, TableName, dropped_table_name
from tests.harness import wait_until
from tests.unit.commit_setup import ASK, NEW, ORDERS, OTHERS, SCHEMA, CommitSetup


@pytest.fixture
def setup(tmp_path: Path) -> CommitSetup:
    return CommitSetup(tmp_path / "ledger.db")


def test_a_change_is_noted_before_it_is_tried_and_its_snapshot_after(setup: CommitSetup) -> None:
    def change(table: Table, batch: str) -> None:
        assert [m.batch for m in setup.ledger.unfinished()] == [batch]
        setup.append(table, batch)

    effect = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", ASK, change)
    assert effect.snapshot
    assert effect.snapshot_id == effect.snapshot.snapshot_id == effect.after.current_snapshot_id
    assert setup.notes() == [("done", effect.snapshot.snapshot_id)]


def test_an_effect_without_a_snapshot_is_held_by_the_current_one(setup: CommitSetup) -> None:
    current = setup.run(setup.append)
    effect = setup.commits.commit(setup.catalog.load(ORDERS), "DELETE", ASK, lambda table, batch: None)
    assert (effect.snapshot, effect.snapshot_id) == (None, current)


def test_a_note_says_who_asked_for_what(setup: CommitSetup) -> None:
    setup.commits.commit(setup.catalog.load(ORDERS), "UPSERT", Call("r" * 1000), setup.append)
    with setup.ledger._engine.connect() as connection:
        row = connection.execute(select(batches)).one()
    assert (row.tenant, row.namespace, row.table_name, row.operation) == ("acme", "shop", "orders", "UPSERT")
    assert (row.table_uuid, row.requests, row.request_ids) == (setup.catalog.tables[ORDERS].uuid, 1, "r" * 200)


def test_a_change_that_commits_nothing_is_void(setup: CommitSetup) -> None:
    assert setup.run(lambda table, batch: None) is None
    assert setup.notes() == [("void", None)]


def test_anothers_commit_meanwhile_is_not_taken_for_ours(setup: CommitSetup) -> None:
    def change(table: Table, batch: str) -> None:
        setup.append(table, batch)
        setup.append(table, "another's")

    ours = setup.run(change)
    assert setup.catalog.tables[ORDERS].history[0].snapshot_id == ours


def test_who_listens_is_told_of_every_commit_and_of_nothing_else(setup: CommitSetup) -> None:
    result: list[tuple[TableName, str]] = []
    setup.commits.when_committed(lambda name, uuid: result.append((name, uuid)))
    setup.run(setup.append)
    setup.run(lambda table, batch: None)
    with pytest.raises(InvalidQuery):
        setup.run(fail_with(InvalidQuery("no")))
    setup.run(setup.append, OTHERS)
    assert result == [(name, setup.catalog.tables[name].uuid) for name in (ORDERS, OTHERS)]


def fail_with(failure: Exception) -> CommitFunction:
    def change(table: Table, batch: str) -> None:
        raise failure

    return change


@pytest.mark.parametrize("failure", [InvalidQuery("no"), EngineUnavailable("gone"), RuntimeError("a defect")])
def test_a_failure_before_the_commit_is_told_and_noted_void(setup: CommitSetup, failure: Exception) -> None:
    def change(table: Table, batch: str) -> None:
        raise failure

    with pytest.raises(type(failure)) as result:
        setup.run(change)
    assert result.value is failure
    assert (setup.notes(), setup.history()) == ([("void", None)], 0)


@pytest.mark.parametrize(
    "failure", [EngineUnavailable("gone"), CommitConflict("beaten?"), OutcomeUnknown("who knows"), RuntimeError("?")]
)
def test_a_failure_after_the_commit_is_a_success(setup: CommitSetup, failure: Exception) -> None:
    """Only the table's history says whether a commit happened; it happened once, so it is not tried again."""

    def change(table: Table, batch: str) -> None:
        setup.append(table, batch)
        raise failure

    made = setup.run(change)
    assert made is not None
    assert (setup.notes(), setup.history()) == ([("done", made)], 1)


def test_a_beaten_change_is_tried_again_on_the_new_table_with_a_stamp_of_its_own(setup: CommitSetup) -> None:
    batches: list[str] = []

    def change(table: Table, batch: str) -> None:
        batches.append(batch)
        if len(batches) < 3:
            setup.append(table, "another's")
            raise CommitConflict("beaten")
        assert len(table.snapshots()) == 2
        setup.append(table, batch)

    made = setup.run(change)
    assert len(set(batches)) == 3
    assert sorted(setup.notes(), key=str) == [("done", made), ("void", None), ("void", None)]


def test_a_change_that_is_always_beaten_is_refused_in_the_end(setup: CommitSetup) -> None:
    tries: list[str] = []

    def change(table: Table, batch: str) -> None:
        tries.append(batch)
        raise CommitConflict("beaten")

    with pytest.raises(CommitConflict):
        setup.run(change)
    assert len(tries) == TRIES
    assert setup.notes() == [("void", None)] * TRIES


def test_an_unknown_outcome_stays_unfinished_and_is_not_tried_again(setup: CommitSetup) -> None:
    tries: list[str] = []

    def change(table: Table, batch: str) -> None:
        tries.append(batch)
        raise OutcomeUnknown("who knows")

    with pytest.raises(OutcomeUnknown):
        setup.run(change)
    assert (len(tries), [m.batch for m in setup.ledger.unfinished()]) == (1, tries)


@pytest.mark.parametrize("failure", [None, EngineUnavailable("gone")])
def test_a_catalog_that_is_silent_for_a_moment_is_asked_again(setup: CommitSetup, failure: FirnError | None) -> None:
    def change(table: Table, batch: str) -> None:
        setup.append(table, batch)
        setup.catalog.failures = [CatalogUnavailable("silent")]
        if failure:
            raise failure

    made = setup.run(change)
    assert made is not None
    assert setup.notes() == [("done", made)]


@pytest.mark.parametrize("failure", [None, EngineUnavailable("gone")])
def test_a_catalog_that_is_silent_after_a_change_makes_its_outcome_unknown(
    setup: CommitSetup, failure: FirnError | None
) -> None:
    def change(table: Table, batch: str) -> None:
        setup.append(table, batch)
        setup.catalog.failures = [CatalogUnavailable("silent") for _ in range(3)]
        if failure:
            raise failure

    with pytest.raises(OutcomeUnknown) as unknown:
        setup.run(change)
    [left] = setup.ledger.unfinished()
    assert unknown.value.details == {"batch": left.batch}
    assert setup.restarted().commits.batches.recover() == 1
    assert setup.notes() == [("done", setup.catalog.tables[ORDERS].current_snapshot_id)]


def test_a_ledger_that_is_silent_after_the_commit_does_not_make_a_failure_of_it(setup: CommitSetup) -> None:
    """The commit is the effect and nothing else decides; the note is finished by the next start."""
    setup.ledger.mute = frozenset({"end"})
    made = setup.run(setup.append)
    assert made is not None
    assert setup.notes() == [("begun", None)]
    setup.ledger.mute = frozenset()
    assert setup.restarted().commits.batches.recover() == 1
    assert setup.notes() == [("done", made)]


def test_what_is_recorded_with_a_change_is_recorded_with_its_batch_and_with_its_end(setup: CommitSetup) -> None:
    seen: list[object] = []

    def record(what: object, transaction: Transaction) -> None:
        at = transaction.connection.execute(select(batches.c.state)).scalars().all()
        seen.append((what, at))

    made = setup.run_also(AlsoRecorded(record, record))
    [(batch, begun), (ended, done)] = seen
    assert (begun, done) == (["begun"], ["done"])
    assert made == replace(ended, recorded=True)
    assert made.snapshot is not None
    assert setup.catalog.load(ORDERS).committed_by(batch) == made.snapshot


def test_what_is_recorded_with_an_end_is_recorded_even_without_a_snapshot(setup: CommitSetup) -> None:
    ended: list[CommitResult] = []
    also = AlsoRecorded(lambda batch, _: None, lambda made, _: ended.append(made))
    made = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", ASK, lambda table, batch: None, also=also)
    assert made.snapshot is None
    assert ended == [made]
    assert setup.notes() == [("void", None)]


def test_a_change_is_not_tried_if_what_belongs_to_it_cannot_be_recorded(setup: CommitSetup) -> None:
    def refuse(batch: str, transaction: Transaction) -> None:
        raise InvalidQuery("no")

    with pytest.raises(InvalidQuery):
        setup.run_also(AlsoRecorded(refuse, lambda made, _: None))
    assert (setup.notes(), setup.history()) == ([], 0)


def test_an_end_that_cannot_be_recorded_with_what_belongs_to_it_is_found_later(setup: CommitSetup) -> None:
    def fail(made: CommitResult, transaction: Transaction) -> None:
        raise LedgerUnavailable("the disk is full")

    made = setup.run_also(AlsoRecorded(lambda batch, _: None, fail))
    assert made.snapshot is not None
    assert not made.recorded
    assert setup.notes() == [("begun", None)]
    setup.commits.batches.resolve()
    assert setup.notes() == [("done", made.snapshot_id)]


def test_a_change_that_cannot_be_noted_is_not_tried(setup: CommitSetup) -> None:
    setup.ledger.mute = frozenset({"begin"})
    with pytest.raises(LedgerUnavailable):
        setup.run(setup.append)
    assert (setup.notes(), setup.history()) == ([], 0)


def test_a_table_dropped_under_a_change_is_not_found_and_the_note_is_void(setup: CommitSetup) -> None:
    def change(table: Table, batch: str) -> None:
        setup.catalog.drop(table, purge=False)
        raise TableNotFound("gone")

    with pytest.raises(TableNotFound):
        setup.run(change)
    assert setup.notes() == [("void", None)]


def test_a_missing_table_is_refused_before_anything_is_noted(setup: CommitSetup) -> None:
    with pytest.raises(TableNotFound):
        setup.run(setup.append, TableName("acme", "shop", "never"))
    assert setup.notes() == []


class Overlap:
    """A change that takes a while, and how many ran at once."""

    def __init__(self, setup: CommitSetup, stay: float = 0.02) -> None:
        self.setup = setup
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
        self.setup.append(table, batch)


def together(*calls: threading.Thread) -> None:
    for call in calls:
        call.start()
    for call in calls:
        call.join(20)
        assert not call.is_alive()


def test_changes_of_one_table_run_one_at_a_time(setup: CommitSetup) -> None:
    change = Overlap(setup)
    together(*(threading.Thread(target=setup.run, args=(change,)) for _ in range(6)))
    assert (change.most, setup.history()) == (1, 6)


def test_changes_of_two_tables_run_side_by_side(setup: CommitSetup) -> None:
    meet = threading.Barrier(2, timeout=30)

    def change(table: Table, batch: str) -> None:
        meet.wait()
        setup.append(table, batch)

    together(*(threading.Thread(target=setup.run, args=(change, name)) for name in (ORDERS, OTHERS)))
    assert (setup.history(ORDERS), setup.history(OTHERS)) == (1, 1)


def test_long_work_out_of_order_holds_up_no_change(setup: CommitSetup) -> None:
    meet = threading.Barrier(2, timeout=30)

    def change(table: Table, batch: str) -> None:
        meet.wait()
        setup.append(table, batch)

    def long() -> None:
        setup.commits.commit(setup.catalog.load(ORDERS), "COMPACT", ASK, change, in_order=False)

    together(threading.Thread(target=long), threading.Thread(target=setup.run, args=(change,)))
    assert setup.history() == 2


def test_a_drop_waits_for_the_changes_before_it(setup: CommitSetup) -> None:
    started, go_on = threading.Event(), threading.Event()

    def change(table: Table, batch: str) -> None:
        started.set()
        assert go_on.wait(30)
        assert ORDERS in setup.catalog.tables
        setup.append(table, batch)

    writing = threading.Thread(target=setup.run, args=(change,))
    dropping = threading.Thread(target=setup.life.drop, args=(ORDERS, ASK), kwargs={"purge": True})
    writing.start()
    assert started.wait(30)
    dropping.start()
    time.sleep(0.05)
    go_on.set()
    writing.join(30)
    dropping.join(30)
    assert setup.notes()[0][0] == "done"
    assert ORDERS not in setup.catalog.tables


class Waited:
    """Something that stood in a table's line while the change before it replaced the table by one of the same name."""

    def __init__(self, setup: CommitSetup, act: Callable[[], object]) -> None:
        self.raised: FirnError | None = None
        started, go_on = threading.Event(), threading.Event()
        old = setup.catalog.tables[ORDERS].uuid

        def replace(table: Table, batch: str) -> None:
            started.set()
            assert go_on.wait(30)
            setup.catalog.drop(table, purge=False)
            setup.catalog.create(ORDERS, SCHEMA, (), {})

        def wait() -> None:
            try:
                act()
            except FirnError as e:
                self.raised = e

        def run() -> None:
            with suppress(TableNotFound):
                setup.run(replace)

        one, other = threading.Thread(target=run), threading.Thread(target=wait)
        one.start()
        assert started.wait(30)
        other.start()
        wait_until(lambda: len(setup.commits.locks._queues.get(old, ())) == 2, 5, every=0.001)
        go_on.set()
        one.join(30)
        other.join(30)


def test_a_change_that_waited_while_its_table_was_replaced_leaves_the_new_one_alone(setup: CommitSetup) -> None:
    """It was checked against the old table's columns."""
    waited = Waited(setup, lambda: setup.run(setup.append))
    assert isinstance(waited.raised, TableNotFound)
    assert setup.history() == 0


def test_a_drop_that_waited_while_its_table_was_replaced_leaves_the_new_one_alone(setup: CommitSetup) -> None:
    waited = Waited(setup, lambda: setup.life.drop(ORDERS, ASK, purge=True))
    assert isinstance(waited.raised, TableNotFound)
    assert ORDERS in setup.catalog.tables


def test_recovery_asks_the_history_what_became_of_each_note(setup: CommitSetup) -> None:
    for batch, name in (("came", ORDERS), ("did not", ORDERS), ("elsewhere", OTHERS)):
        setup.begin(batch, name, setup.catalog.tables[name].uuid)
    came = setup.catalog.append(ORDERS, "came")
    later = setup.restarted()
    assert later.commits.batches.recover() == 3
    assert sorted(setup.notes(), key=str) == [("done", came), ("void", None), ("void", None)]
    assert later.commits.batches.recover() == 0


def test_recovery_leaves_alone_what_this_process_is_at(setup: CommitSetup) -> None:
    """It may be committed at any moment: nothing may be said of it yet."""
    setup.begin("b1", ORDERS, setup.catalog.tables[ORDERS].uuid)
    assert setup.commits.batches.recover() == 0
    assert setup.notes() == [("begun", None)]


def test_recovery_knows_that_a_table_of_the_same_name_is_another(setup: CommitSetup) -> None:
    setup.begin("came", ORDERS, setup.catalog.tables[ORDERS].uuid)
    setup.begin("lost", TableName("acme", "shop", "gone"), "no-uuid")
    setup.catalog.drop(setup.catalog.load(ORDERS), purge=False)
    setup.catalog.create(ORDERS, SCHEMA, (), {})
    setup.catalog.append(ORDERS, "came")
    assert setup.restarted().commits.batches.recover() == 2
    assert setup.notes() == [("void", None)] * 2


def test_recovery_leaves_a_note_it_cannot_ask_about(setup: CommitSetup) -> None:
    """A catalog that is silent at start-up says nothing of what happened, and keeps nobody from being served."""
    for batch in ("b1", "b2"):
        setup.begin(batch, ORDERS, setup.catalog.tables[ORDERS].uuid)
    setup.catalog.failures = [CatalogUnavailable("silent")]
    assert setup.restarted().commits.batches.recover() == 2
    assert len(setup.ledger.unfinished()) == 1


def test_recovery_knows_a_table_by_the_batch_it_was_made_in(setup: CommitSetup) -> None:
    setup.begin("made", NEW, "", MAKE)
    setup.begin("not made", ORDERS, "", MAKE)
    setup.begin("nor this", TableName("acme", "shop", "never"), "", MAKE)
    setup.catalog.create(NEW, SCHEMA, (), {BATCH_PROPERTY: "made"})
    assert setup.restarted().commits.batches.recover() == 3
    found = {batch: setup.ledger.find(batch) for batch in ("made", "not made", "nor this")}
    assert {batch: noted and noted.state for batch, noted in found.items()} == {
        "made": "done",
        "not made": "void",
        "nor this": "void",
    }


@pytest.mark.parametrize("made_again", [False, True])
def test_recovery_knows_that_a_drop_happened_by_the_table_being_where_dropped_ones_are(
    setup: CommitSetup, made_again: bool
) -> None:
    dropped = setup.catalog.load(ORDERS)
    setup.begin("dropped", ORDERS, dropped.uuid, DROP)
    setup.begin("still there", OTHERS, setup.catalog.tables[OTHERS].uuid, DROP)
    setup.catalog.rename(dropped, dropped_table_name(dropped.uuid))
    if made_again:
        setup.catalog.create(ORDERS, SCHEMA, (), {})
    assert setup.restarted().commits.batches.recover() == 2
    found = [setup.ledger.find(batch) for batch in ("dropped", "still there")]
    assert [noted and noted.state for noted in found] == ["done", "void"]
