"""Schedules and namespaces with a key: a kill at any statement, or a second instance, never repeats an effect."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from handlers import discover
from service.catalog.connect import connect
from service.errors import LedgerUnavailable
from service.jobs.schedules.schedules import Schedules
from service.model import wire
from service.model.call import Call
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from service.settings import load
from tests.fakes import FakeOwners
from tests.harness import wait_until
from tests.support.composed import Composed

ACME = {"tenant_id": "acme"}
NAMED = {**ACME, "name": "nightly"}
CREATE = {"operation": "CREATE_SCHEDULE", **NAMED, "cron": "0 2 29 2 *", "task": {"operation": "COMPACT"}}
DELETE = {"operation": "DELETE_SCHEDULE", **NAMED}
RUN = {"operation": "RUN_SCHEDULE", **NAMED}
MAKE = {"operation": "CREATE_NAMESPACE", **ACME, "namespace": "lab"}
DROP = {"operation": "DROP_NAMESPACE", **ACME, "namespace": "lab"}
KEY = {"idempotency_key": "k"}
BACK_S = 30


class Instance:
    """The parts of a service without Spark, over a home; it handles requests."""

    def __init__(self, home: Path, owners: FakeOwners | None = None) -> None:
        self.home = home
        catalog = connect(load({"FIRN_HOME": str(home)}))
        self.composed = Composed(home / "ledger.db", catalog=catalog, owners=owners)
        self.pipeline = Pipeline(discover(), self.composed.parts, self.composed.settings.limits)
        self.schedules: Schedules = self.composed.parts[Schedules]
        self.schedules.open(self.pipeline)
        self.scheduler = self.schedules.scheduler

    def start(self, request: dict[str, Any]) -> "Future[Response]":
        return self.pipeline.submit(request, Call("r"))

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = wire.parse(self.start(request).result(BACK_S).body)
        return body

    def ok(self, request: dict[str, Any]) -> dict[str, Any]:
        body = self.send(request)
        assert body["success"], body
        return body

    @property
    def has_schedule(self) -> bool:
        return bool(self.ok({"operation": "LIST_SCHEDULES", **ACME})["schedules"])

    @property
    def has_namespace(self) -> bool:
        found = self.ok({"operation": "LIST_NAMESPACES", **ACME})["namespaces"]
        return "lab" in [namespace["namespace"] if isinstance(namespace, dict) else namespace for namespace in found]

    @property
    def runs(self) -> list[dict[str, Any]]:
        [schedule] = self.ok({"operation": "LIST_SCHEDULES", **ACME, "runs": 9})["schedules"]
        runs: list[dict[str, Any]] = schedule["runs"]
        return runs

    def ticking(self, response: "Future[Response]") -> dict[str, Any]:
        """A response for which the scheduler must look around."""

        def look() -> bool:
            self.scheduler.tick()
            return response.done()

        wait_until(look, BACK_S, every=0.01)
        body: dict[str, Any] = wire.parse(response.result(0).body)
        return body

    def finish(self) -> None:
        """Let the newest run end."""

        def look() -> bool:
            self.scheduler.tick()
            return bool(self.runs[0]["state"] == "done")

        wait_until(look, BACK_S, every=0.01)

    def close(self) -> None:
        self.scheduler.stop()
        self.pipeline.close()
        self.composed.ledger.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Instance]]:
    begun: list[Instance] = []

    def start(*args: Any) -> Instance:
        begun.append(Instance(*args))
        return begun[-1]

    yield start
    for instance in begun:
        instance.close()


@dataclass(frozen=True)
class Change:
    """A request, what must be there before it, how to see its effect, and how another client reverses it."""

    request: dict[str, Any]
    given: dict[str, Any] | None
    happened: Callable[[Instance], bool]
    reverse: dict[str, Any]
    done: str


CHANGES = {
    "create schedule": Change(CREATE, None, lambda i: i.has_schedule, DELETE, "schedule_created"),
    "delete schedule": Change(DELETE, CREATE, lambda i: not i.has_schedule, CREATE, "schedule_deleted"),
    "create namespace": Change(MAKE, None, lambda i: i.has_namespace, DROP, "namespace_created"),
    "drop namespace": Change(DROP, MAKE, lambda i: not i.has_namespace, MAKE, "namespace_dropped"),
}


def killed(home: Path, request: dict[str, Any], statement: int) -> bool:
    """Send a request to a process that is killed before its nth statement or commit, in the ledger or the catalog.

    Whether it was: false if it had no so many.
    """
    child = os.fork()
    if child == 0:
        try:
            instance = Instance(home)
            seen, lock = 0, threading.Lock()

            def look(*_: Any) -> None:
                nonlocal seen
                with lock:
                    seen += 1
                    if seen == statement:
                        os.kill(os.getpid(), signal.SIGKILL)

            event.listen(Engine, "before_cursor_execute", look)
            event.listen(Engine, "commit", look)
            instance.ok(request)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code != 0


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


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
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


@pytest.mark.parametrize("wait", [False, True])
def test_a_run_that_was_killed_anywhere_is_one_run(tmp_path: Path, start: Callable[..., Instance], wait: bool) -> None:
    for home in homes(tmp_path, CREATE, {**RUN, **KEY, "wait": wait}):
        instance = start(home)
        first = instance.ticking(instance.start({**RUN, **KEY, "wait": wait}))
        assert first["started"] is True
        if wait:
            assert (first["run"]["state"], first["run"]["ended_at"] is None) == ("done", False)
        instance.finish()
        assert len(instance.runs) == 1, home.name
        assert instance.runs[0]["run_id"] == first["run"]["run_id"]
        assert instance.ok({**RUN, **KEY, "wait": wait}) == first


def test_a_run_whose_schedule_was_made_again_is_not_repeated(tmp_path: Path, start: Callable[..., Instance]) -> None:
    instance = start(tmp_path)
    instance.ok(CREATE)
    begun: list[Callable[[], None]] = []
    instance.scheduler.begin = begun.append
    waiting = instance.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: begun, BACK_S)
    again = start(tmp_path)  # the first one counts as gone from here on
    again.ok(DELETE)
    again.ok(CREATE)
    refused = again.send({**RUN, **KEY, "wait": True})
    assert (refused["error"]["code"], again.runs) == ("SCHEDULE_NOT_FOUND", [])
    begun[0]()
    assert wire.parse(waiting.result(BACK_S).body)["run"]["state"] == "cancelled"


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
    begun: list[Callable[[], None]] = []
    two.here.scheduler.begin = begun.append
    first = two.here.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: begun, BACK_S)
    second = two.there.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: two.there.scheduler._awaited, BACK_S)
    two.there.scheduler.tick()
    assert not second.done()
    begun[0]()
    two.there.scheduler.tick()
    bodies = [wire.parse(response.result(BACK_S).body) for response in (first, second)]
    assert bodies[0] == bodies[1]
    assert bodies[0]["run"]["state"] == "done"


def test_who_waits_for_a_run_gets_its_end_from_whichever_instance_is_left(
    two: Two, tmp_path: Path, start: Callable[..., Instance]
) -> None:
    two.here.ok(CREATE)
    begun: list[Callable[[], None]] = []
    two.here.scheduler.begin = begun.append
    first = two.here.start({**RUN, **KEY, "wait": True})
    wait_until(lambda: begun, BACK_S)
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
    begun[0]()  # the first instance was only slow, and finds that its run was taken over
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
