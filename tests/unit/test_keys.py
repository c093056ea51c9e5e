"""Idempotency keys: one owner at a time, the same answer to whoever waits, and nothing for another request."""

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service import wire
from service.commits.ask import Ask, Key, fingerprint
from service.commits.keys import Keys
from service.errors import KeyReused, LedgerUnavailable
from service.ledger.ledger import Begun
from service.names import TableName
from tests.fakes import MuteLedger

ORDERS = TableName("acme", "shop", "orders")


@pytest.fixture
def ledger(tmp_path: Path) -> MuteLedger:
    return MuteLedger(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def keys(ledger: MuteLedger) -> Keys[str]:
    return Keys(ledger)


def key(text: str = "k1", print_: str = "print", **other: Any) -> Key:
    return Key(**{"operation": "WRITE", "table": ORDERS, "text": text, "fingerprint": print_, **other})


def test_a_new_key_is_claimed_by_whoever_comes_first(keys: Keys[str]) -> None:
    claim = keys.claim(key(), "r1")
    assert (claim.ask, claim.answer, claim.under_way) == (Ask("r1", key()), None, None)


def test_the_second_waits_for_the_first_and_is_answered_the_same(keys: Keys[str]) -> None:
    keys.claim(key(), "r1")
    second, third = keys.claim(key(), "r2"), keys.claim(key(), "r3")
    assert second.under_way
    assert third.under_way
    assert not second.under_way.done()
    assert keys.claim(key("k2"), "r4").under_way is None
    keys.release(key(), "the answer")
    assert second.under_way.result(0) == third.under_way.result(0) == "the answer"


def test_a_key_that_was_released_without_a_stored_answer_is_claimed_anew(keys: Keys[str]) -> None:
    """What failed is told to those who waited for it, and then tried again by whoever asks."""
    keys.claim(key(), "r1")
    keys.release(key(), "it failed")
    claim = keys.claim(key(), "r2")
    assert (claim.answer, claim.under_way, claim.ask.earlier) == (None, None, None)


def test_a_stored_answer_is_given_again_also_after_a_restart(keys: Keys[str], ledger: MuteLedger) -> None:
    keys.claim(key(), "r1")
    keys.store(key(), b"body")
    keys.release(key(), "the answer")
    for again in (keys, Keys[str](ledger)):
        claim = again.claim(key(), "r2")
        assert (claim.answer, claim.under_way) == (b"body", None)
        again.release(key(), "the answer")


def test_a_key_that_was_noted_and_not_answered_says_in_which_batch(keys: Keys[str], ledger: MuteLedger) -> None:
    ledger.begin(Begun("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    claim = keys.claim(key(), "r1")
    assert (claim.ask, claim.answer) == (Ask("r1", key(), "b1"), None)


@pytest.mark.parametrize("state", ["under way", "answered", "noted"])
def test_a_key_that_stood_for_another_request_is_refused(state: str, keys: Keys[str], ledger: MuteLedger) -> None:
    if state == "noted":
        ledger.begin(Begun("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    else:
        keys.claim(key(), "r1")
    if state == "answered":
        keys.store(key(), b"body")
        keys.release(key(), "the answer")
    with pytest.raises(KeyReused) as refused:
        keys.claim(key(print_="another"), "r2")
    assert (refused.value.field, refused.value.status) == ("idempotency_key", 422)
    assert "'k1' was used for another WRITE" in refused.value.message
    # The refusal took nothing from the one whose key it is.
    claim = keys.claim(key(), "r3")
    assert (claim.under_way is not None) == (state == "under way")


@pytest.mark.parametrize(("snapshot_id", "mute", "known"), [(5, "", "r0"), (None, "", "r9"), (5, "key", "r9")])
def test_a_request_is_known_by_the_id_that_its_effect_is_noted_under(
    snapshot_id: int | None, mute: str, known: str, keys: Keys[str], ledger: MuteLedger
) -> None:
    """Its own, where an attempt before came to nothing or the ledger cannot tell."""
    ledger.begin(Begun("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    ledger.end("b1", snapshot_id)
    ask = keys.claim(key(), "r9").ask
    ledger.mute = frozenset({mute})
    assert keys.id_of(ask) == known


def test_a_request_that_was_tried_anew_is_known_by_its_own_id(keys: Keys[str], ledger: MuteLedger) -> None:
    ledger.begin(Begun("b1", ORDERS, "uuid", "WRITE", ["r0"], keys={key().id: "print"}))
    ledger.end("b1", None)
    ask = keys.claim(key(), "r9").ask
    ledger.begin(Begun("b2", ORDERS, "uuid", "WRITE", ["r8", "r9"], keys={key().id: "print"}, whose={key().id: "r9"}))
    ledger.end("b2", 5)
    assert keys.id_of(ask) == "r9"
    assert keys.id_of(Ask("r10", key(), "b2")) == "r9"


def test_a_long_key_is_quoted_shortly(keys: Keys[str]) -> None:
    keys.claim(key("k" * 200), "r1")
    with pytest.raises(KeyReused) as refused:
        keys.claim(key("k" * 200, "another"), "r2")
    assert "k" * 80 in refused.value.message
    assert "k" * 81 not in refused.value.message


def test_a_ledger_that_cannot_be_asked_leaves_no_key_behind(keys: Keys[str], ledger: MuteLedger) -> None:
    """Whoever waited meanwhile is told the same, and the key can be claimed when the ledger is back."""
    waiting: list[Any] = []

    class Asked(MuteLedger):
        def key(self, key_id: str) -> Any:
            waiting.append(claims.claim(key(), "r2").under_way)
            raise LedgerUnavailable("silent")

    claims = Keys[str](Asked(str(ledger._engine.url)))
    with pytest.raises(LedgerUnavailable):
        claims.claim(key(), "r1")
    assert isinstance(waiting[0].exception(0), LedgerUnavailable)
    assert claims._under_way == {}


def test_of_many_at_once_one_owns_the_key(keys: Keys[str]) -> None:
    for turn in range(10):
        wanted = key(f"k{turn}")
        claims: list[Any] = []
        barrier = threading.Barrier(8)

        def claim(wanted: Key = wanted, claims: list[Any] = claims, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(5)
            claims.append(keys.claim(wanted, "r"))

        threads = [threading.Thread(target=claim) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert sum(c.under_way is None for c in claims) == 1
        keys.release(wanted, "done")
        assert [c.under_way.result(1) for c in claims if c.under_way] == ["done"] * 7


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
