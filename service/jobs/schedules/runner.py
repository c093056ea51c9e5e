"""One run of a schedule: the operation on one table after another, while this instance has the run."""

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
from service.model.failures import error_fields
from service.model.identity.principal import ANYONE, Principal
from service.model.names import TableName

log = logging.getLogger("firn.schedules")

# Why a scheduled operation must not start on a table now, if so; the flag says that it is due, not requested.
SkipReason = Callable[[TableName, str, bool], str | None]
TablesOf = Callable[[Schedule], list[TableName]]


class RunLost(Exception):
    """The run was taken over by another instance or cancelled, or its schedule was deleted."""


class RunStopped(Exception):
    """The service stops; another instance, or the next start, resumes the run."""


@dataclass
class ClaimedRun:
    """A run that this instance has claimed."""

    schedule: Schedule
    run: JobRecord
    tally: RunTally
    lost: bool = False
    """Whether another instance is known to have it. What is in progress may go on, but cannot be committed."""
    over: "Future[JobRecord | None]" = field(default_factory=Future)
    """Its result is the run as it was recorded; None if it was taken over, or its schedule deleted."""


@dataclass(frozen=True)
class ScheduleRunner:
    """Performs runs. `pauses_s` are the pauses before a retryable request is sent again."""

    records: JobRecords
    tables_of: TablesOf
    skip_reason: SkipReason
    router: RequestRouter
    stopping: threading.Event
    pauses_s: Sequence[float] = (2, 15)
    principal_of: Callable[[Schedule], Principal] = lambda schedule: ANYONE
    """Whose rights a schedule has now."""

    def run(self, live: ClaimedRun) -> str | None:
        """Run the task on every remaining table; returns the error if the tables cannot be listed. Raises RunLost or
        RunStopped if the run does not go on here."""
        schedule, task = live.schedule, loads(live.schedule.task)
        try:
            tables = self._list_tables(schedule)
        except FirnError as e:
            return f"{e.code}: {e.message}"
        left = live.tally.left(tables)
        live.tally = replace(live.tally, tables=len(tables))
        self._record(live)
        for number, name in enumerate(left, len(tables) - len(left) + 1):
            self._check_goes_on(live)
            started = time.monotonic()
            outcome = self._run_on(live, task, name, number)
            live.tally = live.tally.plus(replace(outcome, ms=round((time.monotonic() - started) * 1000)))
            self._record(live)
        return None

    def check_ours(self, live: ClaimedRun) -> None:
        """Call it directly before each commit of the run: CommitConflict if the run is not ours any more."""
        if live.lost or not self.records.holds(live.run):
            live.lost = True
            raise CommitConflict(
                f"this run of schedule {live.schedule.name!r} was taken over by another instance or cancelled, "
                "or its schedule was deleted; nothing more of it is committed here"
            )

    def _run_on(self, live: ClaimedRun, task: dict[str, Any], name: TableName, number: int) -> TableOutcome:
        outcome = TableOutcome(name.namespace, name.table, "skipped")
        skipped: list[str] = []

        def check_start() -> None:
            reason = self.skip_reason(name, task["operation"], live.run.requested_by == "schedule")
            if reason is not None:
                skipped.append(reason)
                raise Cancelled(reason)

        try:
            check_start()
        except FirnError as e:
            response: dict[str, Any] = {"success": False, "error": {"code": e.code, "message": e.message}}
        else:  # the request may wait for a lock, and is checked again when it has it
            response = self._send(live, request_of(task, name), lambda: self._call(live, number, check_start))
        if skipped:
            return replace(outcome, reason=skipped[-1])
        if response["success"]:
            reason = response.get("reason")
            return replace(outcome, state="done", reason=reason if isinstance(reason, str) else None)
        error = {key: response["error"][key] for key in ("code", "message")}
        if error["code"] == TableNotFound.code and live.schedule.scope != "table":
            return replace(outcome, reason="it was dropped after the run had begun")
        log.warning("schedule %s on %s: %s", live.schedule.name, name, error["message"])
        return replace(outcome, state="failed", error=error)

    def _call(self, live: ClaimedRun, number: int, check_start: Callable[[], None]) -> Call:
        name, run = live.schedule.name, live.run
        return Call(
            f"schedule-{name}-{run.id[:12]}-{number}",
            commit_gate=lambda: self.check_ours(live),
            start_gate=check_start,
            requested_by=f"schedule {name}",
            principal=self.principal_of(live.schedule),
        )

    def _send(self, live: ClaimedRun, request: dict[str, Any], new_call: Callable[[], Call]) -> dict[str, Any]:
        """The response to the operation on one table; retried if that may help."""
        for pause in (*self.pauses_s, None):
            try:
                response: dict[str, Any] = wire.parse(self.router.submit(request, new_call()).result().body)
            except FirnError as e:  # the rights of its creator cannot be read now
                response = {"success": False, "error": error_fields(e)}
            if response["success"]:
                return response
            self._check_goes_on(live)
            if pause is None or not response["error"]["retryable"]:
                return response
            self.stopping.wait(pause)
            self._check_goes_on(live)
        raise AssertionError("unreachable")

    def _list_tables(self, schedule: Schedule) -> list[TableName]:
        for pause in self.pauses_s:
            try:
                return self.tables_of(schedule)
            except FirnError as e:
                if not e.retryable:
                    raise
                self.stopping.wait(pause)
        return self.tables_of(schedule)

    def _check_goes_on(self, live: ClaimedRun) -> None:
        if live.lost:
            raise RunLost
        if self.stopping.is_set():
            raise RunStopped

    def _record(self, live: ClaimedRun) -> None:
        try:
            live.lost = live.lost or not self.records.show(live.run, live.tally.dumps())
        except LedgerUnavailable as e:  # it is recorded with the next table, or with the end
            log.warning("the progress of schedule %s could not be recorded: %s", live.schedule.name, e.message)
