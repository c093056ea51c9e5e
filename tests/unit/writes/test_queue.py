"""The queue of one table's WRITEs: what waits together goes together, within limits, in order, each once."""

import threading
import time
from typing import Any

import pytest
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.model.call import Call
from service.model.names import TableName
from service.settings import WriteQueueSettings
from service.writes.entry import PendingWrite
from service.writes.queue import MIB, Queue

ORDERS = TableName("acme", "shop", "orders")
# Long enough for a wait to be seen, and far longer than any test that must not wait.
LONG_MS = 1000
SOON = 0.9  # less than a wait, on a busy machine too


def entry(name: str = "", records: int = 1, size: int = 10) -> PendingWrite:
    return PendingWrite(ORDERS, Call(name), [], size, lambda written: b"", count=records)


def names(batch: list[PendingWrite]) -> list[str]:
    return [e.call.id for e in batch]


class Line:
    """A queue, and how often it asked for a turn."""

    def __init__(self, **settings: Any) -> None:
        self.asked = 0
        self.queue = Queue(WriteQueueSettings(**{"linger_ms": 0, **settings}), self.ask)

    def ask(self) -> None:
        self.asked += 1

    def add(self, *entries: str | PendingWrite) -> None:
        for one in entries:
            self.queue.add(entry(one) if isinstance(one, str) else one)

    def turn(self) -> list[str]:
        batch = self.queue.take()
        self.queue.done(len(batch))
        return names(batch)

    def timed(self) -> tuple[list[str], float]:
        started = time.monotonic()
        batch = self.queue.take()
        return names(batch), time.monotonic() - started


def test_the_first_asks_for_a_turn_at_once_and_those_that_come_meanwhile_do_not() -> None:
    line = Line()
    line.add("a")
    assert line.asked == 1
    line.add("b", "c")
    assert line.asked == 1


def test_what_came_while_a_turn_was_awaited_goes_together_in_the_order_it_came() -> None:
    line = Line()
    line.add("a", "b", "c")
    assert names(line.queue.take()) == ["a", "b", "c"]


def test_what_comes_while_a_batch_is_committed_waits_for_the_next_which_is_asked_for_after_it() -> None:
    line = Line()
    line.add("a")
    batch = line.queue.take()
    line.add("b", "c")
    assert line.asked == 1
    line.queue.done(len(batch))
    assert line.asked == 2
    assert line.turn() == ["b", "c"]
    assert line.asked == 2


def test_an_idle_queue_requests_the_lock_again_and_knows_that_it_is_idle() -> None:
    line = Line()
    assert line.queue.idle
    line.add("a")
    assert not line.queue.idle
    batch = line.queue.take()
    assert not line.queue.idle, "its batch is being committed"
    line.queue.done(len(batch))
    assert line.queue.idle
    line.add("b")
    assert (line.asked, line.queue.idle) == (2, False)


def test_a_turn_of_which_nothing_came_is_asked_for_again() -> None:
    """Nothing was taken; what waits must not wait for ever."""
    line = Line()
    line.add("a")
    line.queue.done(0)
    assert line.asked == 2
    assert line.turn() == ["a"]


