"""Which queries may run in the process for queries, and which of them ended it.

Tenants share the sessions: each has its own queue, and a part of them at most.

If a process ends while one query runs, that query ended it. If several run, it cannot be told which: Java does not say
who holds the memory. So each of them runs again alone, the one that has run for the shortest time first. A query that
was alone when a process ended for the second time ended it.
"""

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.engine.queries.engine import Reason, too_much_memory
from service.errors import EngineUnavailable, FirnError, QueryTooExpensive, TooManyRequests
from service.fairness.shares import FairQueue, share_of, working_for
from service.model.call import Call

# For so long a suspect keeps all others waiting. After that it must not keep other suspects company, only new queries.
_ALONE_S = 10.0
_MOST_RUNS = 3
_LOOK_EVERY_S = 1.0
# Longer than the tasks of a cancelled query go on.
_ENDING_S = 5.0
L = TypeVar("L")


@dataclass(eq=False)
class Entry:
    """One query, from its first run to its result."""

    call: Call
    tenant: str = field(default_factory=working_for)
    runs: int = 0
    since: float = 0.0
    """When its last run began."""
    alone: bool = False
    """Whether it ran when a process ended, and may have ended it."""
    was_killed: bool = False
    """Whether someone killed a process in which it ran."""
    streaming: bool = False
    """Whether it has begun to return rows, so that it cannot run again."""
    failure: FirnError | None = None
    """Why it does not run again."""


