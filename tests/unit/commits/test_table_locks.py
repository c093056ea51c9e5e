"""The fair line: one at a time per table, in the order they came, and nothing kept of an empty line."""

import threading
import time
from collections import deque
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.commits.locks import TableLocks
from tests.harness import wait_until


class Crowd:
    """Threads that stand in lines; each is started only once the one before it stands."""

    def __init__(self, order: TableLocks) -> None:
        self.order = order
        self.served: list[str] = []
        self.threads: list[threading.Thread] = []

    def join(self, table: str, name: str, stay: float = 0) -> None:
        standing = len(self.order._queues.get(table, ()))
        thread = threading.Thread(target=self._stand, args=(table, name, stay), daemon=True)
        self.threads.append(thread)
        thread.start()
        wait_until(lambda: len(self.order._queues.get(table, ())) > standing or not thread.is_alive(), 5, every=0.001)

    def _stand(self, table: str, name: str, stay: float) -> None:
        with self.order.hold(table):
            self.served.append(f"{name} in")
            time.sleep(stay)
            self.served.append(f"{name} out")

    def end(self) -> list[str]:
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()
        return self.served


def test_changes_of_one_table_run_one_after_another_in_the_order_they_came() -> None:
    crowd = Crowd(TableLocks())
    names = [f"c{i}" for i in range(12)]
    with crowd.order.hold("t"):
        for name in names:
            crowd.join("t", name, 0.002)
        assert crowd.served == []
    assert crowd.end() == [f"{name} {what}" for name in names for what in ("in", "out")]


def test_whoever_gives_up_waiting_leaves_the_line_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.commits.locks._CHECK_EVERY_S", 0.01)
    crowd = Crowd(TableLocks())

    def no_longer() -> None:
        raise TimeoutError

    with crowd.order.hold("t"):
        crowd.join("t", "first")
        with pytest.raises(TimeoutError), crowd.order.hold("t", no_longer):
            pass
        crowd.join("t", "last")
    assert crowd.end() == ["first in", "first out", "last in", "last out"]
    assert crowd.order._queues == {}


def test_tables_do_not_wait_for_each_other() -> None:
    crowd = Crowd(TableLocks())
    with crowd.order.hold("slow"):
        crowd.join("other", "o")
        assert crowd.end() == ["o in", "o out"]


def test_a_failure_lets_the_next_in() -> None:
    crowd = Crowd(TableLocks())

    def break_down() -> None:
        with crowd.order.hold("t"):
            crowd.join("t", "next")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        break_down()
    assert crowd.end() == ["next in", "next out"]


def test_a_line_nobody_stands_in_is_forgotten() -> None:
    order = TableLocks()
    for i in range(100):
        with order.hold(f"table-{i}"):
            assert len(order._queues) == 1
    assert order._queues == {}


def test_a_crowd_on_a_few_tables_never_overlaps() -> None:
    """Many threads, few tables: inside a block the table is this thread's alone."""
    order, inside, seen = TableLocks(), dict.fromkeys("abc", 0), []

    def work(table: str) -> None:
        for _ in range(20):
            with order.hold(table):
                inside[table] += 1
                seen.append(inside[table])
                time.sleep(0)
                inside[table] -= 1

    threads = [threading.Thread(target=work, args=(table,)) for table in "abc" * 6]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [1] * (18 * 20)
    assert order._queues == {}


def test_a_turn_comes_at_once_where_nobody_stands_and_without_a_thread_where_somebody_does() -> None:
    order = TableLocks()
    turns: list[str] = []
    order.request("t", lambda: turns.append("first"))
    order.request("t", lambda: turns.append("second"))
    order.request("other", lambda: turns.append("other"))
    assert turns == ["first", "other"]
    order.release("t")
    assert turns == ["first", "other", "second"]
    order.release("t")
    order.release("other")
    assert order._queues == {}


def test_those_with_a_thread_and_those_without_stand_in_one_line() -> None:
    crowd = Crowd(TableLocks())
    turns: list[str] = []
    crowd.order.request("t", lambda: turns.append("batch 1"))
    crowd.join("t", "edit")
    crowd.order.request("t", lambda: turns.append("batch 2"))
    assert (turns, crowd.served) == (["batch 1"], [])
    crowd.order.release("t")
    assert crowd.end() == ["edit in", "edit out"]
    wait_until(lambda: turns == ["batch 1", "batch 2"], 5, every=0.001)
    crowd.order.release("t")
    assert crowd.order._queues == {}


def test_one_may_join_again_from_its_own_turn_and_stands_last() -> None:
    order = TableLocks()
    turns: list[str] = []

    def again() -> None:
        turns.append("again")
        if turns.count("again") == 1:
            order.request("t", again)
            order.request("t", lambda: turns.append("another"))

    order.request("t", again)
    assert turns == ["again"]
    order.release("t")
    assert turns == ["again", "again"]
    order.release("t")
    assert turns == ["again", "again", "another"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=60))
def test_whoever_joins_is_served_once_after_those_before_it_and_before_those_behind(
    steps: list[tuple[str, bool]],
) -> None:
    """A line against a queue of its own for each table; nobody waits for more turns than stood before it."""
    order = TableLocks()
    served: dict[str, list[int]] = {"a": [], "b": []}
    standing: dict[str, deque[int]] = {"a": deque(), "b": deque()}
    came: dict[str, int] = {"a": 0, "b": 0}
    for table, joins in steps:
        line = standing[table]
        if joins:
            number = came[table]
            came[table] += 1
            line.append(number)
            order.request(table, partial(served[table].append, number))
        elif line:
            line.popleft()
            order.release(table)
        for name in "ab":
            reached = standing[name][0] + 1 if standing[name] else came[name]
            assert served[name] == list(range(reached))
    assert set(order._queues) == {table for table, line in standing.items() if line}
