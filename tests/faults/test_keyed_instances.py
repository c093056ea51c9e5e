"""Schedules and namespaces with a key, by two instances on one PostgreSQL ledger: an effect happens once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.model import wire
from tests.postgres import PostgresServer
from tests.support.keyed import BACK_S, CHANGES, CREATE, KEY, RUN, Instance, killed
from tests.support.marks import thorough_except

Start = Callable[[Path], Instance]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.url("ledger")


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    started: list[Instance] = []

    def start(home: Path) -> Instance:
        started.append(Instance(home, ledger_url=url))
        return started[-1]

    yield start
    for instance in started:
        instance.close()


@pytest.mark.parametrize("kind", thorough_except(["delete schedule"], CHANGES))
def test_of_two_instances_with_the_same_request_at_once_both_respond_as_the_first(
    tmp_path: Path, start: Start, kind: str
) -> None:
    change, here, there = CHANGES[kind], start(tmp_path), start(tmp_path)
    if change.given:
        here.ok(change.given)
    for number in range(10):
        request = {**change.request, "idempotency_key": f"k{number}"}
        responses = [instance.start(request) for instance in (here, there)]
        [one, other] = [wire.parse(response.result(BACK_S).body) for response in responses]
        assert one == other
        assert one[change.done] is True
        here.ok(change.reverse)


def test_of_two_instances_that_run_a_schedule_at_once_with_one_key_one_does(tmp_path: Path, start: Start) -> None:
    here, there = start(tmp_path), start(tmp_path)
    here.ok(CREATE)
    for number in range(5):
        request = {**RUN, "idempotency_key": f"k{number}", "wait": True}
        first, second = here.start(request), there.start(request)
        one, other = here.ticking(first), there.ticking(second)
        assert one == other
        assert (one["started"], one["run"]["state"]) == (True, "done")
        assert len(here.runs) == number + 1


@pytest.mark.parametrize("kind", thorough_except(["delete schedule"], CHANGES))
def test_a_change_that_one_instance_was_killed_in_happens_once_on_another(
    tmp_path: Path, start: Start, url: str, kind: str
) -> None:
    change, there = CHANGES[kind], start(tmp_path)
    if change.given:
        there.ok(change.given)
    seen = set()
    for statement in range(1, 99):
        request = {**change.request, "idempotency_key": f"k{statement}"}
        goes_on = killed(tmp_path, request, statement, url)
        happened = change.happened(there)
        seen.add(happened)
        if happened:
            there.ok(change.reverse)
        first = there.ok(request)
        assert first[change.done] is True
        assert change.happened(there) is not happened, statement
        if not happened:
            there.ok(change.reverse)
        if not goes_on:
            break
    assert seen == {False, True}


@pytest.mark.thorough  # as tests/unit/operations/test_keyed_kills.py, which has a ledger in SQLite
def test_a_run_whose_instance_was_killed_is_waited_for_on_another(tmp_path: Path, start: Start, url: str) -> None:
    there = start(tmp_path)
    there.ok(CREATE)
    clock = iter(range(0, 1_000_000, 20))
    there.scheduler.monotonic = lambda: next(clock)
    for statement in range(1, 99):
        request = {**RUN, **KEY, "idempotency_key": f"k{statement}", "wait": True}
        goes_on = killed(tmp_path, request, statement, url)
        response = there.ticking(there.start(request))
        assert (response["started"], response["run"]["state"]) == (True, "done"), statement
        assert len(there.runs) == min(statement, 9)
        if not goes_on:
            return