@dataclass
class Lending(Generic[L]):
    """Lends the sessions of one process after another. All of it under `changed`."""

    sessions: int
    start_wait_s: float
    tenant_share: int = 100
    """How many of the sessions one tenant may have, in percent."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    life: L | None = None
    """The process; None while there is none."""
    stopped: bool = False
    running: set[Entry] = field(default_factory=set)
    """Without those that stream: they occupy no session."""
    streams: set[Entry] = field(default_factory=set)
    suspects: list[Entry] = field(default_factory=list)
    """In the order in which they run again."""
    _waiting: dict[Entry, float] = field(default_factory=dict)
    _queue: FairQueue[Entry] = field(init=False)
    _cancelled: float = -math.inf
    """When a query last left unfinished. Its tasks may run a little longer."""
    _ended: float = -math.inf
    """When the last process ended."""
    _moved: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._queue = FairQueue(share_of(self.sessions, self.tenant_share))

    def enter(self, entry: Entry) -> L:
        """Wait until the entry may run, and count it as running, in the process that this returns."""
        with self.changed:
            self._waiting[entry] = time.monotonic()
            self._queue.add(entry.tenant, entry)
            try:
                with entry.call.cancelling(self._wake):
                    life = self._wait(entry)
            except BaseException:
                self._forget(entry)
                raise
            finally:
                del self._waiting[entry]
                self._queue.remove(entry.tenant, entry)
                self.changed.notify_all()  # another one is the next now
            self._queue.take(entry.tenant, entry)
            entry.runs += 1
            entry.since = self._moved = time.monotonic()
            self.running.add(entry)
            return life

    def _wait(self, entry: Entry) -> L:
        deadline = time.monotonic() + self.start_wait_s
        while True:
            entry.call.check()
            if self.life is not None and self._may_run(entry):
                return self.life
            left = deadline - time.monotonic()
            if self.stopped or (left <= 0 and self.life is None):
                raise EngineUnavailable("Spark for queries is not available; try again in a few seconds")
            if left <= 0:
                raise TooManyRequests(
                    f"no Spark session became free for this query in {self.start_wait_s:g} s; try again later"
                )
            # A deadline, and a suspect's time alone, end without anyone's notice.
            self.changed.wait(min(left, _LOOK_EVERY_S))

    def _may_run(self, entry: Entry) -> bool:
        """Whether there is a session, and it is this entry's turn."""
        return len(self.running) < self.sessions and self._queue.first(self._is_allowed) == (entry.tenant, entry)

    def _is_allowed(self, entry: Entry) -> bool:
        """Whether the entry may run beside those that run, because of a suspect among them."""
        first = self._first_suspect()
        if first is None:
            return True
        if entry in self.suspects:
            return entry is first and not self.running
        return first in self.running and time.monotonic() - first.since > _ALONE_S

    def _first_suspect(self) -> Entry | None:
        """The suspect that runs, or runs next. Of a stream that nobody reads at the moment nothing is expected."""
        while self.suspects:
            first = self.suspects[0]
            is_here = first in self.running or first in self._waiting
            if is_here or time.monotonic() - self._ended < _ALONE_S:
                return first
            self.suspects.pop(0)
        return None

    def leave(self, entry: Entry, *, unfinished: bool = False) -> None:
        """The entry has its result, or none is wanted."""
        with self.changed:
            self._moved = time.monotonic()
            if unfinished or entry.call.cancelled:
                self._cancelled = self._moved
            self._forget(entry)
            self.changed.notify_all()

    def stream(self, entry: Entry) -> None:
        """The entry's rows are read from now on: it has no session any more."""
        with self.changed:
            self._moved = time.monotonic()
            self._forget(entry)
            self.streams.add(entry)
            self.changed.notify_all()

    def _forget(self, entry: Entry) -> None:
        if entry in self.running:
            self.running.remove(entry)
            self._queue.leave(entry.tenant)
        self.streams.discard(entry)
        if entry in self.suspects:
            self.suspects.remove(entry)

    def _wake(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def start(self, life: L) -> None:
        with self.changed:
            self.life, self._moved = life, time.monotonic()
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.life, self.stopped = None, True
            self.changed.notify_all()

    def end(self, reason: Reason) -> None:
        """The process has ended: decide for each entry whether it runs again, and how."""
        with self.changed:
            self.life, self._ended = None, time.monotonic()
            entries = [*self.running, *self.streams]
            judge(reason, entries, more=time.monotonic() - self._cancelled < _ENDING_S)
            self.running.clear()
            self._queue.forget_taken()
            self.streams.clear()
            suspects = [entry for entry in entries if entry.alone and entry.failure is None]
            # The quick ones get their responses first.
            self.suspects = sorted({*self.suspects, *suspects}, key=lambda entry: entry.since, reverse=True)
            self.suspects = [entry for entry in self.suspects if entry.failure is None]
            self.changed.notify_all()

    def longest_wait_s(self) -> float:
        with self.changed:
            return time.monotonic() - min(self._waiting.values()) if self._waiting else 0.0

    def stalled_s(self) -> float:
        """How long queries have waited without any session being lent or returned."""
        with self.changed:
            since = max(min(self._waiting.values()), self._moved) if self._waiting else time.monotonic()
            return time.monotonic() - since


def judge(reason: Reason, entries: list[Entry], *, more: bool = False) -> None:
    """Decide which of the entries that ran when a process ended must not run again, and which only alone.

    `more`: tasks of queries that are not among them may have run, too.
    """
    wanted = [entry for entry in entries if not entry.call.cancelled]
    for entry in _culprits(reason, wanted, more or len(wanted) < len(entries)):
        entry.failure = too_expensive(reason)
    for entry in wanted:
        if entry.failure is not None:
            continue
        if entry.streaming or entry.runs >= _MOST_RUNS or reason == "stop":
            entry.failure = EngineUnavailable("Spark ended during this query; try again")
        elif reason == "killed":
            entry.alone, entry.was_killed = entry.was_killed, True


def _culprits(reason: Reason, entries: list[Entry], more: bool) -> list[Entry]:
    """The entry that ended the process, if it is known. If it could be any, they become suspects."""
    if reason in ("stop", "stuck", "start"):  # nobody, or a query that was cancelled
        return []
    suspects = [entry for entry in entries if entry.alone]
    if suspects:
        return suspects
    if reason == "killed":
        return []
    if len(entries) == 1 and not more:
        return entries
    for entry in entries:
        entry.alone = True
    return []


def too_expensive(reason: Reason) -> QueryTooExpensive:
    details = {"reason": reason}
    if reason == "memory":
        return too_much_memory(details)
    return QueryTooExpensive(
        "the query ended the process that ran it; select fewer rows or smaller values, or simplify its expressions",
        details=details,
    )
