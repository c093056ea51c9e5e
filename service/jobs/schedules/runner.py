"""One run of a schedule: the operation on one table after another, as long as the run is this instance's."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from service.errors import Cancelled, CommitConflict, FirnError, LedgerUnavailable, TableNotFound
from service.jobs.schedules.tally import RunTally, TableOutcome
from service.jobs.schedules.task import RequestRouter, loads, request_of
from service.ledger.jobs import JobRecord, JobRecords
from service.ledger.schedules import Schedule
from service.model import wire
from service.model.call import Call
from service.model.names import TableName

log = logging.getLogger("firn.schedules")

# Says why a scheduled operation must not begin on a table now, if so.
SkipReason = Callable[[TableName, str, bool], str | None]
TablesOf = Callable[[Schedule], list[TableName]]


class RunLost(Exception):
    """The run is somebody else's by now, or its schedule is gone."""


class RunStopped(Exception):
    """The service stops: whoever is next goes on."""


@dataclass
class ClaimedRun:
    """A run that this instance has claimed."""

    schedule: Schedule
    run: JobRecord
    tally: RunTally
    lost: bool = False
    """Whether others were seen to have it; what is under way may go on, and cannot be committed."""
    over: "Future[JobRecord | None]" = field(default_factory=Future)
    """Ends with the run as it was noted; None where it was taken over, or its schedule deleted."""

    @property
    def by_clock(self) -> bool:
        """Whether it began because it was due, not because somebody asked for it now."""
        return self.run.requested_by == "schedule"


@dataclass(frozen=True)
class ScheduleRunner:
    """Carries runs out. `pauses_s` is how long to wait before what may be sent again is."""

    records: JobRecords
    tables_of: TablesOf
    held_off: SkipReason
    door: RequestRouter
    stopping: threading.Event
    pauses_s: Sequence[float] = (2, 15)

    def carry_out(self, live: ClaimedRun) -> str | None:
        """Look after every table that is left; what the error was where there was nothing to look after.

        Lost and Stopped say that it goes no further here.
        """
        schedule, task = live.schedule, loads(live.schedule.task)
        try:
            tables = self._again(lambda: self.tables_of(schedule))
        except FirnError as e:
            return f"{e.code}: {e.message}"
        left = live.tally.left(tables)
        live.tally = replace(live.tally, tables=len(tables))
        self._note(live)
        for number, name in enumerate(left, len(tables) - len(left) + 1):
            self._go_on(live)
            live.tally = live.tally.plus(self._one(live, task, name, number))
            self._note(live)
        return None

    def still_ours(self, live: ClaimedRun) -> None:
        """Refuse what the run would commit, where it is ours no more; asked right before each commit."""
        if live.lost or not self.records.holds(live.run):
            live.lost = True
            raise CommitConflict(
                f"this run of schedule {live.schedule.name!r} was taken over by another instance, "
                "or its schedule was deleted; nothing more of it is committed here"
            )

    def _one(self, live: ClaimedRun, task: dict[str, Any], name: TableName, number: int) -> TableOutcome:
        begun = time.monotonic()

        def outcome(state: Any, **said: Any) -> TableOutcome:
            return TableOutcome(name.namespace, name.table, state, ms=round((time.monotonic() - begun) * 1000), **said)

        def failed(error: dict[str, str]) -> TableOutcome:
            if error["code"] == TableNotFound.code and live.schedule.scope != "table":
                return outcome("skipped", reason="it was dropped after the run had begun")
            log.warning("schedule %s on %s: %s", live.schedule.name, name, error["message"])
            return outcome("failed", error=error)

        held: list[str] = []

        def may_begin() -> None:
            reason = self.held_off(name, task["operation"], live.by_clock)
            if reason is not None:
                held.append(reason)
                raise Cancelled(reason)

        try:
            may_begin()
        except Cancelled:
            return outcome("skipped", reason=held[-1])
        except FirnError as e:
            return failed({"code": e.code, "message": e.message})
        # The request may wait for long until it has its turn; there it is asked again.
        answer = self._ask(live, request_of(task, name), lambda: self._asking(live, number, may_begin))
        if held:
            return outcome("skipped", reason=held[-1])
        if answer["success"]:
            said = answer.get("reason")
            return outcome("done", reason=said if isinstance(said, str) else None)
        return failed({key: answer["error"][key] for key in ("code", "message")})

    def _asking(self, live: ClaimedRun, number: int, may_begin: Callable[[], None]) -> Call:
        name, run = live.schedule.name, live.run
        return Call(
            f"schedule-{name}-{run.id[:12]}-{number}",
            commit_gate=lambda: self.still_ours(live),
            start_gate=may_begin,
            requested_by=f"schedule {name}",
        )

    def _ask(self, live: ClaimedRun, request: dict[str, Any], new_call: Callable[[], Call]) -> dict[str, Any]:
        """The answer to the operation on one table, asked again where that may help."""
        for pause in (*self.pauses_s, None):
            answer: dict[str, Any] = wire.parse(self.door.submit(request, new_call()).result().body)
            if answer["success"]:
                return answer
            self._go_on(live)
            if pause is None or not answer["error"]["retryable"]:
                return answer
            self.stopping.wait(pause)
            self._go_on(live)
        raise AssertionError("unreachable")

    def _again(self, look: Callable[[], list[TableName]]) -> list[TableName]:
        for pause in self.pauses_s:
            try:
                return look()
            except FirnError as e:
                if not e.retryable:
                    raise
                self.stopping.wait(pause)
        return look()

    def _go_on(self, live: ClaimedRun) -> None:
        if live.lost:
            raise RunLost
        if self.stopping.is_set():
            raise RunStopped

    def _note(self, live: ClaimedRun) -> None:
        try:
            live.lost = live.lost or not self.records.show(live.run, live.tally.dumps())
        except LedgerUnavailable as e:  # the next note, or the end, says it too
            log.warning("how far schedule %s is could not be noted: %s", live.schedule.name, e.message)
