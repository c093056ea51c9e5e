"""Requests about schedules and namespaces with a key, to instances without Spark, one of which is killed."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from handlers import discover
from service.catalog.connect import connect
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

    def __init__(self, home: Path, owners: FakeOwners | None = None, ledger_url: str | None = None) -> None:
        catalog = connect(load({"FIRN_HOME": str(home)}))
        self.composed = Composed(home / "ledger.db", catalog=catalog, owners=owners, ledger_url=ledger_url)
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


def killed(home: Path, request: dict[str, Any], statement: int, ledger_url: str | None = None) -> bool:
    """Send a request to a process that is killed before its nth statement or commit, in the ledger or the catalog.

    Whether it was: false if it had no so many.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(5 * BACK_S)  # should it hang
        try:
            instance = Instance(home, ledger_url=ledger_url)
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
