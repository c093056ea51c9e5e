"""The memory that requests may take together: given out by bytes, and all of it given back."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.exchange import MemoryBudget
from service.errors import BodyTooLarge, TooManyRequests

MIB = 1024 * 1024


def test_a_request_counts_by_its_bytes_eightfold_and_a_little_for_itself() -> None:
    budget = MemoryBudget(100, 1)
    with budget.hold() as held:
        little = budget.taken
        held.add(1000)
        assert budget.taken == little + 8000
        held.take(1000)
        assert budget.taken == little + 9000
        assert 0 < little < 100_000
    assert budget.taken == 0


def test_many_small_requests_fit_where_a_few_large_ones_do_not() -> None:
    budget, held = MemoryBudget(100, 1), []
    for _ in range(1000):
        hold = budget.hold()
        hold.__enter__().add(1000)
        held.append(hold)
    with budget.hold() as large, pytest.raises(TooManyRequests):
        large.add(12 * MIB)
    for hold in held:
        hold.__exit__(None, None, None)
    assert budget.taken == 0


def test_a_refusal_names_the_limit_and_its_setting_and_takes_nothing() -> None:
    budget = MemoryBudget(64, 1)
    with budget.hold() as other, budget.hold() as held:
        other.add(MIB)
        before, mine = budget.taken, held.bytes
        with pytest.raises(TooManyRequests, match=r"64 MiB, FIRN_LIMITS__MEMORY_MB"):
            held.add(7 * MIB)
        assert (budget.taken, held.bytes) == (before, mine)
        held.add(6 * MIB)
    assert budget.taken == 0


def test_one_sender_leaves_memory_to_others() -> None:
    budget = MemoryBudget(64, 1, percent=75)
    with budget.hold("loud") as loud, budget.hold("loud") as more, budget.hold("quiet") as quiet:
        loud.add(5 * MIB)
        with pytest.raises(TooManyRequests, match="your requests in progress use their share of the memory"):
            more.add(MIB)
        quiet.add(MIB)
    assert budget.taken == 0


def test_a_body_that_no_wait_would_make_room_for_is_too_large() -> None:
    budget = MemoryBudget(64, 1, percent=75)
    with budget.hold("loud") as held, pytest.raises(BodyTooLarge, match="send it in several requests"):
        held.add(6 * MIB)


def test_many_small_values_count_by_their_number() -> None:
    budget = MemoryBudget(100, 1)
    body = b"[" + b",".join([b"[]"] * 100_000) + b"]"
    with budget.hold() as held:
        before = budget.taken
        held.add(len(body))
        held.add_values(body)
        assert budget.taken - before >= 100_000 * 100


def test_a_response_that_is_sent_counts_and_is_never_refused() -> None:
    budget = MemoryBudget(64, 1)
    with budget.sending("loud", 100 * MIB):
        assert budget.taken == 100 * MIB
        with pytest.raises(TooManyRequests), budget.hold("quiet"):
            raise AssertionError("there was no room")
    assert budget.taken == 0


def test_a_full_service_refuses_the_next_request_at_once() -> None:
    budget = MemoryBudget(64, 1)
    with budget.hold() as held:
        held.take(64 * MIB - held.bytes)
        with pytest.raises(TooManyRequests), budget.hold():
            raise AssertionError("there was no room")
    assert budget.taken == 0


def test_what_a_failed_request_took_is_given_back() -> None:
    budget = MemoryBudget(64, 1)

    def fail() -> None:
        with budget.hold() as held:
            held.add(1000)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert budget.taken == 0


@pytest.mark.parametrize(("memory_mb", "body_mb"), [(64, 64), (64, 2048), (1024, 64), (1_000_000, 1)])
def test_the_largest_body_there_may_be_fits(memory_mb: int, body_mb: int) -> None:
    with MemoryBudget(memory_mb, body_mb).hold() as held:
        held.add(body_mb * MIB)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5 * MIB)), max_size=40))
def test_never_is_more_taken_than_there_is(steps: list[tuple[int, int]]) -> None:
    """Four requests that come, grow and go in any order."""
    budget, inside = MemoryBudget(64, 1), {}
    for who, size in steps:
        if who not in inside:
            hold = budget.hold()
            inside[who] = hold, hold.__enter__()
        elif size % 3:
            try:
                inside[who][1].add(size)
            except (TooManyRequests, BodyTooLarge):
                assert budget.taken + 8 * size > 64 * MIB
        else:
            inside.pop(who)[0].__exit__(None, None, None)
        assert budget.taken == sum(held.bytes for _, held in inside.values()) <= 64 * MIB


def test_requests_on_many_threads_leave_nothing_behind() -> None:
    budget, refused = MemoryBudget(64, 1), []

    def work() -> None:
        for i in range(200):
            try:
                with budget.hold() as held:
                    for _ in range(3):
                        held.add(i * 10_000)
            except TooManyRequests as e:
                refused.append(e)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert budget.taken == 0
