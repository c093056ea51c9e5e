"""Starts runs that are due, once among all instances, and resumes runs that other instances left."""

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from service.errors import FirnError, InvalidRequest, LedgerUnavailable, ShuttingDown
from service.jobs.schedules.runner import ClaimedRun, RunLost, RunStopped, ScheduleRunner, SkipReason, TablesOf
from service.jobs.schedules.tally import RunTally
from service.jobs.schedules.task import RequestRouter
from service.jobs.schedules.times import LATE_S, ScheduleTiming, due, next_run
from service.ledger.jobs import JobRecord
from service.ledger.schedules import Schedule, ScheduleRecords
from service.metrics.metrics import Metrics
from service.model.identity.principal import ANYONE, Principal
from service.model.times import now_ms, utc

log = logging.getLogger("firn.schedules")

_TICK_S = 1.0
_BEAT_S = 5.0
STALL_S = 60.0
# An instance that cannot be seen may be back in a moment, with all its work: its connection to the ledger broke.
GONE_S = 15.0
AT_ONCE = 4
ATTEMPTS = 5

Work = Callable[[], None]


def _start_thread(work: Work) -> None:
    threading.Thread(target=work, name="firn-schedule", daemon=True).start()


@dataclass(eq=False)
class Scheduler:
    """Runs the schedules of a ledger, together with the other instances.

    A run is claimed in the ledger by compare-and-set. Its owner counts heartbeats there while it goes on. An instance
    takes the run over when it was released, or when the count has not changed by the instance's own clock: for GONE_S
    if the owner is gone, or is this instance, which does not know the run; otherwise for STALL_S. The takeover
    increases the schedule's fence, so that the former owner can commit nothing more for it.
    """

    notes: ScheduleRecords
    tables_of: TablesOf
    skip_reason: SkipReason
    now_ms: Callable[[], int] = now_ms
    monotonic: Callable[[], float] = time.monotonic
    begin: Callable[[Work], None] = _start_thread
    """Does a piece of work, on a thread of its own by default."""
    pauses_s: tuple[float, ...] = (2, 15)
    metrics: Metrics = field(default_factory=Metrics)
    principal_of: Callable[[Schedule], Principal] = lambda schedule: ANYONE
    """Whose rights a schedule has now: those of its creator."""

    def __post_init__(self) -> None:
        self._overdue = 0
        self.metrics.read("firn_schedules_overdue", lambda: self._overdue)
        self._stopping = threading.Event()
        self._runner: ScheduleRunner | None = None
        self._lock = threading.Condition()
        self._live: dict[str, ClaimedRun] = {}
        self._unrecorded: dict[str, tuple[ClaimedRun, Callable[[], bool]]] = {}
        self._awaited: list[tuple[str, Future[JobRecord | None]]] = []
        self._beaten = self.monotonic()
        self._watched: dict[str, _Watch] = {}
        self._due_since: dict[tuple[str, int | None], int] = {}
        self._unreadable: set[str] = set()

    def open(self, router: RequestRouter) -> None:
        """Set the router of its runs' requests."""
        self._runner = ScheduleRunner(
            *(self.notes.jobs, self.tables_of, self.skip_reason, router, self._stopping, self.pauses_s),
            principal_of=self.principal_of,
        )

    def start(self) -> None:
        """Run the schedules in the background from now on."""
        threading.Thread(target=self._tick_until_stopped, name="firn-schedules", daemon=True).start()

    def stop(self) -> None:
        """Start no more runs, and release each run after its current table."""
        with self._lock:
            self._stopping.set()
            awaited, self._awaited = self._awaited, []
        for _, ended in awaited:
            ended.set_exception(_stopping())

    def close(self, seconds: float) -> bool:
        """Stop, and wait until every run is released; false if that takes too long."""
        self.stop()
        with self._lock:
            return self._lock.wait_for(lambda: not self._live, timeout=seconds)

    def tick(self) -> None:
        """Show that our runs go on, resume runs that other instances left, and start those that are due."""
        self._record_ends()
        self._look_for_ends()
        self._beat()
        now_ms = self.now_ms()
        due_or_running = self.notes.due_or_running(now_ms)
        self._watched = {s.id: self._watched[s.id] for s in due_or_running if s.id in self._watched}
        due_since = self._due_since  # when this instance first saw each due time
        self._due_since = {
            (s.id, s.next_ms): due_since.get((s.id, s.next_ms), now_ms) for s in due_or_running if s.run is None
        }
        self._overdue = sum(s.run is None and now_ms - (s.next_ms or now_ms) > LATE_S * 1000 for s in due_or_running)
        for schedule in due_or_running:
            if self._stopping.is_set():
                return
            try:
                if schedule.run is not None:
                    self._resume(schedule, schedule.run)
                elif len(self._live) < AT_ONCE:
                    self._start_if_due(schedule, now_ms)
            except InvalidRequest as e:  # such as a time zone that no longer exists; the other schedules still run
                if schedule.id not in self._unreadable:
                    log.error("schedule %s of %s cannot run: %s", schedule.name, schedule.tenant, e.message)
                self._unreadable.add(schedule.id)

    def go(self, schedule: Schedule, run: JobRecord) -> ClaimedRun:
        """Begin a run that this instance has claimed."""
        live = ClaimedRun(schedule, run, RunTally.loads(run.progress))
        with self._lock:
            self._live[run.id] = live
        self.begin(partial(self._run, live))
        return live

    def when_ended(self, run: str) -> "Future[JobRecord | None]":
        """The run as it ended, here or on another instance; None if it was deleted with its schedule.

        ShuttingDown if this instance stops before.
        """
        ended: Future[JobRecord | None] = Future()
        with self._lock:
            live = self._live.get(run)
        if live is None:
            self._await(run, ended)
        else:
            live.over.add_done_callback(lambda over: self._pass_on(run, over.result(), ended))
        return ended

    def _tick_until_stopped(self) -> None:
        logged = False
        while not self._stopping.wait(_TICK_S):
            try:
                self.tick()
                logged = False
            except Exception as e:
                if not logged:
                    log.error("schedules cannot run, trying again: %s", e, exc_info=not isinstance(e, FirnError))
                logged = True

    def _start_if_due(self, schedule: Schedule, now_ms: int) -> None:
        """Start or skip a run that is due, unless another instance is faster."""
        planned_ms = schedule.next_ms
        if planned_ms is None or not schedule.enabled:
            return
        timing = ScheduleTiming(schedule.cron, schedule.timezone, schedule.delay_s, schedule.catch_up)
        planned = utc(planned_ms)
        # A run that only had to wait for other runs was not missed: an instance was there when it was due.
        what = due(timing, planned, utc(self._due_since[schedule.id, planned_ms]))
        if what == "not yet":
            return
        next_ms = next_run_ms(timing, utc(now_ms))
        if what == "missed":
            if self.notes.miss(schedule, now_ms, RunTally().dumps(), next_ms):
                self.metrics.schedule_ran("missed")
                log.info("schedule %s missed its run at %s", schedule.name, planned.isoformat())
            return
        run = self.notes.claim(schedule, "schedule", now_ms, RunTally().dumps(), due=True, next_ms=next_ms)
        if run is not None:
            log.info("schedule %s of %s starts, due at %s", schedule.name, schedule.tenant, planned.isoformat())
            self.go(schedule, run)

    def _resume(self, schedule: Schedule, run: JobRecord) -> None:
        """Resume a run that its instance left, or that has stalled."""
        if not self._is_left(schedule, run):
            return
        taken = self.notes.jobs.take(run, state="running")
        if taken is None:
            return
        self._watched.pop(schedule.id, None)
        log.warning(
            "schedule %s of %s continues on this instance: the previous one is gone", schedule.name, schedule.tenant
        )
        if taken.fence > ATTEMPTS:
            error = f"{ATTEMPTS} instances in a row ended or stalled during this run; it is not tried again"
            self.notes.jobs.end_held(taken, self._ended(taken, "failed", error))
            self.metrics.schedule_ran("failed")
            return
        self.go(schedule, taken)

    def _is_left(self, schedule: Schedule, run: JobRecord) -> bool:
        with self._lock:
            if run.id in self._live:
                self._watched.pop(schedule.id, None)
                return False
        records = self.notes.jobs
        # It was released, or its owner was the only instance, and has ended.
        if not run.owner or (not records.shared and records.left(run)):
            return True
        now, seen = self.monotonic(), (run.fence, run.heartbeat)
        watch = self._watched.get(schedule.id)
        if watch is None or watch.seen != seen:
            self._watched[schedule.id] = watch = _Watch(seen, now)
        # A run of ours that we do not know: the response to its claim was lost, or its end could not be recorded.
        if run.owner != records.me and not records.left(run):
            watch.gone_since = None
            return now - watch.since >= STALL_S
        if watch.gone_since is None:
            watch.gone_since = now
        return now - watch.gone_since >= GONE_S

    def _run(self, live: ClaimedRun) -> None:
        name = live.schedule.name
        try:
            assert self._runner is not None, "the scheduler is not open"
            error = self._runner.run(live)
            self._end(live, "failed" if error else live.tally.state, error)
        except RunLost:
            log.warning("schedule %s stops here: its run was taken over or cancelled, or it was deleted", name)
            self._finish(live, None, lambda: False)
        except RunStopped:
            tally = live.tally.dumps()
            released = replace(live.run, state="interrupted", progress=tally)
            self._finish(live, released, lambda: self.notes.jobs.release(live.run, tally))
        except Exception:
            log.exception("a run of schedule %s failed unexpectedly", name)
            self._end(live, "failed", "something went wrong inside the service; its log has it")

    def _end(self, live: ClaimedRun, state: str, error: str | None) -> None:
        ended = self._ended(replace(live.run, progress=live.tally.dumps()), state, error)
        self._finish(live, ended, lambda: self.notes.jobs.end_held(live.run, ended))

    def _ended(self, run: JobRecord, state: str, error: str | None) -> JobRecord:
        return replace(run, state=state, outcome=json.dumps(error).encode(), ended_ms=self.now_ms())

    def _finish(self, live: ClaimedRun, ended: JobRecord | None, record: Callable[[], bool]) -> None:
        """Record a run's end; if the ledger is not available, a later tick does."""
        try:
            if not record():
                ended = None
        except LedgerUnavailable as e:
            log.error("the end of a run of schedule %s is not recorded yet: %s", live.schedule.name, e.message)
            with self._lock:
                self._unrecorded[live.run.id] = (live, record)
        except Exception:  # those who wait for the run are notified all the same
            log.exception("the end of a run of schedule %s could not be recorded", live.schedule.name)
        finally:
            self._forget(live)
            if ended is not None:
                self.metrics.schedule_ran(ended.state)
            live.over.set_result(ended)

    def _forget(self, live: ClaimedRun) -> None:
        run = live.run.id
        with self._lock:
            # A run whose end is not recorded yet is still ours, and others must see that.
            if (run not in self._unrecorded or self._stopping.is_set()) and self._live.get(run) is live:
                del self._live[run]
                self._lock.notify_all()

    def _record_ends(self) -> None:
        """Record the ends that could not be recorded before; one that fails again keeps no other from it."""
        with self._lock:
            unrecorded = dict(self._unrecorded)
        for run, (live, record) in unrecorded.items():
            try:
                record()
            except LedgerUnavailable:
                continue
            except Exception:  # it would fail again with every tick; the run is resumed as one that was left
                log.exception("the end of a run of schedule %s could not be recorded", live.schedule.name)
            with self._lock:
                del self._unrecorded[run]
            self._forget(live)

    def _pass_on(self, run: str, over: JobRecord | None, ended: "Future[JobRecord | None]") -> None:
        """Notify one who waits for a run that is over here: it may go on elsewhere."""
        if over is not None and over.ended_ms is not None:
            ended.set_result(over)
        else:
            self._await(run, ended)

    def _await(self, run: str, ended: "Future[JobRecord | None]") -> None:
        """Look whether a run has ended, now and with each tick."""
        with self._lock:
            stopping = self._stopping.is_set()
            if not stopping:
                self._awaited.append((run, ended))
        if stopping:
            ended.set_exception(_stopping())
        with suppress(LedgerUnavailable):
            self._look_for_ends()

    def _look_for_ends(self) -> None:
        for awaited in list(self._awaited):
            run, ended = awaited
            found = self.notes.jobs.find(run)
            if found is not None and found.ended_ms is None:
                continue
            with self._lock:
                ours = awaited in self._awaited  # a stop may have been faster
                self._awaited = [other for other in self._awaited if other is not awaited]
            if ours:
                ended.set_result(found)

    def _beat(self) -> None:
        if self.monotonic() - self._beaten < _BEAT_S:
            return
        self._beaten = self.monotonic()
        with self._lock:
            in_progress = list(self._live.values())
        for live in in_progress:
            live.lost = live.lost or not self.notes.jobs.beat(live.run)


@dataclass
class _Watch:
    """Another instance's run: its fence and heartbeat, and since when they are unchanged and its owner is gone."""

    seen: tuple[int, int]
    since: float
    gone_since: float | None = None


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service stops before this run has ended; send the request again once it is back")


def next_run_ms(timing: ScheduleTiming, after: datetime) -> int | None:
    found = next_run(timing, after)
    return None if found is None else to_ms(found)


def to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
