"""Instances that look after schedules, with clocks that are moved by hand and fixed responses."""

import json
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from service.jobs.schedules.runner import ClaimedRun
from service.jobs.schedules.scheduler import Scheduler, to_ms
from service.jobs.schedules.schedules import Schedules, skip_reason, tables_of
from service.ledger.jobs import JobRecord
from service.ledger.ledger import Ledger
from service.ledger.schedules import Schedule, ScheduleRecords
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.model.names import TableName
from service.model.schema.definition import parse_schema
from service.settings import CompactionSettings
from tests.fakes import FakeCatalog

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}}})
TWO = datetime(2026, 5, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)
ONE = TableName("acme", "shop", "orders")
OTHER = TableName("acme", "shop", "people")
THIRD = TableName("acme", "yard", "carts")
OK = {"success": True, "reason": None}


@dataclass
class Clock:
    """The wall clock that schedules go by. Its hands are moved."""

    now: datetime = TWO - timedelta(hours=1)

    def ms(self) -> int:
        return to_ms(self.now)


@dataclass(frozen=True)
class FakeResponse:
    body: bytes


@dataclass
class FakePipeline:
    """Gives fixed responses and records the requests. `before` is called with each request, while it runs."""

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    before: Callable[[str], object] = lambda table: None
    asked: list[tuple[str, Call]] = field(default_factory=list)

    operations: tuple[Any, ...] = ()

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Any, Any]:
        raise NotImplementedError

    def submit(self, body: Any, call: Call) -> "Future[Any]":
        assert (body["operation"], body["tenant_id"], body["force"]) == ("COMPACT", "acme", True)
        self.asked.append((body["table"], call))
        self.before(body["table"])
        message = self.answers.get(body["table"], [OK])
        answer: Future[FakeResponse] = Future()
        answer.set_result(FakeResponse(json.dumps(message.pop(0) if len(message) > 1 else message[0]).encode()))
        return answer

    @property
    def tables(self) -> list[str]:
        return [table for table, _ in self.asked]


def refused(code: str, *, retryable: bool = False) -> dict[str, Any]:
    return {"success": False, "error": {"code": code, "message": f"{code} it is", "retryable": retryable}}


class Instance:
    """One of several instances on a ledger and a catalog, with clocks that are moved by hand."""

    def __init__(self, ledger: Ledger, world: "SharedState", *, waiting: bool = False) -> None:
        """With `waiting` the work that it begins is done by `do_begun_work`, else at once."""
        self.ledger = ledger
        self.owners = ledger.owners
        self.clock = world.clock
        self.seconds = 0.0
        self.pipeline = FakePipeline()
        self.work: list[Callable[[], None]] = []
        self.metrics = Metrics()
        self.notes = ScheduleRecords(self.ledger)
        windows = skip_reason(world.catalog.as_catalog, CompactionSettings(), self.clock.ms)
        self.scheduler = Scheduler(
            self.notes,
            tables_of(world.catalog.as_catalog),
            windows,
            now_ms=self.clock.ms,
            monotonic=lambda: self.seconds,
            begin=self.work.append if waiting else lambda work: work(),
            pauses_s=(0, 0),
            metrics=self.metrics,
        )
        self.scheduler.open(self.pipeline)
        self.schedules = Schedules(self.notes, world.catalog.as_catalog, self.scheduler)

    def run_now(self, schedule: Schedule, request_id: str = "r") -> ClaimedRun | None:
        """Run a schedule as RUN_SCHEDULE does."""
        with self.ledger.transaction() as transaction:
            run = self.schedules.claim(schedule, request_id, uuid.uuid4().hex, transaction)
        return None if run is None else self.scheduler.go(schedule, run)

    def tick(self, seconds: float = 0) -> None:
        self.seconds += seconds
        self.scheduler.tick()

    def do_begun_work(self) -> None:
        """Do the work that was begun."""
        while self.work:
            self.work.pop(0)()

    def found(self) -> Schedule:
        schedule = self.notes.find("acme", "nightly")
        assert schedule is not None
        return schedule

    def runs(self) -> list[JobRecord]:
        """The newest last."""
        return self.notes.runs([self.found().id], 50)[self.found().id][::-1]

    def states(self) -> list[str]:
        return [run.state for run in self.runs()]


class SharedState:
    """What all instances share besides the ledger."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.catalog = FakeCatalog()
        for name in (ONE, OTHER, THIRD):
            self.catalog.create(name, SCHEMA, (), {})

    def at(self, moment: datetime) -> None:
        self.clock.now = moment


def schedule(**message: Any) -> Schedule:
    """Every night at two."""
    plain = Schedule(
        id="id-1",
        tenant="acme",
        name="nightly",
        cron="0 2 * * *",
        timezone="UTC",
        delay_s=0,
        scope="table",
        namespace="shop",
        table="orders",
        task='{"operation": "COMPACT", "force": true}',
        enabled=True,
        catch_up=True,
        created_ms=0,
        next_ms=to_ms(TWO),
    )
    return replace(plain, **message)


ALL = {"scope": "tenant", "namespace": None, "table": None}
