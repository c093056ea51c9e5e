"""Begins what is due, once among all instances, and goes on with what others have left."""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from service.errors import FirnError, InvalidRequest, LedgerUnavailable
from service.jobs.schedules.runner import ClaimedRun, RunLost, RunStopped, ScheduleRunner, SkipReason, TablesOf
from service.jobs.schedules.tally import RunTally
from service.jobs.schedules.task import RequestRouter
from service.jobs.schedules.times import LATE_S, ScheduleTiming, due, next_run
from service.ledger.jobs import JobRecord
from service.ledger.schedules import Schedule, ScheduleNotes
from service.metrics.metrics import Metrics
from service.model.names import TableName

log = logging.getLogger("firn.schedules")

_TICK_S = 1.0
_BEAT_S = 5.0
STALL_S = 60.0
# An instance that cannot be seen may be back in a moment, with all it does: its ledger blinked.
GONE_S = 15.0
AT_ONCE = 4
ATTEMPTS = 5

Work = Callable[[], None]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Scheduler:
    """One instance's part in running the schedules of a ledger.

    A run is claimed in the ledger by compare-and-set. As long as it goes on its owner counts beats there. An instance
    takes it over when it was let go, or when the count has stood still by its own clock: for GONE_S where the owner is
    gone, or is this instance itself, which knows nothing of the run; else for STALL_S. Then the schedule's fence has
    grown, and what was under way for it is refused.
    """

    def __init__(
        self,
        notes: ScheduleNotes,
        tables_of: TablesOf,
        held_off: SkipReason,
        *,
        now_ms: Callable[[], int] = now_ms,
        monotonic: Callable[[], float] = time.monotonic,
        begin: Callable[[Work], None] | None = None,
        pauses_s: tuple[float, ...] = (2, 15),
        metrics: Metrics | None = None,
    ) -> None:
        """`begin` has a piece of work done, on a thread of its own unless it is told otherwise."""
        self._notes = notes
        self._tables_of = tables_of
        self._held_off = held_off
        self.now_ms = now_ms
        self._monotonic = monotonic
        self._begin = begin or _on_a_thread
        self._pauses_s = pauses_s
        self._metrics = metrics or Metrics()
        self._overdue = 0
        self._metrics.read("firn_schedules_overdue", lambda: self._overdue)
        self._stopping = threading.Event()
        self._runner: ScheduleRunner | None = None
        self._lock = threading.Condition()
        self._live: dict[str, ClaimedRun] = {}
        self._unnoted: dict[str, tuple[ClaimedRun, Callable[[], bool]]] = {}
        self._beaten = monotonic()
        self._watched: dict[str, _Watch] = {}
        self._seen_due: dict[str, tuple[int | None, int]] = {}
        self._unreadable: set[str] = set()

    def open(self, door: RequestRouter) -> None:
        """Say where the requests of its runs go in."""
        self._runner = ScheduleRunner(
            self._notes.jobs, self._tables_of, self._held_off, door, self._stopping, self._pauses_s
        )

    def start(self) -> None:
        """Look after the schedules from now on, in the background."""
        threading.Thread(target=self._live_on, name="firn-schedules", daemon=True).start()

    def stop(self) -> None:
        """Begin nothing more, and let each run go after the table that it is at."""
        self._stopping.set()

    def close(self, seconds: float) -> bool:
        """Wait until every run is let go; whether it is."""
        self.stop()
        with self._lock:
            return self._lock.wait_for(lambda: not self._live, timeout=seconds)

    def tick(self) -> None:
        """One look: note that our runs go on, go on with those that others have left, begin what is due."""
        self._note_ends()
        self._beat()
        now_ms = self.now_ms()
        at_hand = self._notes.at_hand(now_ms)
        self._watched = {s.id: self._watched[s.id] for s in at_hand if s.id in self._watched}
        self._seen_due = {s.id: self._first_seen(s, now_ms) for s in at_hand if s.run is None}
        self._overdue = sum(s.run is None and now_ms - (s.next_ms or now_ms) > LATE_S * 1000 for s in at_hand)
        for schedule in at_hand:
            if self._stopping.is_set():
                return
            try:
                if schedule.run is not None:
                    self._look_after(schedule, schedule.run)
                elif len(self._live) < AT_ONCE:
                    self._meet(schedule, now_ms)
            except InvalidRequest as e:  # such as a time zone that is no more; the others are looked after
                if schedule.id not in self._unreadable:
                    log.error("schedule %s of %s cannot run: %s", schedule.name, schedule.tenant, e.message)
                self._unreadable.add(schedule.id)

    def run_now(self, schedule: Schedule, asked_by: str) -> ClaimedRun | None:
        """Begin a run that somebody asks for; None where the schedule runs already."""
        run = self._notes.claim(schedule, asked_by, self.now_ms(), RunTally().dumps(), due=False)
        return None if run is None else self._go(schedule, run)

    def tables_of(self, schedule: Schedule) -> list[TableName]:
        """The tables that a schedule has now."""
        return self._tables_of(schedule)

    def _live_on(self) -> None:
        said = False
        while not self._stopping.wait(_TICK_S):
            try:
                self.tick()
                said = False
            except FirnError as e:
                if not said:
                    log.error("the schedules cannot be looked after, trying again: %s", e.message)
                said = True
            except Exception:
                if not said:
                    log.exception("the schedules cannot be looked after, trying again")
                said = True

    def _meet(self, schedule: Schedule, now_ms: int) -> None:
        """Begin a due run, or leave it out, unless another instance is faster."""
        planned_ms = schedule.next_ms
        if planned_ms is None or not schedule.enabled:
            return
        timing = timing_of(schedule)
        now, planned = _time(now_ms), _time(planned_ms)
        # Where others kept it waiting somebody was there all the same: it was not missed.
        what = due(timing, planned, _time(self._seen_due[schedule.id][1]))
        if what == "not yet":
            return
        after = next_run(timing, now)
        next_ms = None if after is None else to_ms(after)
        if what == "missed":
            if self._notes.miss(schedule, now_ms, RunTally().dumps(), next_ms):
                self._metrics.schedule_ran("missed")
                log.info("schedule %s was missed at %s and is left out", schedule.name, planned.isoformat())
            return
        run = self._notes.claim(schedule, "schedule", now_ms, RunTally().dumps(), due=True, next_ms=next_ms)
        if run is not None:
            log.info("schedule %s of %s begins, due at %s", schedule.name, schedule.tenant, planned.isoformat())
            self._go(schedule, run)

    def _first_seen(self, schedule: Schedule, now_ms: int) -> tuple[int | None, int]:
        """What a schedule is due for, and when this was first seen here."""
        seen = self._seen_due.get(schedule.id)
        return seen if seen is not None and seen[0] == schedule.next_ms else (schedule.next_ms, now_ms)

    def _look_after(self, schedule: Schedule, run: JobRecord) -> None:
        """Go on with a run that its instance has left, or that stands still."""
        if not self._is_left(schedule, run):
            return
        taken = self._notes.jobs.take(run, state="running")
        if taken is None:
            return
        self._watched.pop(schedule.id, None)
        log.warning("schedule %s of %s goes on here: its instance has left it", schedule.name, schedule.tenant)
        if taken.fence > ATTEMPTS:
            error = f"{ATTEMPTS} instances in a row ended, or stood still, before this run did; it is given up"
            self._notes.jobs.end_held(taken, self._ended(taken, "failed", error))
            self._metrics.schedule_ran("failed")
            return
        self._go(schedule, taken)

    def _is_left(self, schedule: Schedule, run: JobRecord) -> bool:
        with self._lock:
            if run.id in self._live:
                self._watched.pop(schedule.id, None)
                return False
        records = self._notes.jobs
        # It was released, or whoever began it was alone here, and has ended.
        if not run.owner or (not records.shared and records.left(run)):
            return True
        now, seen = self._monotonic(), (run.fence, run.heartbeat)
        watch = self._watched.get(schedule.id)
        if watch is None or watch.seen != seen:
            self._watched[schedule.id] = watch = _Watch(seen, now)
        # A claim whose answer was lost, or an end that could not be noted, leaves a run of ours that nobody is at.
        if run.owner != records.me and not records.left(run):
            watch.gone_since = None
            return now - watch.since >= STALL_S
        if watch.gone_since is None:
            watch.gone_since = now
        return now - watch.gone_since >= GONE_S

    def _go(self, schedule: Schedule, run: JobRecord) -> ClaimedRun:
        live = ClaimedRun(schedule, run, RunTally.loads(run.progress))
        with self._lock:
            self._live[run.id] = live
        self._begin(partial(self._carry_out, live))
        return live

    def _carry_out(self, live: ClaimedRun) -> None:
        name = live.schedule.name
        try:
            assert self._runner is not None, "the scheduler was not opened"
            error = self._runner.carry_out(live)
            self._end(live, "failed" if error else live.tally.state, error)
        except RunLost:
            log.warning("schedule %s goes no further here: its run was taken over, or it was deleted", name)
            self._finish(live, None, lambda: False)
        except RunStopped:
            tally = live.tally.dumps()
            released = replace(live.run, state="interrupted", progress=tally)
            self._finish(live, released, lambda: self._notes.jobs.release(live.run, tally))
        except Exception:
            log.exception("a run of schedule %s failed unexpectedly", name)
            self._end(live, "failed", "something went wrong inside the service; its log has it")

    def _end(self, live: ClaimedRun, state: str, error: str | None) -> None:
        ended = self._ended(replace(live.run, progress=live.tally.dumps()), state, error)
        self._finish(live, ended, lambda: self._notes.jobs.end_held(live.run, ended))

    def _ended(self, run: JobRecord, state: str, error: str | None) -> JobRecord:
        return replace(run, state=state, outcome=json.dumps(error).encode(), ended_ms=self.now_ms())

    def _finish(self, live: ClaimedRun, ended: JobRecord | None, note: Callable[[], bool]) -> None:
        """Note a run's end; where the ledger does not answer, a later look does."""
        try:
            if not note():
                ended = None
        except LedgerUnavailable as e:
            log.error("the end of a run of schedule %s is not noted yet: %s", live.schedule.name, e.message)
            with self._lock:
                self._unnoted[live.run.id] = (live, note)
        except Exception:  # whoever waits for the run is told all the same
            log.exception("the end of a run of schedule %s could not be noted", live.schedule.name)
        finally:
            self._forget(live)
            if ended is not None:
                self._metrics.schedule_ran(ended.state)
            live.over.set_result(ended)

    def _forget(self, live: ClaimedRun) -> None:
        run = live.run.id
        with self._lock:
            # One whose end is to be noted still is ours, and others must see that it is.
            if (run not in self._unnoted or self._stopping.is_set()) and self._live.get(run) is live:
                del self._live[run]
                self._lock.notify_all()

    def _note_ends(self) -> None:
        with self._lock:
            unnoted = dict(self._unnoted)
        for run, (live, note) in unnoted.items():
            note()
            with self._lock:
                del self._unnoted[run]
            self._forget(live)

    def _beat(self) -> None:
        if self._monotonic() - self._beaten < _BEAT_S:
            return
        self._beaten = self._monotonic()
        with self._lock:
            under_way = list(self._live.values())
        for live in under_way:
            live.lost = live.lost or not self._notes.jobs.beat(live.run)


@dataclass
class _Watch:
    """A run of others as it was last seen: its fence and its beat, since when they are so, and its owner is gone."""

    seen: tuple[int, int]
    since: float
    gone_since: float | None = None


def timing_of(schedule: Schedule) -> ScheduleTiming:
    return ScheduleTiming(schedule.cron, schedule.timezone, schedule.delay_s, schedule.catch_up)


def to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _on_a_thread(work: Work) -> None:
    threading.Thread(target=work, name="firn-schedule", daemon=True).start()