@pytest.mark.parametrize(
    ("limits", "sizes", "batches"),
    [
        ({"batch_requests": 3}, [(1, 1)] * 7, [3, 3, 1]),
        ({"batch_records": 10}, [(4, 1)] * 5, [2, 2, 1]),
        ({"batch_records": 10}, [(5, 1), (5, 1), (1, 1)], [2, 1]),
        ({"batch_mb": 1}, [(1, MIB // 2)] * 5, [2, 2, 1]),
        ({"batch_mb": 1}, [(1, MIB // 2), (1, MIB // 2 + 1), (1, 1)], [1, 2]),
        # One that is beyond a limit goes, and goes alone.
        ({"batch_records": 10}, [(1, 1), (11, 1), (1, 1)], [1, 1, 1]),
        ({"batch_mb": 1}, [(1, 1), (1, 5 * MIB), (1, 1), (1, 1)], [1, 1, 2]),
        ({"batch_records": 10}, [(99, 1), (99, 1)], [1, 1]),
        # Together or not at all, whatever the limits.
        ({"group_commit": False}, [(1, 1)] * 3, [1, 1, 1]),
        ({"batch_requests": 1}, [(1, 1)] * 3, [1, 1, 1]),
        ({}, [(1, 1)] * 2000 + [(1, 1)], [2000, 1]),
    ],
)
def test_a_batch_keeps_its_limits(limits: dict[str, Any], sizes: list[tuple[int, int]], batches: list[int]) -> None:
    line = Line(**limits)
    line.add(*(entry(str(i), records, size) for i, (records, size) in enumerate(sizes)))
    taken = []
    for _ in batches:
        taken.append(line.turn())
    assert [len(batch) for batch in taken] == batches
    assert [name for batch in taken for name in batch] == [str(i) for i in range(len(sizes))]
    assert line.asked == len(batches)


class TestLinger:
    """A batch waits some milliseconds for the clients that were just answered, and for nobody else."""

    def lingering(self, last: int, linger_ms: int = LONG_MS) -> Line:
        """A queue whose last batch had so many, and in which one waits."""
        line = Line(linger_ms=linger_ms)
        line.add(*(f"last {i}" for i in range(last)))
        batch = line.queue.take()
        line.add("first")
        line.queue.done(len(batch))
        return line

    @pytest.mark.parametrize(
        ("last", "settings"),
        [(1, {}), (5, {"group_commit": False}), (5, {"batch_requests": 1}), (5, {"linger_ms": 0})],
    )
    def test_one_client_waits_for_nobody(self, last: int, settings: dict[str, Any]) -> None:
        line = Line(**{"linger_ms": LONG_MS, **settings})
        line.add(*(f"last {i}" for i in range(last)))
        while not line.queue.idle:
            line.queue.done(len(line.queue.take()))
        line.add("one")
        batch, seconds = line.timed()
        assert batch == ["one"]
        assert seconds < SOON

    def test_the_first_batch_of_all_waits_for_nobody(self) -> None:
        line = Line(linger_ms=LONG_MS)
        line.add("one", "two")
        assert line.timed()[1] < SOON

    def test_nobody_is_waited_for_when_as_many_are_there_as_were_answered_or_waited(self) -> None:
        line = self.lingering(3)
        line.add("second", "third", "fourth")
        batch, seconds = line.timed()
        assert batch == ["first", "second", "third", "fourth"]
        assert seconds < SOON

    def test_the_wait_ends_when_as_many_are_there_as_were_answered_or_waited(self) -> None:
        """So that two groups of clients, one of which waits while the other's batch is committed, become one."""
        line = self.lingering(3)
        later = threading.Timer(0.3, lambda: line.add("second", "third", "fourth"))
        later.start()
        batch, seconds = line.timed()
        later.join()
        assert batch == ["first", "second", "third", "fourth"]
        assert 0.04 < seconds < SOON

    def test_two_clients_of_which_one_waits_while_the_other_commits_become_one_group(self) -> None:
        line = self.lingering(1)
        later = threading.Timer(0.1, lambda: line.add("second"))
        later.start()
        batch, seconds = line.timed()
        later.join()
        assert batch == ["first", "second"]
        assert 0.04 < seconds < SOON

    def test_the_wait_ends_after_its_time_with_whoever_came(self) -> None:
        line = self.lingering(3, linger_ms=500)
        later = threading.Timer(0.02, lambda: line.add("second"))
        later.start()
        batch, seconds = line.timed()
        later.join()
        assert batch == ["first", "second"]
        assert 0.4 < seconds < 5

    def test_the_time_counts_from_the_last_answer(self) -> None:
        """Who did not come back within it is busy with something else."""
        line = self.lingering(3)
        line.queue._last_done_at -= LONG_MS / 1000
        line.queue._last_added_at -= LONG_MS / 1000
        batch, seconds = line.timed()
        assert batch == ["first"]
        assert seconds < SOON

    def test_while_clients_keep_coming_the_wait_goes_on(self) -> None:
        line = self.lingering(3)
        line.queue._last_done_at -= LONG_MS / 1000
        line.add("second")
        batch, seconds = line.timed()
        assert batch == ["first", "second"]
        assert seconds > 0.04

    def test_but_not_for_ever(self) -> None:
        line = self.lingering(3)
        line.queue._last_done_at -= 4 * LONG_MS / 1000
        line.add("second")
        line.queue._last_added_at += 60
        batch, seconds = line.timed()
        assert batch == ["first", "second"]
        assert seconds < SOON

    def test_no_more_are_waited_for_than_a_batch_takes(self) -> None:
        line = Line(linger_ms=LONG_MS, batch_requests=2)
        line.add("a", "b")
        line.queue.done(len(line.queue.take()))
        line.add("c", "d")
        batch, seconds = line.timed()
        assert batch == ["c", "d"]
        assert seconds < SOON


def test_threads_that_add_and_one_that_takes_lose_nothing() -> None:
    """Each waits for its answer before it sends the next, as clients do; a small linger makes batches of them."""
    turns = threading.Semaphore(0)
    taken: list[str] = []
    sizes: list[int] = []
    queue = Queue(WriteQueueSettings(linger_ms=2, batch_requests=5), turns.release)

    def client(number: int) -> None:
        for i in range(25):
            one = entry(f"{number}-{i}")
            queue.add(one)
            one.response.result(30)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    while len(taken) < 8 * 25:
        assert turns.acquire(timeout=30)
        batch = queue.take()
        assert batch
        sizes.append(len(batch))
        taken += names(batch)
        for one in batch:
            one.response.set_result(b"")
        queue.done(len(batch))
    for thread in clients:
        thread.join(30)
    assert sorted(taken) == sorted(f"{number}-{i}" for number in range(8) for i in range(25))
    for number in range(8):
        assert [t for t in taken if t.startswith(f"{number}-")] == [f"{number}-{i}" for i in range(25)]
    assert queue.idle
    assert max(sizes) == 5


class Model(RuleBasedStateMachine):
    """The queue against a plain list, with one turn at a time, as a table's line gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = WriteQueueSettings(linger_ms=0, batch_requests=4, batch_records=20, batch_mb=1)
        self.queue = Queue(self.settings, self.ask)
        self.waiting: list[PendingWrite] = []
        self.taken: list[str] = []
        self.turns = 0
        self.batch: list[PendingWrite] | None = None
        self.added = 0

    def ask(self) -> None:
        self.turns += 1

    @rule(records=st.integers(1, 25), size=st.sampled_from([1, MIB // 3, MIB, 2 * MIB]))
    def add(self, records: int, size: int) -> None:
        one = entry(str(self.added), records, size)
        self.added += 1
        self.waiting.append(one)
        self.queue.add(one)

    @precondition(lambda self: self.turns and self.batch is None)
    @rule()
    def take(self) -> None:
        self.batch = self.queue.take()
        assert self.batch, "a turn is asked for only where somebody waits"
        assert self.batch == self.waiting[: len(self.batch)]
        assert len(self.batch) == self.expected()
        self.waiting = self.waiting[len(self.batch) :]
        self.taken += names(self.batch)

    @precondition(lambda self: self.batch is not None)
    @rule()
    def done(self) -> None:
        assert self.batch is not None
        self.turns -= 1
        answered, self.batch = len(self.batch), None
        self.queue.done(answered)

    def expected(self) -> int:
        """As many as fit, at least one."""
        count = records = size = 0
        for one in self.waiting:
            records, size = records + one.count, size + one.size
            if count and (count == 4 or records > 20 or size > MIB):
                break
            count += 1
        return count

    @invariant()
    def one_turn_is_asked_for_where_somebody_waits_and_none_where_nobody_does(self) -> None:
        busy = bool(self.waiting) or self.batch is not None
        assert self.turns == int(busy)
        assert self.queue.idle == (not busy)

    def teardown(self) -> None:
        while self.turns:
            if self.batch is None:
                self.take()
            self.done()
        assert self.taken == [str(i) for i in range(self.added)]


TestModel = Model.TestCase
TestModel.settings = given_settings(stateful_step_count=30)
