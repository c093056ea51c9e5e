"""A tenant that sends far more than another one gets fewer places at a time while the other one is there."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from service.fairness.crowd import Crowd
from service.fairness.shares import SERVICE, FairQueue
from service.fairness.threads import FairThreads
from service.host.cores import quota
from tests.harness import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def crowd(clock: Clock) -> Crowd:
    return Crowd(2, clock)


def enter(crowd: Crowd, tenant: str, times: int) -> None:
    for _ in range(times):
        crowd.enter(tenant)


def leave(crowd: Crowd, tenant: str, times: int) -> None:
    for _ in range(times):
        crowd.leave(tenant)


@pytest.mark.parametrize(("cores", "places"), [(1, 1), (2, 1), (3, 1), (4, 2), (16, 8)])
def test_half_of_the_cores_are_for_others(cores: int, places: int) -> None:
    assert Crowd(cores).at_most == places


@pytest.mark.parametrize(
    ("texts", "cores"),
    [
        (["200000 100000\n"], 2),
        (["50000 100000\n"], 0.5),
        (["max 100000\n"], None),
        (["150000\n", "100000\n"], 1.5),
        (["-1\n", "100000\n"], None),
        ([], None),
    ],
)
def test_a_containers_limit_counts_as_cores(texts: list[str], cores: float | None, tmp_path: Path) -> None:
    files = tuple(tmp_path / str(i) for i in range(len(texts)))
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    found = quota([(tmp_path / "missing",), files])
    assert found == cores if cores else found > 1000


def test_a_tenant_is_loud_once_it_has_had_far_more_requests_in_progress_for_a_while(crowd: Crowd, clock: Clock) -> None:
    enter(crowd, "loud", 40)
    enter(crowd, "quiet", 1)
    assert not crowd.is_loud("loud")
    clock.now += 1
    assert crowd.is_loud("loud")
    assert not crowd.is_loud("quiet")
    assert not crowd.is_loud(SERVICE)


def test_nobody_is_loud_alone_and_another_one_counts_for_a_second_after_its_last_request(
    crowd: Crowd, clock: Clock
) -> None:
    enter(crowd, "loud", 40)
    clock.now += 60
    assert not crowd.is_loud("loud")
    enter(crowd, "quiet", 1)
    clock.now += 0.2
    assert crowd.is_loud("loud")
    leave(crowd, "quiet", 1)
    clock.now += 0.9
    assert crowd.is_loud("loud")
    clock.now += 0.2
    assert not crowd.is_loud("loud")


@pytest.mark.parametrize(
    ("requests", "loud"),
    [
        ({"a": 2, "b": 1}, set()),  # no more than there are cores
        ({"a": 16, "b": 10}, set()),
        ({"a": 16, "b": 7}, {"a"}),
        ({"a": 40, "b": 30, "c": 1}, {"a", "b"}),
    ],
)
def test_who_is_loud_depends_on_the_one_that_sends_least(
    crowd: Crowd, clock: Clock, requests: dict[str, int], loud: set[str]
) -> None:
    for tenant, count in requests.items():
        enter(crowd, tenant, count)
    clock.now += 60
    assert {tenant for tenant in requests if crowd.is_loud(tenant)} == loud


def test_a_loud_tenant_that_sends_less_is_no_longer_loud_after_some_seconds(crowd: Crowd, clock: Clock) -> None:
    enter(crowd, "loud", 40)
    enter(crowd, "quiet", 1)
    clock.now += 60
    assert crowd.is_loud("loud")
    leave(crowd, "loud", 39)
    clock.now += 1
    assert crowd.is_loud("loud")
    clock.now += 30
    assert not crowd.is_loud("loud")


def test_tenants_that_send_nothing_any_more_are_forgotten(crowd: Crowd, clock: Clock) -> None:
    for i in range(1000):
        crowd.enter(f"tenant{i}")
        crowd.leave(f"tenant{i}")
        clock.now += 0.1
    assert len(crowd._tenants) <= 101


def test_a_loud_tenant_has_one_place_of_a_queue_and_the_others_as_many_as_before(crowd: Crowd, clock: Clock) -> None:
    queue: FairQueue[str] = FairQueue(3, crowd)
    enter(crowd, "loud", 40)
    enter(crowd, "quiet", 3)
    clock.now += 60
    for tenant in ("loud", "quiet"):
        for i in range(4):
            queue.add(tenant, f"{tenant}{i}")
    begun = []
    while first := queue.first():
        queue.take(*first)
        begun.append(first[0])
    assert Counter(begun) == {"loud": 1, "quiet": 3}
    leave(crowd, "quiet", 3)
    clock.now += 2
    while first := queue.first():
        queue.take(*first)
        begun.append(first[0])
    assert Counter(begun) == {"loud": 3, "quiet": 3}


def test_a_loud_tenants_work_goes_on_once_the_others_have_gone_though_none_of_it_has_ended(
    crowd: Crowd, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.fairness.threads._LOOK_AGAIN_S", 0.01)
    enter(crowd, "loud", 40)
    enter(crowd, "quiet", 1)
    clock.now += 60
    threads = FairThreads(4, "test", 75, crowd)
    begun, may_end = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        may_end.wait(60)

    for _ in range(3):
        threads.submit("loud", work)
    assert begun.acquire(timeout=60)
    assert threads.waiting == 2
    leave(crowd, "quiet", 1)
    clock.now += 2
    for _ in range(2):
        assert begun.acquire(timeout=60)
    may_end.set()
    threads.shutdown()


@pytest.mark.parametrize(("percent", "at_once"), [(75, 1), (100, 4)])
def test_threads_do_a_loud_tenants_work_one_by_one_unless_a_tenant_may_have_all(
    crowd: Crowd, clock: Clock, percent: int, at_once: int
) -> None:
    enter(crowd, "loud", 40)
    enter(crowd, "quiet", 1)
    clock.now += 60
    threads = FairThreads(4, "test", percent, crowd)
    running, most, done = Counter[str](), Counter[str](), threading.Semaphore(0)
    lock, may_end = threading.Lock(), threading.Event()

    def work() -> None:
        with lock:
            running["loud"] += 1
            most["loud"] = max(most["loud"], running["loud"])
        may_end.wait(60)
        with lock:
            running["loud"] -= 1
        done.release()

    for _ in range(6):
        threads.submit("loud", work)
    wait_until(lambda: running["loud"] == at_once, 60)
    may_end.set()
    for _ in range(6):
        assert done.acquire(timeout=60)
    assert most["loud"] == at_once
    threads.shutdown()
