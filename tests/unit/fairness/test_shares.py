"""Tenants share places: each has its own queue and its own limit, and the queues take turns."""

import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from service.fairness.shares import SERVICE, FairQueue, Shares, share_of, work_of, working_for
from service.fairness.threads import FairThreads


@pytest.mark.parametrize(
    ("places", "percent", "share"),
    [(1, 75, 1), (2, 75, 1), (3, 75, 2), (4, 75, 3), (5, 75, 4), (16, 75, 12), (1000, 50, 500), (4, 100, 4), (4, 1, 1)],
)
def test_one_tenant_never_has_all_places_if_there_are_several_unless_the_setting_says_all(
    places: int, percent: int, share: int
) -> None:
    assert share_of(places, percent) == share


def served(queue: FairQueue[str], times: int) -> list[str]:
    """What the next places go to; each is given back at once."""
    found = []
    for _ in range(times):
        first = queue.first()
        assert first is not None
        queue.take(*first)
        queue.leave(first[0])
        found.append(first[1])
    return found


def test_queues_of_tenants_take_turns_whatever_their_length() -> None:
    queue: FairQueue[str] = FairQueue(1)
    for i in range(5):
        queue.add("loud", f"loud{i}")
    queue.add("quiet", "quiet0")
    queue.add("calm", "calm0")
    queue.add("quiet", "quiet1")
    assert served(queue, 8) == ["loud0", "quiet0", "calm0", "loud1", "quiet1", "loud2", "loud3", "loud4"]
    assert queue.first() is None


def test_a_tenant_that_comes_later_is_served_before_those_that_have_places() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for i in range(4):
        queue.add("loud", f"loud{i}")
    for _ in range(3):
        queue.take(*queue.first())  # type: ignore[misc]
    queue.add("quiet", "quiet0")
    assert queue.first() == ("quiet", "quiet0")


def test_a_tenant_at_its_limit_waits_although_places_are_free_and_the_service_has_none() -> None:
    queue: FairQueue[str] = FairQueue(1)
    for tenant in ("loud", "loud", SERVICE, SERVICE):
        queue.add(tenant, tenant)
    queue.take(*queue.first())  # type: ignore[misc]
    for _ in range(2):
        assert queue.first() == (SERVICE, SERVICE)
        queue.take(SERVICE, SERVICE)
    assert queue.first() is None
    queue.leave("loud")
    assert queue.first() == ("loud", "loud")


def test_what_is_not_usable_is_passed_over_and_keeps_its_place() -> None:
    queue: FairQueue[str] = FairQueue(3)
    for item in ("query1", "change", "query2"):
        queue.add("loud", item)
    assert queue.first(lambda item: item == "change") == ("loud", "change")
    queue.take("loud", "change")
    assert queue.items() == ["query1", "query2"]


def test_what_no_longer_waits_leaves_nothing_behind() -> None:
    queue: FairQueue[str] = FairQueue(3)
    queue.add("quiet", "one")
    queue.remove("quiet", "one")
    queue.remove("quiet", "one")
    assert (queue.first(), queue.waiting, queue._queues) == (None, 0, {})
    for i in range(1000):
        queue.add(str(i), "item")
        queue.take(str(i), "item")
        queue.leave(str(i))
    assert len(queue._turns) < 300


def test_with_one_place_a_tenant_that_comes_waits_for_one_other_and_who_comes_again_and_again_starves_nobody() -> None:
    queue: FairQueue[str] = FairQueue(1)
    for i in range(4):
        queue.add("loud", f"loud{i}")
    assert served(queue, 1) == ["loud0"]
    queue.add("quiet", "quiet0")
    assert served(queue, 1) == ["quiet0"]
    queue.add("quiet", "quiet1")
    assert served(queue, 1) == ["loud1"]
    assert served(queue, 1) == ["quiet1"]
    queue.add("quiet", "quiet2")
    assert served(queue, 3) == ["loud2", "quiet2", "loud3"]


def test_shares_say_whose_limit_is_reached_and_forget_tenants_without_places() -> None:
    shares = Shares(4, 50)
    assert [shares.take("loud") for _ in range(3)] == [None, None, "tenant"]
    assert [shares.take("quiet") for _ in range(2)] == [None, None]
    assert shares.take("third") == shares.take(SERVICE) == "service"
    shares.leave("loud", 2)
    assert shares.by_tenant() == {"quiet": 2}
    assert [shares.take(SERVICE) for _ in range(3)] == [None, None, "service"]


class Busy:
    """Threads, and work on them that ends when it is told to."""

    def __init__(self, threads: int, percent: int = 75) -> None:
        self.threads = FairThreads(threads, "test", percent)
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self.ended: set[str] = set()

    def submit(self, tenant: str, name: str) -> "Future[str]":
        def work() -> str:
            with self.changed:
                self.begun.append(name)
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: name in self.ended, 30)
            return working_for()

        return self.threads.submit(tenant, work)

    def end(self, *names: str) -> None:
        with self.changed:
            self.ended |= set(names)
            self.changed.notify_all()

    def wait_for(self, *begun: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun == list(begun), 30), self.begun


def test_a_tenant_that_floods_leaves_a_thread_to_another_which_never_waits_behind_its_queue() -> None:
    busy = Busy(3)
    loud = [busy.submit("loud", f"loud{i}") for i in range(100)]
    busy.wait_for("loud0", "loud1")
    assert busy.threads.waiting == 98
    quiet = [busy.submit("quiet", f"quiet{i}") for i in range(2)]
    busy.wait_for("loud0", "loud1", "quiet0")
    # Both have as many threads then, and take turns.
    busy.end("loud0")
    busy.wait_for("loud0", "loud1", "quiet0", "loud2")
    busy.end("loud1")
    busy.wait_for("loud0", "loud1", "quiet0", "loud2", "quiet1")
    busy.end(*(f"loud{i}" for i in range(100)), "quiet0", "quiet1")
    assert [done.result(30) for done in (*loud, *quiet)] == ["loud"] * 100 + ["quiet"] * 2
    assert working_for() == SERVICE


def test_work_that_is_cancelled_before_it_begins_is_gone_from_the_queue_and_never_runs() -> None:
    busy = Busy(1)
    first, second, third = (busy.submit("loud", name) for name in ("one", "two", "three"))
    busy.wait_for("one")
    assert second.cancel()
    assert busy.threads.waiting == 1
    busy.end("one", "three")
    assert third.result(30) == first.result(30)
    assert busy.begun == ["one", "three"]
    with pytest.raises(CancelledError):
        second.result()


@pytest.mark.parametrize("cancel", [True, False])
def test_closed_threads_take_no_work_and_do_or_cancel_what_waits(cancel: bool) -> None:
    busy = Busy(1)
    first, second = busy.submit("loud", "one"), busy.submit("loud", "two")
    busy.wait_for("one")
    busy.threads.shutdown(cancel=cancel)
    with pytest.raises(RuntimeError):
        busy.submit("loud", "three")
    busy.end("one", "two")
    assert first.result(30) == "loud"
    if cancel:
        assert second.cancelled()
    else:
        assert second.result(30) == "loud"


def test_a_failure_is_the_result_of_its_own_work_only() -> None:
    threads = FairThreads(1, "test", 75)

    def fail() -> Any:
        raise ValueError("no")

    failed, fine = threads.submit("loud", fail), threads.submit("loud", lambda: 1)
    with pytest.raises(ValueError, match="no"):
        failed.result(30)
    assert fine.result(30) == 1


def test_the_tenant_of_work_is_known_within_it_only() -> None:
    with work_of("quiet"):
        assert working_for() == "quiet"
    assert working_for() == SERVICE
