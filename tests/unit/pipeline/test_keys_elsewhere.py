"""A key that another instance has is waited for: its answer is ours, and so is the request if it comes to nothing."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from service.commits.ask import Ask, Key
from service.commits.keys import Claim, Keys
from service.errors import FirnError, KeyBusy, KeyReused, LedgerUnavailable
from service.ledger.ledger import Begun, KeyNote
from service.names import TableName
from tests.fakes import FakeOwners, MuteLedger

ORDERS = TableName("acme", "shop", "orders")
Found = Claim[str] | FirnError


def key(text: str = "k1", print_: str = "print") -> Key:
    return Key("WRITE", ORDERS, text, print_)


class Two:
    """The keys of this instance, and the ledgers of both."""

    def __init__(self, path: Path) -> None:
        owners = FakeOwners("here")
        self.here, self.there = (MuteLedger(f"sqlite:///{path}") for _ in range(2))
        self.here.owners, self.there.owners = owners, owners.beside("there")
        self.keys = Keys[str](self.here)

    def begun_there(self, batch: str = "theirs", text: str = "k1") -> None:
        self.there.begin(Begun(batch, ORDERS, "uuid", "WRITE", ["r0"], keys={key(text).id: "print"}))

    def wait(self, text: str = "k1", keys: Keys[str] | None = None) -> "Future[Found]":
        """What is said of a key in the end."""
        found: Future[Found] = Future()
        (keys or self.keys).wait(key(text), f"r-{text}", found.set_result)
        return found


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path / "ledger.db")


def when_asked(two: Two, steps: dict[int, Callable[[], object]]) -> None:
    """Do something just before the ledger is asked after a key for the so manieth time."""
    asked, ask = 0, two.here.key

    def and_do(key_id: str) -> KeyNote | None:
        nonlocal asked
        asked += 1
        steps.get(asked, lambda: None)()
        return ask(key_id)

    two.here.key = and_do  # type: ignore[method-assign]  # what happens meanwhile


class TestClaim:
    """What is said of a key at first."""

    def test_what_a_live_instance_has_begun_is_elsewhere(self, two: Two) -> None:
        two.begun_there()
        claim = two.keys.claim(key(), "r1")
        assert claim == Claim(Ask("r1", key(), "theirs"), elsewhere=True)

    def test_who_sends_the_same_meanwhile_waits_for_the_same_answer(self, two: Two) -> None:
        two.begun_there()
        two.keys.claim(key(), "r1")
        second = two.keys.claim(key(), "r2")
        assert second.under_way
        two.keys.release(key(), "the answer")
        assert second.under_way.result(0) == "the answer"

    def test_what_was_taken_over_by_a_live_instance_is_elsewhere(self, two: Two) -> None:
        two.there.begin(Begun("lost", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
        third = MuteLedger(str(two.there._engine.url))
        third.owners = FakeOwners("third")
        noted = third.find("lost")
        assert noted
        two.there.owners.close()
        assert not two.keys.claim(key(), "r1").elsewhere
        two.keys.release(key(), "")
        assert third.take_over(noted)
        assert isinstance(two.here.owners, FakeOwners)
        two.here.owners.present.add("third")
        assert two.keys.claim(key(), "r2").elsewhere

    def test_what_was_answered_there_is_answered_here(self, two: Two) -> None:
        two.begun_there()
        two.there.end("theirs", 7, {key().id: b"body"})
        claim = two.keys.claim(key(), "r1")
        assert (claim.answer, claim.elsewhere) == (b"body", False)

    def test_an_answer_outlives_its_instance(self, two: Two) -> None:
        two.begun_there()
        two.there.end("theirs", 7, {key().id: b"body"})
        two.there.owners.close()
        assert two.keys.claim(key(), "r1").answer == b"body"

    def test_what_came_to_nothing_there_is_free(self, two: Two) -> None:
        two.begun_there()
        two.there.end("theirs", None)
        claim = two.keys.claim(key(), "r1")
        assert claim == Claim(Ask("r1", key(), "theirs"))

    def test_what_an_instance_had_begun_that_is_gone_is_ours_to_look_after(self, two: Two) -> None:
        two.begun_there()
        two.there.owners.close()
        claim = two.keys.claim(key(), "r1")
        assert claim == Claim(Ask("r1", key(), "theirs"))

    def test_an_attempt_of_our_own_is_not_elsewhere(self, two: Two) -> None:
        two.here.begin(Begun("ours", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
        claim = two.keys.claim(key(), "r1")
        assert claim == Claim(Ask("r1", key(), "ours"))

    def test_another_request_under_a_key_that_is_elsewhere_is_refused(self, two: Two) -> None:
        two.begun_there()
        with pytest.raises(KeyReused):
            two.keys.claim(key(print_="another"), "r1")
        assert two.keys.claim(key(), "r2").elsewhere, "the refusal left nothing behind"


class TestWait:
    """`then` is called once, when it is known what the key means here."""

    def test_with_the_answer_once_there_is_one(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: two.there.end("theirs", 7, {key().id: b"body"})})
        found = two.wait().result(5)
        assert isinstance(found, Claim)
        assert (found.answer, found.elsewhere, found.ask) == (b"body", False, Ask("r-k1", key(), "theirs"))

    def test_with_a_free_key_once_the_batch_is_void(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: two.there.end("theirs", None)})
        assert two.wait().result(5) == Claim(Ask("r-k1", key(), "theirs"))

    def test_with_a_free_key_once_the_instance_is_gone(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: two.there.owners.close()})
        assert two.wait().result(5) == Claim(Ask("r-k1", key(), "theirs"))

    def test_not_while_it_is_still_tried_there_in_one_batch_after_another(self, two: Two) -> None:
        two.begun_there()

        def try_again() -> None:
            two.there.end("theirs", None)
            two.begun_there("theirs again")

        when_asked(two, {2: try_again, 3: lambda: two.there.end("theirs again", 8, {key().id: b"body"})})
        found = two.wait().result(5)
        assert isinstance(found, Claim)
        assert (found.answer, found.ask.earlier) == (b"body", "theirs again")

    def test_with_a_refusal_when_patience_ends(self, two: Two) -> None:
        two.begun_there()
        found = two.wait(keys=Keys[str](two.here, patience_s=0)).result(5)
        assert isinstance(found, KeyBusy)
        assert (found.status, found.retryable, found.field) == (503, True, "idempotency_key")
        known = two.here.key(key().id)
        assert known
        assert known.batch == "theirs"

    def test_not_before_it_ends(self, two: Two) -> None:
        two.begun_there()
        found = two.wait(keys=Keys[str](two.here, patience_s=0.5))
        with pytest.raises(TimeoutError):
            found.result(0.05)
        assert isinstance(found.result(5), KeyBusy)

    def test_with_a_refusal_where_the_key_stands_for_another_request_by_now(self, two: Two) -> None:
        two.begun_there()

        def reuse() -> None:
            two.there.end("theirs", None)
            two.there.begin(Begun("other", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "another"}))

        when_asked(two, {2: reuse})
        assert isinstance(two.wait().result(5), KeyReused)

    def test_a_ledger_that_does_not_answer_for_a_moment_is_waited_for(self, two: Two) -> None:
        two.begun_there()
        two.here.mute = frozenset({"key"})
        found = two.wait()
        with pytest.raises(TimeoutError):
            found.result(0.12)
        two.there.end("theirs", 7, {key().id: b"body"})
        two.here.mute = frozenset()
        claim = found.result(5)
        assert isinstance(claim, Claim)
        assert claim.answer == b"body"

    def test_one_that_never_does_is_told_when_patience_ends(self, two: Two) -> None:
        two.begun_there()
        two.here.mute = frozenset({"key"})
        assert isinstance(two.wait(keys=Keys[str](two.here, patience_s=0)).result(5), LedgerUnavailable)

    def test_many_wait_at_once_each_for_its_own(self, two: Two) -> None:
        """On one thread, which ends with the last of them, and is there again for the next."""
        texts = [f"k{i}" for i in range(6)]
        for text in texts:
            two.begun_there(f"b-{text}", text)
        found = {text: two.wait(text) for text in texts}
        for text in reversed(texts):
            two.there.end(f"b-{text}", 7, {key(text).id: text.encode()})
            claim = found[text].result(5)
            assert isinstance(claim, Claim)
            assert claim.answer == text.encode()
        assert all(isinstance(f.result(0), Claim) for f in found.values())
        two.begun_there("later", "later")
        later = two.wait("later")
        assert sum(thread.name == "firn-keys" and thread.is_alive() for thread in threading.enumerate()) <= 2
        two.there.end("later", None)
        assert later.result(5) == Claim(Ask("r-later", key("later"), "later"))

    def test_who_begins_to_wait_just_when_the_last_was_told_is_told_too(self, two: Two) -> None:
        for i in range(3):
            two.begun_there(f"one{i}", f"one{i}")
            two.there.end(f"one{i}", None)
            two.begun_there(f"two{i}", f"two{i}")
            told: Future[Found] = Future()

            def then(claim: Found, i: int = i, told: "Future[Found]" = told) -> None:
                two.there.end(f"two{i}", None)
                two.keys.wait(key(f"two{i}"), "r", told.set_result)

            two.keys.wait(key(f"one{i}"), "r", then)
            assert isinstance(told.result(5), Claim)

    def test_one_whose_telling_fails_keeps_nobody_else_waiting(self, two: Two) -> None:
        for text in ("k1", "k2"):
            two.begun_there(f"b-{text}", text)

        def fail(claim: Found) -> None:
            raise RuntimeError("a defect")

        two.keys.wait(key("k1"), "r", fail)
        second = two.wait("k2")
        two.there.end("b-k1", None)
        time.sleep(0.12)
        two.there.end("b-k2", None)
        assert isinstance(second.result(1), Claim)
