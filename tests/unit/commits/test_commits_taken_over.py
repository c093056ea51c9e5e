"""What an instance had begun that is gone is taken over: fenced, then looked for. What others are at is left alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from service.catalog.tables import Table
from service.commits.batches import MAKE
from service.errors import CatalogUnavailable, CommitConflict, KeyBusy
from service.ledger.ledger import Batch, NewBatch
from service.ledger.table_records import DROP
from service.model.call import Call, IdempotencyKey
from service.model.names import BATCH_PROPERTY, TableName, dropped_table_name
from tests.fakes import FakeOwners
from tests.unit.commit_setup import NEW, ORDERS, SCHEMA, CommitSetup

KEY = IdempotencyKey("UPDATE", ORDERS, "k1", "print")


class Street:
    """Two instances with a setup each, over the same tables and notes."""

    def __init__(self, path: Path) -> None:
        owners = FakeOwners("here")
        self.here = CommitSetup(path).instance(owners)
        self.there = self.here.instance(owners.beside("there"))
        self.catalog = self.here.catalog

    def instance(self, me: str) -> CommitSetup:
        assert isinstance(self.here.ledger.owners, FakeOwners)
        return self.here.instance(self.here.ledger.owners.beside(me))

    def begun_there(self, batch: str = "theirs", name: TableName = ORDERS, operation: str = "UPDATE") -> None:
        uuid = "" if operation == MAKE else self.catalog.tables[name].uuid
        keys = {KEY.id: KEY.fingerprint}
        self.there.begin_noted(NewBatch(batch, name, uuid, operation, ["r0"], keys=keys))

    def there_goes(self) -> None:
        self.there.ledger.owners.close()

    def again(self) -> Callable[[], object]:
        """The same request, sent to this instance."""
        return lambda: self.here.commits.commit(
            self.catalog.load(ORDERS), "UPDATE", self.here.retry(KEY), self.here.append
        )

    def noted(self, batch: str = "theirs") -> Batch:
        noted = self.here.ledger.find(batch)
        assert noted
        return noted

    def commits_of(self, batch: str) -> int:
        return sum(s.summary.get(BATCH_PROPERTY) == batch for s in self.catalog.tables[ORDERS].history)


@pytest.fixture
def street(tmp_path: Path) -> Street:
    return Street(tmp_path / "ledger.db")


def never(table: Table, batch: str) -> None:
    raise AssertionError("it has happened")


class TestGone:
    """What an instance had begun that is gone."""

    def test_what_it_had_committed_is_given_and_nothing_is_run(self, street: Street) -> None:
        street.begun_there()
        made = street.catalog.append(ORDERS, "theirs")
        street.there_goes()
        call = street.here.retry(KEY)
        effect = street.here.commits.commit(street.catalog.load(ORDERS), "UPDATE", call, never)
        assert effect.snapshot_id == made
        assert (street.noted().state, street.noted().snapshot_id) == ("done", made)
        assert street.catalog.fences == ["theirs"]

    def test_what_it_had_not_committed_is_void_and_tried_again(self, street: Street) -> None:
        street.begun_there()
        street.there_goes()
        call = street.here.retry(KEY)
        effect = street.here.commits.commit(street.catalog.load(ORDERS), "UPDATE", call, street.here.append)
        assert effect.snapshot
        assert street.noted().state == "void"
        assert (street.catalog.fences, street.commits_of("theirs")) == (["theirs"], 0)
        known = street.here.ledger.key(KEY.id)
        assert known
        assert (street.commits_of(known.batch or ""), known.owner, known.state) == (1, "here", "done")

    @pytest.mark.parametrize("came", [True, False])
    def test_its_outcome_is_found_out_for_who_asks_after_it(self, street: Street, came: bool) -> None:
        street.begun_there()
        made = street.catalog.append(ORDERS, "theirs") if came else None
        street.there_goes()
        happened = street.here.commits.earlier_batch(street.here.retry(KEY))
        assert (happened and happened.snapshot_id) == made
        assert street.noted().state == ("done" if came else "void")
        assert street.catalog.fences == ["theirs"]
        assert street.here.commits.earlier_batch(street.here.retry(KEY)) == happened
        assert street.catalog.fences == ["theirs"], "once it is known it is not fenced again"

    def test_it_is_made_ours_before_the_table_is_fenced_and_looked_for_after(self, street: Street) -> None:
        """What it commits between the two is found; what it would commit later, it is kept from."""
        street.begun_there()
        street.there_goes()
        seen: list[tuple[str, str, bool]] = []
        fence = street.catalog.fence

        def last_moment(table: Table, batch: str) -> None:
            noted = street.noted()
            seen.append((noted.state, noted.owner, street.there.ledger.is_ours("theirs")))
            street.catalog.append(ORDERS, "theirs")
            fence(table, batch)

        street.catalog.fence = last_moment  # type: ignore[method-assign]  # the other one is quicker by a hair
        happened = street.here.commits.earlier_batch(street.here.retry(KEY))
        assert happened
        assert (happened.state, seen) == ("done", [("taken", "here", False)])

    def test_the_old_owner_is_refused_its_commit_after_the_take_over(self, street: Street) -> None:
        street.begun_there()
        street.there.commits.must_be_ours("theirs")
        street.there_goes()
        assert street.here.commits.earlier_batch(street.here.retry(KEY)) is None
        with pytest.raises(CommitConflict):
            street.there.commits.must_be_ours("theirs")

    def test_whose_change_was_taken_over_tries_it_no_more_under_its_key(self, street: Street) -> None:
        """It stood still for a while, and goes on when the change has been made elsewhere."""
        tries: list[str] = []

        def stand_still(table: Table, batch: str) -> None:
            tries.append(batch)
            street.there_goes()
            call = street.here.retry(KEY)
            street.here.commits.commit(street.catalog.load(ORDERS), "UPDATE", call, street.here.append, in_order=False)
            street.there.commits.must_be_ours(batch)
            street.there.append(table, batch)

        table = street.catalog.load(ORDERS)
        with pytest.raises(KeyBusy):
            # In its turn it would hold the table, and nobody would take over.
            street.there.commits.commit(table, "COMPACT", Call("r", KEY), stand_still, in_order=False)
        assert len(tries) == 1
        assert street.commits_of(tries[0]) == 0
        stamps = [s.summary.get(BATCH_PROPERTY) for s in street.catalog.tables[ORDERS].history]
        assert len([stamp for stamp in stamps if stamp]) == 1
        known = street.here.ledger.key(KEY.id)
        assert known
        assert (known.owner, known.batch) == ("here", stamps[-1])

    def test_what_was_taken_over_by_one_that_died_is_fenced_again(self, street: Street) -> None:
        """It may have been before its fence, or after."""
        third = street.instance("third")
        street.begun_there()
        street.there_goes()
        assert third.ledger.take_over(street.noted())
        third.ledger.owners.close()
        assert street.here.commits.earlier_batch(street.here.retry(KEY)) is None
        assert (street.noted().state, street.catalog.fences) == ("void", ["theirs"])

    def test_what_we_have_taken_over_ourselves_and_could_not_end_is_fenced_again(self, street: Street) -> None:
        street.begun_there()
        street.there_goes()
        # The first load is for the fence, the second for the history.
        street.catalog.failures = [None, CatalogUnavailable("silent")]
        with pytest.raises(CatalogUnavailable):
            street.here.commits.earlier_batch(street.here.retry(KEY))
        assert (street.noted().state, street.noted().owner) == ("taken", "here")
        assert street.here.commits.earlier_batch(street.here.retry(KEY)) is None
        assert (street.noted().state, street.catalog.fences) == ("void", ["theirs", "theirs"])

    def test_who_comes_second_to_take_over_leaves_it_to_the_first(self, street: Street) -> None:
        third = street.instance("third")
        street.begun_there()
        street.there_goes()
        take_over = street.here.ledger.take_over

        def too_late(noted: Batch) -> bool:
            assert third.ledger.take_over(noted)
            return take_over(noted)

        street.here.ledger.take_over = too_late  # type: ignore[method-assign]  # the other one is quicker by a hair
        with pytest.raises(KeyBusy):
            street.here.commits.earlier_batch(street.here.retry(KEY))
        assert (street.noted().owner, street.noted().state, street.catalog.fences) == ("third", "taken", [])

    def test_a_table_that_is_being_edited_elsewhere_is_waited_for(self, street: Street) -> None:
        """An edit commits inside Spark: the lock says when it has."""
        street.begun_there()
        street.there_goes()
        owners = street.here.ledger.owners
        assert isinstance(owners, FakeOwners)
        owners.wait_s = 0.01
        with owners.lock, pytest.raises(CommitConflict):
            street.here.commits.earlier_batch(street.here.retry(KEY))
        assert (street.noted().owner, street.noted().state) == ("there", "begun")

    @pytest.mark.parametrize("anew", [False, True])
    def test_where_its_table_is_gone_it_is_void_and_nothing_is_fenced(self, street: Street, anew: bool) -> None:
        street.begun_there()
        street.there_goes()
        street.catalog.drop(street.catalog.load(ORDERS), purge=False)
        if anew:
            street.catalog.create(ORDERS, SCHEMA, (), {})
        assert street.here.commits.earlier_batch(street.here.retry(KEY)) is None
        assert (street.noted().state, street.catalog.fences) == ("void", [])

    @pytest.mark.parametrize("came", [True, False])
    @pytest.mark.parametrize(("operation", "name"), [(MAKE, NEW), (DROP, ORDERS)])
    def test_what_makes_no_snapshot_is_looked_up_without_a_fence(
        self, street: Street, operation: str, name: TableName, came: bool
    ) -> None:
        street.begun_there(name=name, operation=operation)
        if came and operation == MAKE:
            street.catalog.create(NEW, SCHEMA, (), {BATCH_PROPERTY: "theirs"})
        elif came:
            table = street.catalog.load(ORDERS)
            street.catalog.rename(table, dropped_table_name(table.uuid))
        street.there_goes()
        happened = street.here.commits.earlier_batch(street.here.retry(KEY))
        assert (happened is not None, street.noted().state) == (came, "done" if came else "void")
        assert street.catalog.fences == []


class TestThere:
    """What an instance has begun that is there is its own."""

    def test_it_is_refused_and_not_touched(self, street: Street) -> None:
        street.begun_there()
        for ask in (lambda: street.here.commits.earlier_batch(street.here.retry(KEY)), street.again()):
            with pytest.raises(KeyBusy):
                ask()
        noted = street.noted()
        assert (noted.state, noted.owner) == ("begun", "there")
        assert (street.catalog.fences, street.here.history()) == ([], 0)
        street.there.commits.must_be_ours("theirs")

    def test_also_a_table_that_is_made_or_dropped(self, street: Street) -> None:
        street.begun_there(name=NEW, operation=MAKE)
        with pytest.raises(KeyBusy):
            street.here.commits.create(NEW, SCHEMA, (), {}, street.here.retry(KEY))
        with pytest.raises(KeyBusy):
            street.here.life.drop(ORDERS, street.here.retry(KEY), purge=False)
        assert (NEW in street.catalog.tables, ORDERS in street.catalog.tables) == (False, True)

    def test_what_it_has_ended_is_known_here(self, street: Street) -> None:
        made = street.there.commits.commit(
            street.catalog.load(ORDERS), "UPDATE", Call("r", KEY), street.there.append
        ).snapshot_id
        call = street.here.retry(KEY)
        assert street.here.commits.commit(street.catalog.load(ORDERS), "UPDATE", call, never).snapshot_id == made

    def test_recovery_leaves_it_alone(self, street: Street) -> None:
        street.begun_there()
        street.here.begin("ours", ORDERS, street.catalog.tables[ORDERS].uuid)
        assert street.here.commits.batches.recover() == 0
        assert {b.batch: (b.state, b.owner) for b in street.here.ledger.unfinished()} == {
            "theirs": ("begun", "there"),
            "ours": ("begun", "here"),
        }
        assert street.catalog.fences == []

    def test_recovery_settles_that_of_those_that_are_gone(self, street: Street) -> None:
        third = street.instance("third")
        street.begun_there()
        uuid = street.catalog.tables[ORDERS].uuid
        third.begin("came", ORDERS, uuid)
        third.begin("did not", ORDERS, uuid)
        made = street.catalog.append(ORDERS, "came")
        third.ledger.owners.close()
        assert street.here.commits.batches.recover() == 2
        assert [street.noted(b).state for b in ("theirs", "came", "did not")] == ["begun", "done", "void"]
        assert street.noted("came").snapshot_id == made
        assert sorted(street.catalog.fences) == ["came", "did not"]
        assert street.here.commits.batches.recover() == 0

    def test_of_two_that_recover_at_once_one_does_it(self, street: Street) -> None:
        third = street.instance("third")
        street.begun_there()
        street.there_goes()
        unfinished = street.here.ledger.unfinished()
        assert third.commits.batches.recover() == 1
        street.here.ledger.unfinished = lambda: unfinished  # type: ignore[method-assign]  # read just before
        assert street.here.commits.batches.recover() == 1
        assert (street.noted().state, street.noted().owner, street.catalog.fences) == ("void", "third", ["theirs"])


class TestAlone:
    """In the embedded shape whoever was before has ended, its JVM too: nothing is fenced."""

    @pytest.mark.parametrize("came", [True, False])
    def test_what_an_earlier_process_left_is_only_looked_for(self, tmp_path: Path, came: bool) -> None:
        setup = CommitSetup(tmp_path / "ledger.db")
        setup.begin("b1", ORDERS, setup.catalog.tables[ORDERS].uuid)
        made = setup.catalog.append(ORDERS, "b1") if came else None
        later = setup.restarted()
        assert later.commits.batches.recover() == 1
        assert (setup.catalog.fences, setup.history()) == ([], int(came))
        assert setup.notes() == [("done" if came else "void", made)]

    def test_what_several_left_is_settled_by_one_that_is_alone(self, street: Street) -> None:
        """A home that was moved back from several instances to one."""
        third = street.instance("third")
        street.begun_there()
        assert third.ledger.take_over(street.noted())
        assert street.here.restarted().commits.batches.recover() == 1
        assert (street.noted().state, street.catalog.fences) == ("void", [])

    def test_its_change_is_its_own_without_a_look_at_the_ledger(self, tmp_path: Path) -> None:
        CommitSetup(tmp_path / "ledger.db").commits.must_be_ours("never begun")


def test_among_several_a_change_that_was_never_noted_is_nobodys(street: Street) -> None:
    with pytest.raises(CommitConflict):
        street.here.commits.must_be_ours("never begun")
