"""When old snapshots are let go: after enough commits, in the background, and at no request's cost."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from service.errors import EngineUnavailable, TableNotFound
from service.maintenance.expire.expiry import REST, REST_AFTER_FAILURE_S, Expiry
from service.model.names import TableName
from tests.harness import wait_until

ORDERS = TableName("acme", "shop", "orders")
Answer = int | Exception


class CommitSetup:
    """An Expiry whose looks are noted and answered as told, and whose clock stands until it is moved."""

    def __init__(self) -> None:
        self.looks: list[tuple[TableName, str, int]] = []
        self.answers: list[Answer] = []
        self.now = 1000.0
        self.during: Callable[[], None] = lambda: None
        self.done = 0
        self.expiry = Expiry(self.look, slack=5, threads=1, clock=lambda: self.now)

    def look(self, name: TableName, table_uuid: str, slack: int) -> int:
        self.looks.append((name, table_uuid, slack))
        answer = self.answers.pop(0) if self.answers else 10
        self.during()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def commit(self, times: int, table_uuid: str = "a") -> int:
        """So many commits, each looked after; how many looks there have been by then."""
        for _ in range(times):
            self.expiry.after_commit(ORDERS, table_uuid)
            wait_until(lambda: self.idle, 5, every=0.001)
        return len(self.looks)

    @property
    def idle(self) -> bool:
        return not any(tally.queued for tally in self.expiry._tallies.values())


@pytest.fixture
def setup() -> Iterator[CommitSetup]:
    setup = CommitSetup()
    yield setup
    setup.expiry.close()


def test_a_table_that_is_not_known_is_looked_at_after_its_first_commit(setup: CommitSetup) -> None:
    assert setup.commit(1) == 1
    assert setup.looks == [(ORDERS, "a", 5)]
    assert setup.commit(1, "b") == 2


def test_it_is_looked_at_again_after_as_many_commits_as_the_look_said(setup: CommitSetup) -> None:
    setup.answers = [7, 3]
    assert [setup.commit(1), setup.commit(6), setup.commit(1)] == [1, 1, 2]
    assert [setup.commit(2), setup.commit(1)] == [2, 3]


def test_commits_during_a_look_count_for_the_next_and_ask_for_no_second_one(setup: CommitSetup) -> None:
    def commit_six_times() -> None:
        for _ in range(6):
            setup.expiry.after_commit(ORDERS, "a")

    setup.answers, setup.during = [10], commit_six_times
    assert setup.commit(1) == 1
    setup.during = lambda: None
    assert [setup.commit(3), setup.commit(1)] == [1, 2]


def test_a_table_rests_after_a_look_that_took_long(setup: CommitSetup) -> None:
    def take_two_seconds() -> None:
        setup.now += 2

    setup.answers, setup.during = [1], take_two_seconds
    assert setup.commit(1) == 1
    setup.now += 2 * REST - 0.1
    assert setup.commit(20) == 1
    setup.now += 0.2
    assert setup.commit(1) == 2


@pytest.mark.parametrize("failure", [EngineUnavailable("gone"), TableNotFound("gone", field="table"), OSError("gone")])
def test_a_failure_reaches_no_request_and_is_tried_again_later(
    setup: CommitSetup, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    setup.answers = [failure]
    with caplog.at_level(logging.WARNING):
        assert setup.commit(30) == 1
    assert bool(caplog.records) == (not isinstance(failure, TableNotFound))
    setup.now += REST_AFTER_FAILURE_S
    assert setup.commit(1) == 2


def test_counting_a_commit_waits_for_no_look() -> None:
    held, asked = threading.Event(), threading.Event()

    def look(name: TableName, table_uuid: str, slack: int) -> int:
        asked.set()
        assert held.wait(30)
        return 10

    expiry = Expiry(look, threads=1)
    expiry.after_commit(ORDERS, "a")
    assert asked.wait(30)
    for i in range(1000):
        expiry.after_commit(ORDERS, f"table-{i}")
    held.set()
    expiry.close()


def test_nothing_begins_once_it_is_closed(setup: CommitSetup) -> None:
    setup.commit(1)
    setup.expiry.close()
    assert setup.commit(100, "b") == 1


def test_closing_waits_only_a_moment_for_a_look_that_does_not_end() -> None:
    asked = threading.Event()

    def look(name: TableName, table_uuid: str, slack: int) -> int:
        asked.set()
        threading.Event().wait(30)
        return 0

    expiry = Expiry(look)
    expiry.after_commit(ORDERS, "a")
    assert asked.wait(30)
    expiry.close(0.1)
    assert any(thread.is_alive() for thread in expiry._threads)
