"""Schedules of two instances on one ledger in PostgreSQL: a due time has one run, whatever becomes of either."""

import threading
from collections.abc import Callable, Iterator

import pytest

from service.errors import CommitConflict
from service.jobs.schedules.scheduler import GONE_S, STALL_S, to_ms
from service.ledger.ledger import Ledger
from tests.harness import wait_until
from tests.postgres import PostgresServer
from tests.schedulers import ALL, DAY, TWO, Instance, SharedState, schedule

Start = Callable[..., Instance]


@pytest.fixture
def world() -> SharedState:
    return SharedState()


@pytest.fixture
def start(postgres: PostgresServer, world: SharedState) -> Iterator[Start]:
    """Instances with a ledger of their own each, in one database."""
    url, ledgers = postgres.url("schedules"), []

    def started(*, waiting: bool = False) -> Instance:
        ledgers.append(Ledger(url))
        return Instance(ledgers[-1], world, waiting=waiting)

    yield started
    for ledger in ledgers:
        ledger.close()


def test_a_due_time_has_one_run_however_many_look_at_the_same_moment(start: Start, world: SharedState) -> None:
    instances = [start() for _ in range(4)]
    instances[0].notes.put(schedule(**ALL), replacing=False)
    for night in range(8):
        world.at(TWO + night * DAY)
        together = threading.Barrier(len(instances))

        def look(instance: Instance, together: threading.Barrier = together) -> None:
            together.wait(60)
            instance.tick(1)

        threads = [threading.Thread(target=look, args=(instance,)) for instance in instances]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sum(len(i.pipeline.asked) for i in instances) == 3 * (night + 1)
    assert [run.details["due_ms"] for run in instances[0].runs()] == [to_ms(TWO + night * DAY) for night in range(8)]
    assert instances[3].states() == ["done"] * 8


def test_the_run_of_an_instance_that_is_gone_is_taken_over_once(start: Start, world: SharedState) -> None:
    one, two, three = start(waiting=True), start(waiting=True), start(waiting=True)
    one.notes.put(schedule(), replacing=False)
    world.at(TWO)
    one.tick()
    two.tick()
    assert (len(one.work), two.work) == (1, [])
    one.ledger.close()
    wait_until(lambda: two.owners.gone(one.owners.me), 60)
    for seconds in (1, GONE_S):
        two.tick(seconds)
        three.tick(seconds)
    assert (len(two.work), len(three.work)) == (1, 0)
    two.do_begun_work()
    assert [(run.state, run.fence) for run in three.runs()] == [("done", 2)]


def test_one_that_stands_still_is_fenced_off(start: Start, world: SharedState) -> None:
    one, two = start(waiting=True), start()
    one.notes.put(schedule(), replacing=False)
    world.at(TWO)
    one.tick()
    two.tick()
    two.tick(STALL_S - 1)
    assert two.pipeline.asked == []
    one.pipeline.before = lambda table: two.tick(1)
    one.do_begun_work()
    assert (one.pipeline.tables, two.pipeline.tables) == (["orders"], ["orders"])
    with pytest.raises(CommitConflict, match="taken over"):
        one.pipeline.asked[0][1].commit_gate()
    assert [(run.state, run.fence) for run in one.runs()] == [("done", 2)]


def test_a_run_that_a_stop_interrupted_is_resumed(start: Start, world: SharedState) -> None:
    one, two = start(waiting=True), start()
    one.notes.put(schedule(**ALL), replacing=False)
    world.at(TWO)
    one.tick()
    one.pipeline.before = lambda table: one.scheduler.stop()
    one.do_begun_work()
    two.tick()
    assert (one.pipeline.tables, two.pipeline.tables, two.states()) == (["orders"], ["people", "carts"], ["done"])


@pytest.mark.thorough
def test_schedules_are_replaced_listed_and_deleted_and_fifty_runs_are_kept(start: Start, world: SharedState) -> None:
    one, two = start(), start()
    assert not one.notes.put(schedule(), replacing=True)
    assert two.notes.put(schedule(id="id-2", cron="0 2 * * *"), replacing=True)
    for night in range(55):
        world.at(TWO + night * DAY)
        (one if night % 2 else two).tick(1)
    assert len(two.notes.runs(["id-1"], 100)["id-1"]) == 50
    assert [s.name for s in two.schedules.of_tenant("acme")] == ["nightly"]
    assert two.schedules.delete("acme", "nightly")
    assert not one.schedules.delete("acme", "nightly")
    assert one.notes.runs(["id-1"], 100) == {"id-1": []}
