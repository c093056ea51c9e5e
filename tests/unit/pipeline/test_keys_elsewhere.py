"""A key that another instance has is waited for: its answer is ours, and so is the request if it comes to nothing."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.ledger.ledger import KeyRecord, NewBatch
from service.model import wire
from service.model.call import Call, IdempotencyKey
from service.model.names import TableName
from service.pipeline.idempotency import IdempotencyKeys
from service.pipeline.response import Response, failure
from tests.fakes import FakeOwners, MuteLedger
from tests.harness import wait_until

ORDERS = TableName("acme", "shop", "orders")
OURS, THEIRS = Response(200, b"ours"), Response(200, b"body")


def key(text: str = "k1", print_: str = "print") -> IdempotencyKey:
    return IdempotencyKey("WRITE", ORDERS, text, print_)


@dataclass
class Found:
    """What a request was answered, and as what its work was done here, if it was."""

    response: Response
    done: tuple[str, IdempotencyKey | None, str | None] | None

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = wire.parse(self.response.body)["error"]
        return error


class Two:
    """The keys of this instance, and the ledgers of both."""

    def __init__(self, path: Path) -> None:
        owners = FakeOwners("here")
        self.here, self.there = (MuteLedger(f"sqlite:///{path}") for _ in range(2))
        self.here.owners, self.there.owners = owners, owners.beside("there")
        self.keys = IdempotencyKeys(self.here)

    def begun_there(self, batch: str = "theirs", text: str = "k1") -> None:
        self.there.begin(NewBatch(batch, ORDERS, "uuid", "WRITE", ["r0"], keys={key(text).id: "print"}))

    async def once(
        self,
        wanted: IdempotencyKey,
        keys: IdempotencyKeys | None = None,
        work: Callable[[], Awaitable[Response]] | None = None,
    ) -> Found:
        """What comes of a request, whose work is done at once if nothing else is said."""
        call, done = Call(f"r-{wanted.text}"), []

        async def recorded() -> Response:
            done.append((call.id, call.key, call.earlier))
            return await work() if work else OURS

        try:
            response = await (keys or self.keys).once(call, wanted, recorded)
        except Exception as e:
            response = failure(e, call)
        return Found(response, done[0] if done else None)

    def ask(self, print_: str = "print") -> Found:
        """What comes of a request that has no patience with other instances."""
        return asyncio.run(self.once(key(print_=print_), IdempotencyKeys(self.here, patience_s=0)))

    @property
    def is_elsewhere(self) -> bool:
        """Whether another instance is found to work on the key."""
        found = self.ask()
        assert (found.response.code == "KEY_BUSY") == (found.done is None)
        return found.done is None

    def wait(self, keys: IdempotencyKeys | None = None) -> "Future[Found]":
        """What comes of a request in the end."""
        found: Future[Found] = Future()
        ask = self.once(key(), keys)
        threading.Thread(target=lambda: found.set_result(asyncio.run(ask)), daemon=True).start()
        return found


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path / "ledger.db")


def when_asked(two: Two, steps: dict[int, Callable[[], object]]) -> None:
    """Do something just before the ledger is asked after a key for the so manieth time."""
    asked, look = 0, two.here.key

    def and_do(key_id: str) -> KeyRecord | None:
        nonlocal asked
        asked += 1
        steps.get(asked, lambda: None)()
        return look(key_id)

    two.here.key = and_do  # type: ignore[method-assign]  # what happens meanwhile


class TestAtFirst:
    """What is found of a key at first."""

    def test_what_a_live_instance_has_begun_is_elsewhere(self, two: Two) -> None:
        two.begun_there()
        assert two.is_elsewhere

    def test_who_sends_the_same_meanwhile_waits_for_the_same_answer(self, two: Two) -> None:
        two.begun_there()

        async def run() -> list[Found]:
            both = [asyncio.create_task(two.once(key())) for _ in range(2)]
            while not two.keys._in_progress:
                await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            assert len(two.keys._in_progress) == 1
            two.there.end("theirs", None)
            return await asyncio.gather(*both)

        first, second = asyncio.run(run())
        assert first.response is second.response
        assert (first.done, second.done) == (("r-k1", key(), "theirs"), None)

    def test_what_was_taken_over_by_a_live_instance_is_elsewhere(self, two: Two) -> None:
        two.there.begin(NewBatch("lost", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
        third = MuteLedger(str(two.there._engine.url))
        third.owners = FakeOwners("third")
        noted = third.find("lost")
        assert noted
        two.there.owners.close()
        assert not two.is_elsewhere
        assert third.take_over(noted)
        assert isinstance(two.here.owners, FakeOwners)
        two.here.owners.present.add("third")
        assert two.is_elsewhere

    def test_what_was_answered_there_is_answered_here(self, two: Two) -> None:
        two.begun_there()
        two.there.end("theirs", 7, {key().id: b"body"})
        assert two.ask() == Found(THEIRS, None)

    def test_an_answer_outlives_its_instance(self, two: Two) -> None:
        two.begun_there()
        two.there.end("theirs", 7, {key().id: b"body"})
        two.there.owners.close()
        assert two.ask() == Found(THEIRS, None)

    def test_what_came_to_nothing_there_is_free(self, two: Two) -> None:
        two.begun_there()
        two.there.end("theirs", None)
        assert two.ask() == Found(OURS, ("r-k1", key(), "theirs"))

    def test_what_an_instance_had_begun_that_is_gone_is_ours_to_look_after(self, two: Two) -> None:
        two.begun_there()
        two.there.owners.close()
        assert two.ask() == Found(OURS, ("r-k1", key(), "theirs"))

    def test_an_attempt_of_our_own_is_not_elsewhere(self, two: Two) -> None:
        two.here.begin(NewBatch("ours", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
        assert two.ask() == Found(OURS, ("r-k1", key(), "ours"))

    def test_another_request_under_a_key_that_is_elsewhere_is_refused(self, two: Two) -> None:
        two.begun_there()
        assert two.ask(print_="another").response.code == "KEY_REUSED"
        assert two.is_elsewhere, "the refusal left nothing behind"


class TestWait:
    """A request ends when it is known what its key means here."""

    def test_with_the_answer_once_there_is_one(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: two.there.end("theirs", 7, {key().id: b"body"})})
        assert two.wait().result(30) == Found(THEIRS, None)

    def test_with_a_free_key_once_the_batch_is_void(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: two.there.end("theirs", None)})
        assert two.wait().result(30) == Found(OURS, ("r-k1", key(), "theirs"))

    def test_with_a_free_key_once_the_instance_is_gone(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: two.there.owners.close()})
        assert two.wait().result(30) == Found(OURS, ("r-k1", key(), "theirs"))

    def test_not_while_it_is_still_tried_there_in_one_batch_after_another(self, two: Two) -> None:
        two.begun_there()
        ends: list[str] = []

        def try_again() -> None:
            two.there.end("theirs", None)
            two.begun_there("theirs again")
            ends.append("theirs")

        def end() -> None:
            two.there.end("theirs again", 8, {key().id: b"body"})
            ends.append("theirs again")

        when_asked(two, {2: try_again, 3: end})
        assert two.wait().result(30) == Found(THEIRS, None)
        assert ends == ["theirs", "theirs again"]

    def test_with_a_refusal_when_patience_ends(self, two: Two) -> None:
        two.begun_there()
        found = two.wait(IdempotencyKeys(two.here, patience_s=0)).result(30)
        assert (found.response.code, found.done) == ("KEY_BUSY", None)
        assert (found.response.status, found.error["retryable"], found.error["field"]) == (503, True, "idempotency_key")
        known = two.here.key(key().id)
        assert known
        assert known.batch == "theirs"

    def test_not_before_it_ends(self, two: Two) -> None:
        two.begun_there()
        since = time.monotonic()
        found = two.wait(IdempotencyKeys(two.here, patience_s=0.2))
        assert found.result(30).response.code == "KEY_BUSY"
        assert time.monotonic() - since >= 0.2

    def test_with_a_refusal_where_the_key_stands_for_another_request_by_now(self, two: Two) -> None:
        two.begun_there()

        def reuse() -> None:
            two.there.end("theirs", None)
            two.there.begin(NewBatch("other", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "another"}))

        when_asked(two, {2: reuse})
        assert two.wait().result(30).response.code == "KEY_REUSED"

    def test_a_ledger_that_does_not_answer_for_a_moment_is_waited_for(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: setattr(two.here, "mute", frozenset({"key"}))})
        found = two.wait()
        wait_until(lambda: two.here.mute, 30, every=0.01)
        with pytest.raises(TimeoutError):
            found.result(0.2)
        two.there.end("theirs", 7, {key().id: b"body"})
        two.here.mute = frozenset()
        assert found.result(30) == Found(THEIRS, None)

    def test_one_that_never_does_is_told_when_patience_ends(self, two: Two) -> None:
        two.begun_there()
        when_asked(two, {2: lambda: setattr(two.here, "mute", frozenset({"key"}))})
        found = two.wait(IdempotencyKeys(two.here, patience_s=0)).result(30)
        assert (found.response.code, found.done) == ("LEDGER_UNAVAILABLE", None)

    def test_many_wait_at_once_each_for_its_own(self, two: Two) -> None:
        """In one event loop, and on no thread of their own."""
        texts = [f"k{i}" for i in range(6)]
        for text in texts:
            two.begun_there(f"b-{text}", text)

        async def run() -> None:
            found = {text: asyncio.create_task(two.once(key(text))) for text in texts}
            for text in reversed(texts):
                await asyncio.sleep(0.02)
                assert not found[text].done()
                two.there.end(f"b-{text}", 7, {key(text).id: text.encode()})
                assert await found[text] == Found(Response(200, text.encode()), None)
            two.begun_there("later", "later")
            later = asyncio.create_task(two.once(key("later")))
            await asyncio.sleep(0.02)
            two.there.end("later", None)
            assert await later == Found(OURS, ("r-later", key("later"), "later"))

        asyncio.run(asyncio.wait_for(run(), 10))

    def test_who_begins_to_wait_just_when_the_last_was_told_is_told_too(self, two: Two) -> None:
        async def run() -> None:
            for i in range(3):
                two.begun_there(f"one{i}", f"one{i}")
                two.there.end(f"one{i}", None)
                two.begun_there(f"two{i}", f"two{i}")

                async def then(i: int = i) -> Response:
                    two.there.end(f"two{i}", None)
                    return (await two.once(key(f"two{i}"))).response

                assert (await two.once(key(f"one{i}"), work=then)).response == OURS

        asyncio.run(asyncio.wait_for(run(), 10))

    def test_one_whose_work_fails_keeps_nobody_else_waiting(self, two: Two) -> None:
        for text in ("k1", "k2"):
            two.begun_there(f"b-{text}", text)

        async def fail() -> Response:
            raise RuntimeError("a defect")

        async def run() -> None:
            first, second = (
                asyncio.create_task(two.once(key("k1"), work=fail)),
                asyncio.create_task(two.once(key("k2"))),
            )
            await asyncio.sleep(0.02)
            two.there.end("b-k1", None)
            assert (await first).response.code == "INTERNAL_ERROR"
            two.there.end("b-k2", None)
            assert (await second).response == OURS

        asyncio.run(asyncio.wait_for(run(), 10))
