"""Schedules and namespaces with a key: a kill at any statement, or a second instance, never repeats an effect."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from handlers.run_schedule import RunSchedule
from service.errors import LedgerUnavailable
from service.model import wire
from service.model.call import Call
from tests.fakes import FakeOwners
from tests.harness import wait_until
from tests.support.keyed import BACK_S, CHANGES, CREATE, DELETE, DROP, KEY, MAKE, RUN, Change, Instance, killed
from tests.support.marks import thorough_after, thorough_except


@pytest.fixture
def start() -> Iterator[Callable[..., Instance]]:
    started: list[Instance] = []

    def start(*args: Any) -> Instance:
        started.append(Instance(*args))
        return started[-1]

    yield start
    for instance in started:
        instance.close()


def homes(tmp_path: Path, given: dict[str, Any] | None, request: dict[str, Any]) -> Iterator[Path]:
    """A home for each statement before which a request is killed, as that leaves it."""
    for statement in range(1, 99):
        home = tmp_path / str(statement)
        home.mkdir()
        before = Instance(home)
        if given:
            before.ok(given)
        before.close()
        goes_on = killed(home, request, statement)
        yield home
        if not goes_on:
            assert statement > 4, "it was killed at several places"
            return


@pytest.mark.parametrize("change", thorough_after(1, CHANGES.values()), ids=CHANGES)
def test_a_change_that_was_killed_anywhere_happens_once(
    tmp_path: Path, start: Callable[..., Instance], change: Change
) -> None:
    """If it happened, another client reverses it, and the retry does not repeat it."""
    seen = set()
    for home in homes(tmp_path, change.given, {**change.request, **KEY}):
        instance = start(home)
        happened = change.happened(instance)
        seen.add(happened)
        if happened:
            instance.ok(change.reverse)
        first = instance.ok({**change.request, **KEY})
        assert first[change.done] is True
        assert change.happened(instance) is not happened, home.name
        assert instance.ok({**change.request, **KEY}) == first
    assert seen == {False, True}


@pytest.mark.parametrize("wait", thorough_except([True], [False, True]))
def test_a_run_that_was_killed_anywhere_is_one_run(tmp_path: Path, start: Callable[..., Instance], wait: bool) -> None:
    for home in homes(tmp_path, CREATE, {**RUN, **KEY, "wait": wait}):
        instance = start(home)
        first = instance.ticking(instance.start({**RUN, **KEY, "wait": wait}))
        assert first["started"] is True
        if wait:
            assert first["run"]["state"] == "done"
            assert "ended_at" in first["run"]
        instance.finish()
        assert len(instance.runs) == 1, home.name
        assert instance.runs[0]["job_id"] == (first["run"] if wait else first)["job_id"]
        assert instance.ok({**RUN, **KEY, "wait": wait}) == first


def test_a_run_whose_schedule_was_made_again_is_not_repeated(tmp_path: Path, start: Callable[..., Instance]) -> None:
    instance = start(tmp_path)
    instance.ok(CREATE)
    started: list[Callable[[], None]] = []
    instance.scheduler.begin = started.append
    waiting = instance.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: started, BACK_S)
    again = start(tmp_path)  # the first one counts as gone from here on
    again.ok(DELETE)
    again.ok(CREATE)
    refused = again.send({**RUN, **KEY, "wait": True})
    assert (refused["error"]["code"], again.runs) == ("SCHEDULE_NOT_FOUND", [])
    started[0]()
    assert wire.parse(waiting.result(BACK_S).body)["run"]["state"] == "cancelled"


def test_nobody_can_cancel_the_wait_for_a_run(tmp_path: Path, start: Callable[..., Instance]) -> None:
    instance = start(tmp_path)
    instance.ok(CREATE)
    started: list[Callable[[], None]] = []
    instance.scheduler.begin = started.append
    call = Call("r")
    call.respond = wire.render
    waiting = instance.pipeline._handlers["RUN_SCHEDULE"](RunSchedule.model_validate({**RUN, "wait": True}), call)
    assert isinstance(waiting, Future)
    assert not waiting.cancel()
    started[0]()
    assert wire.parse(waiting.result(BACK_S))["run"]["state"] == "done"


class Two:
    """Two instances on one ledger and one catalog."""

    def __init__(self, home: Path, start: Callable[..., Instance]) -> None:
        self.owners = FakeOwners("here")
        self.here = start(home, self.owners)
        self.there = start(home, self.owners.beside("there"))


@pytest.fixture
def two(tmp_path: Path, start: Callable[..., Instance]) -> Two:
    return Two(tmp_path, start)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_of_two_instances_with_the_same_request_at_once_both_respond_as_the_first(two: Two, change: Change) -> None:
    for number in range(5):
        if change.given and number == 0:
            two.here.ok(change.given)
        request = {**change.request, "idempotency_key": f"k{number}"}
        responses = [instance.start(request) for instance in (two.here, two.there)]
        [one, other] = [wire.parse(response.result(BACK_S).body) for response in responses]
        assert one == other
        assert one[change.done] is True
        two.here.ok(change.reverse)


def test_who_waits_for_a_run_on_another_instance_gets_the_response_of_its_end(two: Two) -> None:
    two.here.ok(CREATE)
    started: list[Callable[[], None]] = []
    two.here.scheduler.begin = started.append
    first = two.here.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: started, BACK_S)
    second = two.there.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: two.there.scheduler._awaited, BACK_S)
    two.there.scheduler.tick()
    assert not second.done()
    started[0]()
    two.there.scheduler.tick()
    bodies = [wire.parse(response.result(BACK_S).body) for response in (first, second)]
    assert bodies[0] == bodies[1]
    assert bodies[0]["run"]["state"] == "done"


def test_who_waits_for_a_run_gets_its_end_from_whichever_instance_is_left(
    two: Two, tmp_path: Path, start: Callable[..., Instance]
) -> None:
    two.here.ok(CREATE)
    started: list[Callable[[], None]] = []
    two.here.scheduler.begin = started.append
    first = two.here.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: started, BACK_S)
    second = two.there.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: two.there.scheduler._awaited, BACK_S)
    two.there.scheduler.stop()
    assert wire.parse(second.result(BACK_S).body)["error"]["code"] == "SHUTTING_DOWN"
    two.owners.present.clear()
    later = start(tmp_path, FakeOwners("later"))
    later.scheduler.monotonic = count(0, 20).__next__
    response = later.ticking(later.start({**RUN, **KEY, "wait": True}))  # it takes the run over
    assert response["run"]["state"] == "done"
    assert len(later.runs) == 1
    started[0]()  # the first instance was only slow, and finds that its run was taken over
    assert wire.parse(first.result(BACK_S).body) == response


@pytest.mark.parametrize("request_", [CREATE, DELETE, RUN, MAKE, DROP], ids=lambda r: r["operation"])
def test_a_refusal_leaves_the_key_free_although_the_ledger_cannot_record_its_end(
    tmp_path: Path, start: Callable[..., Instance], request_: dict[str, Any]
) -> None:
    instance = start(tmp_path)
    for given in (CREATE, MAKE) if request_ in (CREATE, MAKE) else ():
        instance.ok(given)
    instance.composed.ledger.mute = frozenset({"end"})
    refused = instance.send({**request_, **KEY})
    assert refused["error"]["code"].endswith(("EXISTS", "NOT_FOUND"))
    instance.composed.ledger.mute = frozenset()
    for given in () if request_ in (CREATE, MAKE) else (CREATE, MAKE):
        instance.ok(given)
    for gone in (DELETE, DROP) if request_ in (CREATE, MAKE) else ():
        instance.ok(gone)
    assert instance.ok({**request_, **KEY})["metadata"]["request_id"] == "r"


def test_a_namespace_whose_end_could_not_be_recorded_is_settled_before_the_next_change(
    tmp_path: Path, start: Callable[..., Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = start(tmp_path)
    instance.ok(MAKE)

    def silent(*_: Any) -> None:
        raise LedgerUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(instance.composed.ledger, "end", silent)
        patched.setattr(instance.composed.ledger, "answer", silent)
        assert instance.ok({**DROP, **KEY})["namespace_dropped"] is True
    instance.ok(MAKE)
    assert instance.ok({**DROP, **KEY})["namespace_dropped"] is True
    assert instance.has_namespace, "the retry dropped nothing"
