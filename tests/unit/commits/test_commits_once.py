"""With a key a change happens once: what an earlier attempt did is found, whatever became of its answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from service.catalog.tables import Table
from service.commits.batches import MAKE
from service.errors import (
    CatalogUnavailable,
    EngineUnavailable,
    FirnError,
    OutcomeUnknown,
    StorageUnavailable,
    TableExists,
    TableNotFound,
)
from service.ledger.ledger import NewBatch
from service.ledger.table_records import DROP
from service.model.call import Call, IdempotencyKey
from service.model.names import BATCH_PROPERTY, TableName
from tests.fakes import FakeCatalog
from tests.unit.commit_setup import ASK, NEW, ORDERS, SCHEMA, CommitSetup


@pytest.fixture
def setup(tmp_path: Path) -> CommitSetup:
    return CommitSetup(tmp_path / "ledger.db")


def key_of(operation: str, name: TableName = ORDERS) -> IdempotencyKey:
    return IdempotencyKey(operation, name, "k1", "print")


def test_a_key_is_noted_with_the_batch_before_anything_happens(setup: CommitSetup) -> None:
    key = key_of("WRITE")

    def change(table: Table, batch: str) -> None:
        noted = setup.ledger.key(key.id)
        assert noted
        assert (noted.batch, noted.fingerprint, noted.answer) == (batch, "print", None)
        setup.append(table, batch)

    setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", Call("r", key), change)
    assert setup.history() == 1


def test_what_an_earlier_attempt_did_is_given_and_nothing_is_run(setup: CommitSetup) -> None:
    key = key_of("WRITE")
    first = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", Call("r", key), setup.append)
    setup.run(setup.append)

    def change(table: Table, batch: str) -> None:
        raise AssertionError("it has happened")

    again = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", setup.retry(key), change)
    assert again.snapshot == first.snapshot
    assert again.after.current_snapshot_id != first.snapshot_id == again.snapshot_id
    assert setup.history() == 2


@pytest.mark.parametrize("crashed", [False, True])
def test_what_an_earlier_attempt_did_is_found_in_the_history_where_its_end_is_not_noted(
    setup: CommitSetup, crashed: bool
) -> None:
    key = key_of("WRITE")
    setup.ledger.mute = frozenset({"end"})
    first = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", Call("r", key), setup.append)
    setup.ledger.mute = frozenset()
    assert setup.notes() == [("begun", None)]
    setup = setup.restarted() if crashed else setup
    again = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", setup.retry(key), setup.append)
    assert again.snapshot == first.snapshot
    assert (setup.notes(), setup.history()) == ([("done", first.snapshot_id)], 1)


@pytest.mark.parametrize(("noted", "crashed"), [(True, False), (False, False), (False, True)])
def test_what_an_earlier_attempt_did_not_do_is_tried_again_and_known_by_the_new_batch(
    setup: CommitSetup, noted: bool, crashed: bool
) -> None:
    key = key_of("WRITE")

    def fail(table: Table, batch: str) -> None:
        raise StorageUnavailable("full")

    setup.ledger.mute = frozenset(() if noted else {"end"})
    with pytest.raises(StorageUnavailable):
        setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", Call("r", key), fail)
    setup.ledger.mute = frozenset()
    setup = setup.restarted() if crashed else setup
    call = setup.retry(key)
    effect = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", call, setup.append)
    assert setup.history() == 1
    known = setup.ledger.key(key.id)
    assert known
    assert known.batch != call.earlier
    happened = setup.commits.earlier_batch(setup.retry(key))
    assert happened
    assert happened.snapshot_id == effect.snapshot_id


@pytest.mark.parametrize("operation", ["WRITE", MAKE, DROP])
def test_nothing_is_tried_again_while_the_catalog_does_not_respond(setup: CommitSetup, operation: str) -> None:
    key = key_of(operation)
    uuid = "" if operation == MAKE else setup.catalog.tables[ORDERS].uuid
    setup.begin_noted(NewBatch("b1", ORDERS, uuid, operation, ["r"], keys={key.id: key.fingerprint}))
    table = setup.catalog.load(ORDERS)
    setup.catalog.failures = [CatalogUnavailable("silent")]
    call = setup.retry(key)
    again: dict[str, Callable[[], object]] = {
        "WRITE": lambda: setup.commits.commit(table, operation, call, setup.append),
        MAKE: lambda: setup.commits.create(ORDERS, SCHEMA, (), {}, call),
        DROP: lambda: setup.life.drop(ORDERS, call, purge=False),
    }
    with pytest.raises(CatalogUnavailable):
        again[operation]()
    assert (setup.notes(), setup.history()) == ([("begun", None)], 0)
    assert ORDERS in setup.catalog.tables


def test_nothing_happened_without_an_earlier_attempt_or_when_its_note_is_gone(setup: CommitSetup) -> None:
    assert setup.commits.earlier_batch(ASK) is None
    assert setup.commits.earlier_batch(Call("r", key_of("WRITE"), "forgotten")) is None


def test_what_happened_to_a_table_that_was_replaced_since_is_not_looked_for_in_the_new_one(setup: CommitSetup) -> None:
    key = key_of("WRITE")
    setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", Call("r", key), setup.append)
    old = setup.catalog.load(ORDERS)
    setup.catalog.drop(old, purge=False)
    setup.catalog.create(ORDERS, SCHEMA, (), {})
    with pytest.raises(TableNotFound):
        setup.commits.commit(old, "WRITE", setup.retry(key), setup.append)
    assert setup.history() == 0


class TestTheTableOfARequest:
    """Where an earlier attempt had its effect it is the one that it had it on."""

    key = key_of("WRITE")

    @pytest.fixture
    def uuid(self, setup: CommitSetup) -> str:
        return setup.catalog.tables[ORDERS].uuid

    def test_is_the_one_of_its_name_where_there_was_none(self, setup: CommitSetup, uuid: str) -> None:
        assert setup.commits.table(ORDERS, setup.retry(self.key)).uuid == uuid
        with pytest.raises(TableNotFound):
            setup.commits.table(NEW, ASK)

    @pytest.mark.parametrize("crashed", [False, True])
    def test_is_found_under_the_name_that_it_has_by_now(self, setup: CommitSetup, uuid: str, crashed: bool) -> None:
        first = setup.commits.commit(setup.catalog.load(ORDERS), "WRITE", Call("r", self.key), setup.append)
        setup.life.rename(ORDERS, "new", ASK)
        setup.catalog.create(ORDERS, SCHEMA, (), {})
        setup = setup.restarted() if crashed else setup
        call = setup.retry(self.key)
        table = setup.commits.table(ORDERS, call)
        assert (table.uuid, table.name) == (uuid, NEW)
        assert setup.commits.commit(table, "WRITE", call, setup.append).snapshot == first.snapshot
        assert setup.history(NEW) == 1

    def test_is_the_one_of_its_name_where_the_attempt_had_no_effect(self, setup: CommitSetup) -> None:
        uuid = setup.catalog.tables[ORDERS].uuid
        setup.begin_noted(NewBatch("b1", ORDERS, uuid, "WRITE", ["r"], keys={self.key.id: self.key.fingerprint}))
        setup.life.rename(ORDERS, "new", ASK)
        with pytest.raises(TableNotFound):
            setup.commits.table(ORDERS, setup.retry(self.key))


class TestCreate:
    """Making a table: once under a key, and never the table of another."""

    key = key_of(MAKE, NEW)

    def test_without_a_key_nothing_is_noted(self, setup: CommitSetup) -> None:
        setup.commits.create(NEW, SCHEMA, (), {"comment": "one"}, ASK)
        assert setup.catalog.tables[NEW].properties == {"comment": "one"}
        assert setup.notes() == []
        with pytest.raises(TableExists):
            setup.commits.create(NEW, SCHEMA, (), {}, ASK)

    def test_with_one_the_table_itself_says_which_attempt_made_it(self, setup: CommitSetup) -> None:
        made = setup.commits.create(NEW, SCHEMA, (), {"comment": "one"}, Call("r", self.key))
        noted = setup.ledger.key(self.key.id)
        assert noted
        assert made.properties == {"comment": "one", BATCH_PROPERTY: noted.batch}
        assert setup.notes() == [("done", 0)]

    def test_the_same_again_gives_the_table_that_was_made(self, setup: CommitSetup) -> None:
        made = setup.commits.create(NEW, SCHEMA, (), {}, Call("r", self.key))
        assert setup.commits.create(NEW, SCHEMA, (), {}, setup.retry(self.key)).uuid == made.uuid
        assert setup.notes() == [("done", 0)]

    @pytest.mark.parametrize("crashed", [False, True])
    def test_also_when_the_end_could_not_be_noted(self, setup: CommitSetup, crashed: bool) -> None:
        setup.ledger.mute = frozenset({"end"})
        made = setup.commits.create(NEW, SCHEMA, (), {}, Call("r", self.key))
        setup.ledger.mute = frozenset()
        assert setup.notes() == [("begun", None)]
        setup = setup.restarted() if crashed else setup
        assert setup.commits.create(NEW, SCHEMA, (), {}, setup.retry(self.key)).uuid == made.uuid
        assert setup.notes() == [("done", 0)]

    def test_a_table_that_was_there_before_is_refused_however_often_it_is_asked(self, setup: CommitSetup) -> None:
        key = key_of(MAKE)
        with pytest.raises(TableExists):
            setup.commits.create(ORDERS, SCHEMA, (), {}, Call("r", key))
        with pytest.raises(TableExists):
            setup.commits.create(ORDERS, SCHEMA, (), {}, setup.retry(key))
        assert setup.notes() == [("void", None)] * 2

    def test_a_failure_of_which_nobody_knows_is_looked_up_by_the_retry(self, setup: CommitSetup) -> None:
        class Loses(FakeCatalog):
            """Makes the table, and then does not say so."""

            def create(self, *args: object) -> Table:
                FakeCatalog.create(self, *args)  # type: ignore[arg-type]  # as they came
                raise CatalogUnavailable("silent")

        setup = CommitSetup(setup.ledger_file, catalog=Loses())
        with pytest.raises(CatalogUnavailable):
            setup.commits.create(NEW, SCHEMA, (), {}, Call("r", self.key))
        assert setup.notes() == [("begun", None)]
        made = setup.catalog.tables[NEW]
        assert setup.commits.create(NEW, SCHEMA, (), {}, setup.retry(self.key)).uuid == made.uuid
        assert setup.notes() == [("done", 0)]


class TestDrop:
    """Dropping a table: once under a key, so that a retry leaves a new table of that name alone."""

    key = key_of(DROP)

    def test_it_is_noted_also_without_a_key(self, setup: CommitSetup) -> None:
        setup.life.drop(ORDERS, ASK, purge=False)
        assert ORDERS not in setup.catalog.tables
        assert setup.notes() == [("done", 0)]

    def test_a_missing_table_is_refused_before_anything_is_noted(self, setup: CommitSetup) -> None:
        with pytest.raises(TableNotFound):
            setup.life.drop(NEW, Call("r", key_of(DROP, NEW)), purge=False)
        assert setup.notes() == []

    @pytest.mark.parametrize("crashed", [False, True])
    @pytest.mark.parametrize("mute", [frozenset[str](), frozenset({"end"})])
    def test_the_same_again_has_happened_and_leaves_a_new_table_of_that_name_alone(
        self, setup: CommitSetup, mute: frozenset[str], crashed: bool
    ) -> None:
        setup.ledger.mute = mute
        setup.life.drop(ORDERS, Call("r", self.key), purge=False)
        setup.ledger.mute = frozenset()
        setup = setup.restarted() if crashed else setup
        setup.catalog.create(ORDERS, SCHEMA, (), {})
        setup.life.drop(ORDERS, setup.retry(self.key), purge=False)
        assert ORDERS in setup.catalog.tables
        assert setup.notes() == [("done", 0)]

    @pytest.mark.parametrize("crashed", [False, True])
    def test_what_was_begun_and_did_not_happen_is_done_by_the_retry(self, setup: CommitSetup, crashed: bool) -> None:
        uuid = setup.catalog.tables[ORDERS].uuid
        setup.begin_noted(NewBatch("b1", ORDERS, uuid, DROP, ["r"], keys={self.key.id: self.key.fingerprint}))
        setup = setup.restarted() if crashed else setup
        setup.life.drop(ORDERS, setup.retry(self.key), purge=False)
        assert ORDERS not in setup.catalog.tables
        assert sorted(setup.notes(), key=str) == [("done", 0), ("void", None)]

    def test_a_drop_that_was_beaten_by_another_is_refused_and_void(self, setup: CommitSetup) -> None:
        class Faster(FakeCatalog):
            """Somebody else drops the table at the last moment."""

            def rename(self, table: Table, to: TableName) -> Table:
                del self.tables[table.name]
                return FakeCatalog.rename(self, table, to)

        faster = CommitSetup(setup.ledger_file, catalog=Faster(dict(setup.catalog.tables)))
        with pytest.raises(TableNotFound):
            faster.life.drop(ORDERS, Call("r", self.key), purge=False)
        assert setup.notes() == [("void", None)]


class TestBatches:
    """What a batch of WRITEs uses: the note, the look after a failure, the end with its answers."""

    keys = tuple(IdempotencyKey("WRITE", ORDERS, f"k{i}", f"print {i}") for i in range(3))

    @property
    def calls(self) -> list[Call]:
        return [Call(f"r{i}", key) for i, key in enumerate(self.keys)] + [Call("r3")]

    def test_a_batch_is_noted_with_all_who_asked_and_all_their_keys(self, setup: CommitSetup) -> None:
        setup.commits.batches.begin("b1", setup.catalog.load(ORDERS), "WRITE", self.calls, 17)
        noted = setup.ledger.find("b1")
        assert noted
        assert (noted.state, noted.requests, noted.records, noted.operation) == ("begun", 4, 17, "WRITE")
        for i, key in enumerate(self.keys):
            known = setup.ledger.key(key.id)
            assert known
            assert (known.fingerprint, known.batch, known.answer) == (f"print {i}", "b1", None)

    def test_its_end_is_noted_with_the_answers_and_the_count(self, setup: CommitSetup) -> None:
        setup.commits.batches.begin("b1", setup.catalog.load(ORDERS), "WRITE", self.calls)
        setup.commits.batches.end("b1", 7, {key.id: key.text.encode() for key in self.keys}, ("uuid", 4))
        assert setup.notes() == [("done", 7)]
        answers = [setup.ledger.key(key.id) for key in self.keys]
        assert [known and known.answer for known in answers] == [b"k0", b"k1", b"k2"]
        assert setup.ledger.writes("uuid") == 4

    def test_a_failed_batch_that_committed_is_found(self, setup: CommitSetup) -> None:
        setup.commits.batches.begin("b1", setup.catalog.load(ORDERS), "WRITE", self.calls)
        made = setup.catalog.append(ORDERS, "b1")
        table = setup.catalog.load(ORDERS)
        found = setup.commits.batches.committed_despite(EngineUnavailable("gone"), "b1", table).committed_by("b1")
        assert found
        assert found.snapshot_id == made
        assert setup.notes() == [("begun", None)]

    @pytest.mark.parametrize(
        ("failure", "state"), [(EngineUnavailable("gone"), "void"), (OutcomeUnknown("who knows"), "begun")]
    )
    def test_one_that_did_not_is_void_unless_it_may_still_happen(
        self, setup: CommitSetup, failure: FirnError, state: str
    ) -> None:
        setup.commits.batches.begin("b1", setup.catalog.load(ORDERS), "WRITE", self.calls)
        with pytest.raises(type(failure)) as raised:
            setup.commits.batches.committed_despite(failure, "b1", setup.catalog.load(ORDERS))
        assert raised.value is failure
        assert setup.notes() == [(state, None)]

    def test_one_of_which_nobody_can_tell_stays_as_it_is(self, setup: CommitSetup) -> None:
        setup.commits.batches.begin("b1", setup.catalog.load(ORDERS), "WRITE", self.calls)
        table = setup.catalog.load(ORDERS)
        setup.catalog.failures = [CatalogUnavailable("silent") for _ in range(3)]
        with pytest.raises(OutcomeUnknown) as unknown:
            setup.commits.batches.committed_despite(EngineUnavailable("gone"), "b1", table)
        assert unknown.value.details == {"batch": "b1"}
        assert setup.notes() == [("begun", None)]

    def test_an_answer_that_needed_no_change_is_kept_by_its_key(self, setup: CommitSetup) -> None:
        setup.commits.store_response(Call("r", self.keys[0]), b"body")
        known = setup.ledger.key(self.keys[0].id)
        assert known
        assert (known.batch, known.answer) == (None, b"body")
        setup.commits.store_response(Call("r"), b"without a key")
        assert setup.notes() == []

    def test_an_answer_that_cannot_be_kept_is_no_failure(self, setup: CommitSetup) -> None:
        setup.ledger.mute = frozenset({"answer"})
        setup.commits.store_response(Call("r", self.keys[0]), b"body")
        assert setup.ledger.key(self.keys[0].id) is None


def made_with(setup: CommitSetup, batch: str) -> None:
    setup.catalog.create(NEW, SCHEMA, (), {BATCH_PROPERTY: batch})


def test_a_table_made_with_its_rows_is_noted_before_and_given_to_who_asks_again(setup: CommitSetup) -> None:
    key = key_of("REPARTITION")

    def make(batch: str) -> None:
        noted = setup.ledger.key(key.id)
        assert noted
        assert noted.batch == batch
        made_with(setup, batch)

    table = setup.commits.create_with_rows(NEW, Call("r", key), make)
    happened = setup.commits.earlier_batch(setup.retry(key))
    assert happened is not None
    assert table.properties[BATCH_PROPERTY] == happened.batch


def test_a_table_that_was_made_although_its_job_failed_was_made(setup: CommitSetup) -> None:
    def make(batch: str) -> None:
        made_with(setup, batch)
        raise EngineUnavailable("Spark ended")

    assert setup.commits.create_with_rows(NEW, ASK, make).name == NEW
    assert [state for state, _ in setup.notes()] == ["done"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_table_that_could_not_be_made_is_noted_so(setup: CommitSetup, taken: bool) -> None:
    def make(batch: str) -> None:
        if taken:
            setup.catalog.create(NEW, SCHEMA, (), {})
        raise StorageUnavailable("the disk is full")

    with pytest.raises(StorageUnavailable):
        setup.commits.create_with_rows(NEW, ASK, make)
    assert [state for state, _ in setup.notes()] == ["void"]


def test_a_name_that_is_taken_is_refused(setup: CommitSetup) -> None:
    setup.catalog.create(NEW, SCHEMA, (), {})
    with pytest.raises(TableExists):
        setup.commits.create_with_rows(NEW, ASK, lambda batch: made_with(setup, batch))
    assert [state for state, _ in setup.notes()] == ["void"]


def test_a_catalog_that_does_not_say_whether_a_table_was_made_leaves_it_open(setup: CommitSetup) -> None:
    def make(batch: str) -> None:
        made_with(setup, batch)
        setup.catalog.failures = [CatalogUnavailable("the catalog does not respond")] * 3
        raise CatalogUnavailable("the catalog does not respond")

    with pytest.raises(OutcomeUnknown):
        setup.commits.create_with_rows(NEW, ASK, make)
    assert [state for state, _ in setup.notes()] == ["begun"]
    setup.commits.batches.resolve()
    assert [state for state, _ in setup.notes()] == ["done"]


def test_a_table_that_cannot_be_read_after_it_was_made_is_not_said_to_be_missing(setup: CommitSetup) -> None:
    def make(batch: str) -> None:
        made_with(setup, batch)
        setup.catalog.failures = [CatalogUnavailable("the catalog does not respond")] * 3

    with pytest.raises(OutcomeUnknown):
        setup.commits.create_with_rows(NEW, ASK, make)
    assert [state for state, _ in setup.notes()] == ["done"]
