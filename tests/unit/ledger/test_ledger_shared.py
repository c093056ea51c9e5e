"""Several instances on one ledger: a key is one's alone, and a change is made by whoever it belongs to."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.errors import KeyBusy
from service.ledger.ledger import Ledger, NewBatch
from service.model.names import TableName
from tests.fakes import FakeOwners, MuteLedger

ORDERS = TableName("acme", "shop", "orders")


class Shared:
    """A ledger's file, and two instances that use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.here = self.instance(FakeOwners("here"))
        assert isinstance(self.here.owners, FakeOwners)
        self.there = self.instance(self.here.owners.beside("there"))

    def instance(self, owners: FakeOwners) -> MuteLedger:
        ledger = MuteLedger(f"sqlite:///{self.path}")
        ledger.owners = owners
        return ledger


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path / "ledger.db")


def started(batch: str, *keys: str, fingerprint: str = "print") -> NewBatch:
    return NewBatch(batch, ORDERS, "uuid-1", "WRITE", ["r"], keys=dict.fromkeys(keys, fingerprint))


def batch_of(ledger: Ledger, key: str) -> str | None:
    known = ledger.key(key)
    return known.batch if known else None


class TestKeys:
    """Of several instances that begin with the same key one may."""

    def test_who_comes_second_is_told_which_keys_are_taken_and_nothing_of_the_batch_is_noted(
        self, shared: Shared
    ) -> None:
        shared.there.begin(started("theirs", "k1", "k2"))
        with pytest.raises(KeyBusy) as busy:
            shared.here.begin(started("ours", "k0", "k1", "k2", "k3", fingerprint="another"))
        assert busy.value.keys == {"k1", "k2"}
        assert (busy.value.field, busy.value.retryable) == ("idempotency_key", True)
        assert shared.here.find("ours") is None
        assert [shared.here.key(k) for k in ("k0", "k3")] == [None, None]
        known = shared.here.key("k1")
        assert known
        assert (known.batch, known.fingerprint, known.owner) == ("theirs", "print", "there")

    def test_without_the_taken_ones_it_may_begin(self, shared: Shared) -> None:
        shared.there.begin(started("theirs", "k1"))
        with pytest.raises(KeyBusy):
            shared.here.begin(started("ours", "k0", "k1"))
        shared.here.begin(started("ours", "k0"))
        assert (batch_of(shared.here, "k0"), batch_of(shared.here, "k1")) == ("ours", "theirs")

    def test_without_keys_nobody_is_in_anybodys_way(self, shared: Shared) -> None:
        shared.there.begin(started("theirs"))
        shared.here.begin(started("ours"))
        assert {(b.batch, b.owner) for b in shared.here.unfinished()} == {("theirs", "there"), ("ours", "here")}

    def test_a_batch_that_came_to_nothing_leaves_its_keys_to_anybody(self, shared: Shared) -> None:
        shared.there.begin(started("theirs", "k1"))
        shared.there.end("theirs", None)
        shared.here.begin(started("ours", "k1"))
        assert batch_of(shared.here, "k1") == "ours"
        with pytest.raises(KeyBusy):
            shared.there.begin(started("theirs again", "k1"))

    @pytest.mark.parametrize("there", ["there", "gone"])
    def test_what_was_done_is_not_begun_again_whether_or_not_its_instance_is_there(
        self, shared: Shared, there: str
    ) -> None:
        """Also without an answer: the change is in the table."""
        shared.there.begin(started("theirs", "k1"))
        shared.there.end("theirs", 7)
        if there == "gone":
            shared.there.owners.close()
        with pytest.raises(KeyBusy):
            shared.here.begin(started("ours", "k1"))

    def test_what_was_begun_is_not_begun_again_before_it_was_taken_over(self, shared: Shared) -> None:
        """The JVM of an instance that is gone may still commit it."""
        shared.there.begin(started("theirs", "k1"))
        shared.there.owners.close()
        with pytest.raises(KeyBusy):
            shared.here.begin(started("ours", "k1"))

    @pytest.mark.parametrize("batch", ["theirs", None])
    def test_a_key_that_was_answered_elsewhere_is_not_taken(self, shared: Shared, batch: str | None) -> None:
        if batch:
            shared.there.begin(started(batch, "k1"))
            shared.there.end(batch, 7, {"k1": b"answer"})
        else:
            shared.there.answer("k1", "print", b"answer")
        with pytest.raises(KeyBusy) as busy:
            shared.here.begin(started("ours", "k1", "k2"))
        assert busy.value.keys == {"k1"}
        known = shared.here.key("k1")
        assert known
        assert (known.batch, known.answer) == (batch, b"answer")

    def test_no_answer_is_kept_for_a_key_that_another_is_at_work_on(self, shared: Shared) -> None:
        shared.there.begin(started("theirs", "k1"))
        with pytest.raises(KeyBusy) as busy:
            shared.here.answer("k1", "print", b"ours")
        assert busy.value.keys == {"k1"}
        shared.there.end("theirs", 7, {"k1": b"theirs"})
        assert shared.here.answer("k1", "print", b"ours") == b"theirs"

    def test_an_answer_is_kept_for_a_key_whose_batch_came_to_nothing_elsewhere(self, shared: Shared) -> None:
        shared.there.begin(started("theirs", "k1"))
        shared.there.end("theirs", None)
        assert shared.here.answer("k1", "print", b"ours") == b"ours"
        assert shared.there.answer("k1", "print", b"theirs") == b"ours"

    @pytest.mark.parametrize("ended", [False, True])
    def test_an_attempt_of_ones_own_may_be_followed_by_another(self, shared: Shared, ended: bool) -> None:
        shared.here.begin(started("first", "k1", "k2"))
        if ended:
            shared.here.end("first", None)
        shared.here.begin(started("second", "k1", fingerprint="another"))
        known = shared.here.key("k1")
        assert known
        assert (known.batch, known.fingerprint, known.state) == ("second", "another", "begun")
        assert batch_of(shared.here, "k2") == "first"

    def test_of_more_keys_than_a_statement_takes_values_each_taken_one_is_named(self, shared: Shared) -> None:
        taken = {f"k{i}" for i in range(0, 1300, 100)}
        shared.there.begin(started("theirs", *taken))
        with pytest.raises(KeyBusy) as busy:
            shared.here.begin(started("ours", *(f"k{i}" for i in range(1300))))
        assert busy.value.keys == taken
        shared.here.begin(started("ours", *(f"k{i}" for i in range(1300) if f"k{i}" not in taken)))

    def test_of_two_at_once_just_one_may(self, shared: Shared) -> None:
        """Their keys are given in opposite orders, and overlap: whoever loses leaves nothing of its own behind."""
        rounds = 30
        barrier = threading.Barrier(2, timeout=30)
        busy: dict[str, dict[int, frozenset[str]]] = {"here": {}, "there": {}}

        def begin(name: str, ledger: Ledger, order: Callable[[list[str]], list[str]]) -> None:
            for turn in range(rounds):
                keys = order([f"{turn}-a", f"{turn}-b", f"{turn}-{name}"])
                barrier.wait()
                try:
                    ledger.begin(started(f"{turn}-{name}", *keys))
                except KeyBusy as e:
                    busy[name][turn] = e.keys

        threads = [
            threading.Thread(target=begin, args=("here", shared.here, list)),
            threading.Thread(target=begin, args=("there", shared.there, lambda keys: keys[::-1])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert busy["here"].keys() ^ busy["there"].keys() == set(range(rounds))
        for turn in range(rounds):
            loser, winner = ("here", "there") if turn in busy["here"] else ("there", "here")
            assert busy[loser][turn] == {f"{turn}-a", f"{turn}-b"}
            assert [batch_of(shared.here, f"{turn}-{k}") for k in ("a", "b", winner)] == [f"{turn}-{winner}"] * 3
            assert (shared.here.find(f"{turn}-{loser}"), shared.here.key(f"{turn}-{loser}")) == (None, None)


class TestOwners:
    """A change belongs to who began it, until another takes it over; then to that one alone."""

    def test_a_change_is_ours_while_it_is_begun_and_nobody_has_taken_it_over(self, shared: Shared) -> None:
        shared.here.begin(started("ours"))
        assert (shared.here.is_ours("ours"), shared.there.is_ours("ours")) == (True, False)
        shared.here.end("ours", 7)
        assert (shared.here.is_ours("ours"), shared.here.is_ours("never begun")) == (False, False)

    def test_who_takes_it_over_may_look_after_it_and_not_make_it(self, shared: Shared) -> None:
        shared.there.begin(started("theirs", "k1"))
        noted = shared.here.find("theirs")
        assert noted
        assert shared.here.take_over(noted)
        now = shared.here.find("theirs")
        assert now
        assert (now.state, now.owner) == ("taken", "here")
        assert [b.batch for b in shared.here.unfinished()] == ["theirs"]
        assert (shared.here.is_ours("theirs"), shared.there.is_ours("theirs")) == (False, False)

    def test_who_comes_second_does_not_take_it_over(self, shared: Shared) -> None:
        shared.there.begin(started("theirs"))
        noted = shared.here.find("theirs")
        assert noted
        third = shared.instance(FakeOwners("third"))
        assert (shared.here.take_over(noted), third.take_over(noted)) == (True, False)
        again = third.find("theirs")
        assert again
        assert again.owner == "here"
        assert third.take_over(again), "what was taken over may be taken over again"

    @pytest.mark.parametrize("snapshot_id", [7, None])
    def test_what_has_ended_meanwhile_is_not_taken_over(self, shared: Shared, snapshot_id: int | None) -> None:
        shared.there.begin(started("theirs"))
        noted = shared.here.find("theirs")
        assert noted
        shared.there.end("theirs", snapshot_id)
        assert not shared.here.take_over(noted)
        ended = shared.here.find("theirs")
        assert ended
        assert (ended.owner, ended.snapshot_id) == ("there", snapshot_id)

    def test_of_many_at_once_one_takes_it_over(self, shared: Shared) -> None:
        ledgers = [shared.instance(FakeOwners(f"i{i}")) for i in range(4)]
        for turn in range(5):
            shared.there.begin(started(f"b{turn}"))
            noted = shared.here.find(f"b{turn}")
            assert noted
            with ThreadPoolExecutor(4) as pool:
                taken = list(pool.map(lambda ledger, noted: ledger.take_over(noted), ledgers, [noted] * 4))
            assert sorted(taken) == [False, False, False, True]

    def test_a_change_that_was_taken_over_keeps_its_keys_from_being_forgotten(self, shared: Shared) -> None:
        shared.there.begin(started("theirs", "k1"))
        noted = shared.here.find("theirs")
        assert noted
        shared.here.take_over(noted)
        shared.here.forget(2**53, 2**53)
        assert batch_of(shared.here, "k1") == "theirs"
