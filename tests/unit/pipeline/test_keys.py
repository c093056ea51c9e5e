"""Idempotency keys: one request does the work, and all who send the same meanwhile get its response."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Cancelled, CatalogUnavailable, LedgerUnavailable
from service.ledger.ledger import NewBatch
from service.model import wire
from service.model.call import Call, IdempotencyKey, fingerprint
from service.model.names import TableName
from service.pipeline.idempotency import IdempotencyKeys
from service.pipeline.response import Response, failure
from tests.fakes import FakeOwners, MuteLedger

ORDERS = TableName("acme", "shop", "orders")
ANSWER = Response(200, b"the answer")


@pytest.fixture
def ledger(tmp_path: Path) -> MuteLedger:
    return MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def keys(ledger: MuteLedger) -> IdempotencyKeys:
    return IdempotencyKeys(ledger)


def key(text: str = "k1", print_: str = "print", **other: Any) -> IdempotencyKey:
    return IdempotencyKey(**{"operation": "WRITE", "table": ORDERS, "text": text, "fingerprint": print_, **other})


class CommitSetup:
    """Where requests with keys come in. `worked` are the calls whose work was done."""

    def __init__(self, keys: IdempotencyKeys) -> None:
        self.keys = keys
        self.worked: list[Call] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def once(
        self,
        request_id: str,
        wanted: IdempotencyKey | None = None,
        work: Callable[[], Awaitable[Response]] | None = None,
    ) -> Response:
        """The response to a request, whose work is done at once if nothing else is said."""
        call = Call(request_id)

        async def recorded() -> Response:
            self.worked.append(call)
            return await work() if work else ANSWER

        try:
            return await self.keys.once(call, wanted or key(), recorded)
        except Exception as e:
            return failure(e, call)

    async def held(self) -> Response:
        """Work that ends when the test says so."""
        self.begun.set()
        await self.go_on.wait()
        return ANSWER

    async def stored(self) -> Response:
        """Work whose response is kept."""
        return Response(200, self.keys.store(key(), b"body"))


def once(keys: IdempotencyKeys, request_id: str, wanted: IdempotencyKey | None = None) -> tuple[Response, Call | None]:
    """The response to a request, and its call if its work was done."""
    setup = CommitSetup(keys)
    response = asyncio.run(setup.once(request_id, wanted))
    return response, setup.worked[0] if setup.worked else None


def error(response: Response) -> dict[str, Any]:
    found: dict[str, Any] = wire.parse(response.body)["error"]
    return found


def test_the_work_of_a_new_key_is_done_by_whoever_comes_first(keys: IdempotencyKeys) -> None:
    response, call = once(keys, "r1")
    assert call
    assert (response, call.id, call.key, call.earlier) == (ANSWER, "r1", key(), None)


def test_the_second_waits_for_the_first_and_is_answered_the_same(keys: IdempotencyKeys) -> None:
    async def run() -> None:
        setup = CommitSetup(keys)
        first = asyncio.create_task(setup.once("r1", work=setup.held))
        await setup.begun.wait()
        others = [asyncio.create_task(setup.once(id)) for id in ("r2", "r3")]
        assert await setup.once("r4", key("k2")) == ANSWER
        assert not any(task.done() for task in (first, *others))
        setup.go_on.set()
        assert await asyncio.gather(first, *others) == [ANSWER] * 3
        assert [call.id for call in setup.worked] == ["r1", "r4"]

    asyncio.run(run())


def test_a_key_whose_work_failed_is_free_again(keys: IdempotencyKeys) -> None:
    """What failed is told to those who waited for it, and then tried again by whoever asks."""

    async def run() -> None:
        setup = CommitSetup(keys)

        async def fail() -> Response:
            await setup.held()
            return failure(CatalogUnavailable("it failed"), Call("r1"))

        first = asyncio.create_task(setup.once("r1", work=fail))
        await setup.begun.wait()
        second = asyncio.create_task(setup.once("r2"))
        await asyncio.sleep(0)
        setup.go_on.set()
        assert (await first).code == "CATALOG_UNAVAILABLE"
        assert await second == await first
        assert await setup.once("r3") == ANSWER
        assert [(call.id, call.earlier) for call in setup.worked] == [("r1", None), ("r3", None)]

    asyncio.run(run())


def test_a_stored_answer_is_given_again_also_after_a_restart(keys: IdempotencyKeys, ledger: MuteLedger) -> None:
    setup = CommitSetup(keys)
    asyncio.run(setup.once("r1", work=setup.stored))
    for again in (keys, IdempotencyKeys(ledger)):
        assert once(again, "r2") == (Response(200, b"body"), None)


def test_a_key_that_was_noted_and_not_answered_says_in_which_batch(keys: IdempotencyKeys, ledger: MuteLedger) -> None:
    ledger.begin(NewBatch("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    _, call = once(keys, "r1")
    assert call
    assert (call.id, call.key, call.earlier) == ("r1", key(), "b1")


@pytest.mark.parametrize("state", ["under way", "answered", "noted"])
def test_a_key_that_stood_for_another_request_is_refused(state: str, keys: IdempotencyKeys, ledger: MuteLedger) -> None:
    async def run() -> None:
        setup = CommitSetup(keys)
        if state == "noted":
            ledger.begin(NewBatch("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
        elif state == "answered":
            await setup.once("r1", work=setup.stored)
        else:
            first = asyncio.create_task(setup.once("r1", work=setup.held))
            await setup.begun.wait()
        refused = await setup.once("r2", key(print_="another"))
        assert (refused.status, refused.code, error(refused)["field"]) == (422, "KEY_REUSED", "idempotency_key")
        assert "'k1' was used for another WRITE" in error(refused)["message"]
        # The refusal took nothing from the one whose key it is.
        again = asyncio.create_task(setup.once("r3"))
        if state == "under way":
            await asyncio.sleep(0.02)
            assert not again.done()
            setup.go_on.set()
            assert await again == await first
        assert (await again).status == 200
        assert [call.id for call in setup.worked] == (["r3"] if state == "noted" else ["r1"])

    asyncio.run(run())


@pytest.mark.parametrize(("snapshot_id", "mute", "known"), [(5, "", "r0"), (None, "", "r9"), (5, "key", "r9")])
def test_a_request_is_known_by_the_id_that_its_effect_is_noted_under(
    snapshot_id: int | None, mute: str, known: str, keys: IdempotencyKeys, ledger: MuteLedger
) -> None:
    """Its own, where an attempt before came to nothing or the ledger cannot tell."""
    ledger.begin(NewBatch("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    ledger.end("b1", snapshot_id)
    _, call = once(keys, "r9")
    assert call
    ledger.mute = frozenset({mute})
    assert keys.request_id(call) == known


def test_a_request_that_was_tried_again_is_known_by_its_own_id(keys: IdempotencyKeys, ledger: MuteLedger) -> None:
    ledger.begin(NewBatch("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    ledger.end("b1", None)
    _, call = once(keys, "r9")
    assert call
    ledger.begin(
        NewBatch("b2", ORDERS, "uuid", "WRITE", ["r8", "r9"], keys={key().id: "print"}, whose={key().id: "r9"})
    )
    ledger.end("b2", 5)
    assert keys.request_id(call) == "r9"
    assert keys.request_id(Call("r10", key(), "b2")) == "r9"


def test_a_long_key_is_quoted_shortly(keys: IdempotencyKeys, ledger: MuteLedger) -> None:
    ledger.begin(NewBatch("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key("k" * 200).id: "print"}))
    message = error(once(keys, "r2", key("k" * 200, "another"))[0])["message"]
    assert "k" * 80 in message
    assert "k" * 81 not in message


def test_a_ledger_that_cannot_be_asked_leaves_no_key_behind(ledger: MuteLedger) -> None:
    """Whoever waited meanwhile is told the same, and the work can be done when the ledger is back."""
    looking, go_on = threading.Event(), threading.Event()

    class Silent(MuteLedger):
        def key(self, key_id: str) -> Any:
            looking.set()
            assert go_on.wait(30)
            raise LedgerUnavailable("silent")

    silent = Silent(str(ledger._engine.url))
    silent.owners = FakeOwners("here")  # a ledger of several instances is asked on another thread
    setup = CommitSetup(IdempotencyKeys(silent))

    async def run() -> list[Response]:
        first = asyncio.create_task(setup.once("r1"))
        assert await asyncio.to_thread(looking.wait, 10)
        second = asyncio.create_task(setup.once("r2"))
        await asyncio.sleep(0.02)
        go_on.set()
        return [await first, await second]

    assert [response.code for response in asyncio.run(run())] == ["LEDGER_UNAVAILABLE"] * 2
    assert (setup.worked, setup.keys._in_progress) == ([], {})


def test_of_many_at_once_one_does_the_work(keys: IdempotencyKeys) -> None:
    for turn in range(10):
        wanted = key(f"k{turn}")
        setup, barrier = CommitSetup(keys), threading.Barrier(8)

        async def work(wanted: IdempotencyKey = wanted) -> Response:
            await asyncio.sleep(0.01)
            return Response(200, keys.store(wanted, b"done"))

        def ask(setup: CommitSetup, wanted: IdempotencyKey, barrier: threading.Barrier, work: Any) -> Response:
            barrier.wait(30)
            return asyncio.run(setup.once("r", wanted, work))

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, setup, wanted, barrier, work) for _ in range(8)]
        assert len(setup.worked) == 1
        assert [one.result().body for one in asked] == [b"done"] * 8


def test_the_second_does_the_work_if_the_first_was_cancelled_by_its_caller(keys: IdempotencyKeys) -> None:
    async def run() -> None:
        setup, mine = CommitSetup(keys), Call("r1")

        async def work() -> Response:
            await setup.held()
            try:
                mine.check()
            except Exception as e:
                return failure(e, mine)
            return ANSWER

        first = asyncio.create_task(keys.once(mine, key(), work))
        await setup.begun.wait()
        second = asyncio.create_task(setup.once("r2"))
        await asyncio.sleep(0)
        mine.cancel()
        setup.go_on.set()
        assert (await first).code == "CANCELLED"
        assert await second == ANSWER
        assert [call.id for call in setup.worked] == ["r2"]

    asyncio.run(run())


def test_one_that_was_cancelled_too_does_not_do_it(keys: IdempotencyKeys) -> None:
    async def run() -> None:
        setup, other = CommitSetup(keys), Call("r2")

        async def cancelled() -> Response:
            await setup.held()
            return Response(409, b"", "CANCELLED")

        async def never() -> Response:
            raise AssertionError("it was cancelled")

        first = asyncio.create_task(setup.once("r1", work=cancelled))
        await setup.begun.wait()
        second = asyncio.create_task(keys.once(other, key(), never))
        await asyncio.sleep(0)
        other.cancel()
        setup.go_on.set()
        assert (await first).code == "CANCELLED"
        with pytest.raises(Cancelled):
            await second
        assert keys._in_progress == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "UPSERT"},
        {"table": TableName("acme", "shop", "others")},
        {"table": TableName("acme", "other", "orders")},
        {"table": TableName("bolt", "shop", "orders")},
        {"text": "k2"},
        # Parts that would read alike if they were merely joined.
        {"table": TableName("acme", "shop", "order"), "text": "sk1"},
    ],
)
def test_a_key_is_its_own_in_each_operation_and_table(other: dict[str, Any]) -> None:
    assert key(**other).id != key().id


def test_a_key_is_the_same_whatever_the_request_says() -> None:
    assert key(print_="one").id == key(print_="another").id
    assert len(key().id) == 64


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
REQUESTS = st.dictionaries(st.text(), JSON, max_size=5)


def turned(value: Any) -> Any:
    """The same value, its fields in another order."""
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(REQUESTS)
def test_a_request_has_one_fingerprint_whatever_the_order_of_its_fields(request_: dict[str, Any]) -> None:
    print_ = fingerprint(request_)
    assert len(print_) == 64
    assert fingerprint(turned(request_)) == print_


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "2"),
        ("1", "1.0"),
        ("1.5", '"1.5"'),
        ("1", '"1"'),
        ("1", "true"),
        ("null", '""'),
        ("[1, 2]", "[2, 1]"),
        ("[[1], 2]", "[1, [2]]"),
        ('{"a": 1}', '{"b": 1}'),
        ("100000000000000000000", "100000000000000000001"),
        ("0.1", "0.10000000000000000000001"),
        ('"a"', '"A"'),
        ('"é"', '"e\u0301"'),
    ],
)
def test_requests_that_say_something_else_have_other_fingerprints(one: str, other: str) -> None:
    assert fingerprint({"records": wire.parse(one)}) != fingerprint({"records": wire.parse(other)})


@pytest.mark.parametrize("value", [10**30, -(2**64), Decimal("1e-400"), "\ud800", [[10**30], {"a": "\udfff"}]])
def test_every_value_that_a_request_can_hold_has_a_fingerprint(value: Any) -> None:
    assert fingerprint({"records": value}) == fingerprint({"records": value})
