"""One run of a schedule: the operation on one table after another, as long as the run is this instance's."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from service import wire
from service.commits.ask import Ask
from service.errors import Cancelled, CommitConflict, FirnError, LedgerUnavailable, TableNotFound
from service.ledger.schedules import Claim, Run, Schedule, ScheduleNotes
from service.names import TableName
from service.upkeep.tally import Outcome, Tally
from service.upkeep.task import Door, loads, request_of

log = logging.getLogger("firn.schedules")

# Says why a scheduled operation must not begin on a table now, if so.
HeldOff = Callable[[TableName, str, bool], str | None]
TablesOf = Callable[[Schedule], list[TableName]]


class Lost(Exception):
    """The run is somebody else's by now, or its schedule is gone."""


class Stopped(Exception):
    """The service stops: whoever is next goes on."""


@dataclass
class Live:
    """A run that this instance has claimed."""

    claim: Claim
    tally: Tally
    lost: bool = False
    """Whether others were seen to have it; what is under way may go on, and cannot be committed."""
    over: "Future[Run | None]" = field(default_factory=Future)
    """Ends with the run as it was noted; None where it was taken over, or its schedule deleted."""

    @property
    def by_clock(self) -> bool:
        """Whether it began because it was due, not because somebody asked for it now."""
        return self.claim.run.asked_by == "schedule"


@dataclass(frozen=True)
class Runner:
    """Carries runs out. `pauses_s` is how long to wait before what may be sent again is."""

    notes: ScheduleNotes
    tables_of: TablesOf
    held_off: HeldOff
    door: Door
    stopping: threading.Event
    pauses_s: Sequence[float] = (2, 15)

    def carry_out(self, live: Live) -> str | None:
        """Look after every table that is left; what the error was where there was nothing to look after.

        Lost and Stopped say that it goes no further here.
        """
        schedule, task = live.claim.schedule, loads(live.claim.schedule.task)
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

    def still_ours(self, live: Live) -> None:
        """Refuse what the run would commit, where it is ours no more; asked right before each commit."""
        if live.lost or not self.notes.holds(live.claim):
            live.lost = True
            raise CommitConflict(
                f"this run of schedule {live.claim.schedule.name!r} was taken over by another instance, "
                "or its schedule was deleted; nothing more of it is committed here"
            )

    def _one(self, live: Live, task: dict[str, Any], name: TableName, number: int) -> Outcome:
        begun = time.monotonic()

        def outcome(state: Any, **said: Any) -> Outcome:
            return Outcome(name.namespace, name.table, state, ms=round((time.monotonic() - begun) * 1000), **said)

        def failed(error: dict[str, str]) -> Outcome:
            if error["code"] == TableNotFound.code and live.claim.schedule.scope != "table":
                return outcome("skipped", reason="it was dropped after the run had begun")
            log.warning("schedule %s on %s: %s", live.claim.schedule.name, name, error["message"])
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
        answer = self._ask(live, request_of(task, name), self._asking(live, number, may_begin))
        if held:
            return outcome("skipped", reason=held[-1])
        if answer["success"]:
            said = answer.get("reason")
            return outcome("done", reason=said if isinstance(said, str) else None)
        return failed({key: answer["error"][key] for key in ("code", "message")})

    def _asking(self, live: Live, number: int, may_begin: Callable[[], None]) -> Ask:
        name, run = live.claim.schedule.name, live.claim.run
        return Ask(
            f"schedule-{name}-{run.id[:12]}-{number}",
            still_ours=lambda: self.still_ours(live),
            may_begin=may_begin,
            asked_by=f"schedule {name}",
        )

    def _ask(self, live: Live, request: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """The answer to the operation on one table, asked again where that may help."""
        for pause in (*self.pauses_s, None):
            answer: dict[str, Any] = wire.parse(self.door.submit(request, ask=ask).result().body)
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

    def _go_on(self, live: Live) -> None:
        if live.lost:
            raise Lost
        if self.stopping.is_set():
            raise Stopped

    def _note(self, live: Live) -> None:
        try:
            live.lost = live.lost or not self.notes.note(live.claim, live.tally.dumps())
        except LedgerUnavailable as e:  # the next note, or the end, says it too
            log.warning("how far schedule %s is could not be noted: %s", live.claim.schedule.name, e.message)
