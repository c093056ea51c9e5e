"""Spark for the rest of the service: a few warm sessions, of which each job is lent one."""

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from service.engine.session import jvm, priorities
from service.engine.session.cancellation import cancellable_for
from service.engine.session.heap import MemoryRelief
from service.engine.session.priorities import TaskPriorities
from service.engine.session.spark_types import SparkSession
from service.engine.session.tags import rows_read, rows_written
from service.engine.session.translate import SparkEnded, is_lost, is_odd, translated
from service.errors import EngineUnavailable, FirnError, TooManyRequests
from service.fairness.shares import SERVICE, FairQueue, share_of, working_for
from service.model.call import Call

P = ParamSpec("P")
T = TypeVar("T")
State = Literal["new", "starting", "up", "failed", "stopped"]
Session = SparkSession
"""What an engine lends. Code outside the engine only passes it on."""
log = logging.getLogger("firn.engine")
# How many sessions are reserved for WRITEs and edits: queries and maintenance cannot use them.
_FOR_CHANGES = 1


@dataclass(eq=False)
class _Waiter:
    """A thread that waits for a session."""

    tenant: str
    limited: bool
    """Whether it cannot use the sessions reserved for changes."""
    since: float = field(default_factory=time.monotonic)

    @property
    def counted(self) -> Counter[str]:
        """What its session adds to those that are not for changes, by tenant."""
        return Counter({self.tenant: int(self.limited)})


@dataclass(frozen=True)
class Supervisor:
    """Of a process that has an engine only for queries: what to do when its JVM is of no more use."""

    ended: Callable[[int], object]
    """Gets the code with which the JVM ended."""
    stuck: Callable[[str], object]
    """Gets the tag of cancelled Spark jobs whose tasks do not end."""


class Engine:
    """Owns the JVM. If it dies, running requests fail with EngineUnavailable, and Spark is restarted.

    With a supervisor, the engine is for queries only, and does not restart Spark.
    """

    def __init__(
        self,
        conf: dict[str, str],
        sessions: int,
        start_wait_s: float,
        held: tuple[int, ...] = (),
        tenant_share: int = 100,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`tenant_share` is how many of the sessions one tenant may use, in percent."""
        self._conf = conf
        self._held = held
        self._supervisor = supervisor
        self._count = sessions
        self._start_wait_s = start_wait_s
        self._changed = threading.Condition()
        self._state: State = "new"
        self._root: SparkSession | None = None
        self._idle: list[SparkSession] = []
        self._limited: Counter[str] = Counter()
        """How many sessions are lent to calls that are not changes, by tenant."""
        self._reserved = _FOR_CHANGES if supervisor is None else 0
        self._limited_share = share_of(sessions - self._reserved, tenant_share)
        # A job may need a second session to commit.
        self._waiters: FairQueue[_Waiter] = FairQueue(max(2, share_of(sessions, tenant_share)))
        self._moved = time.monotonic()
        """When a session was last lent or returned."""
        self._life = 0
        self._relief = MemoryRelief()
        self._priorities = TaskPriorities(priorities.are_set(conf), always=supervisor is not None)

    @property
    def up(self) -> bool:
        return self._state == "up"

    @property
    def sessions(self) -> int:
        """How many jobs can run at the same time."""
        return self._count

    @property
    def idle(self) -> int:
        """How many sessions are free."""
        return len(self._idle)

    @property
    def lent(self) -> int:
        """How many sessions of the current JVM are lent."""
        with self._changed:
            return self._count - len(self._idle) if self._state == "up" else 0

    @property
    def longest_wait_s(self) -> float:
        """The longest time that a waiting request has waited for a session."""
        with self._changed:
            return time.monotonic() - self._oldest() if self._waiters.waiting else 0.0

    @property
    def stalled_s(self) -> float:
        """How long requests have waited for a session without any being lent or returned."""
        with self._changed:
            since = max(self._oldest(), self._moved) if self._waiters.waiting else time.monotonic()
            return time.monotonic() - since

    @property
    def starts(self) -> int:
        """How many times Spark has started."""
        return self._life

    def start(self) -> None:
        """Start Spark on this thread. Raises EngineUnavailable if it does not start."""
        with self._changed:
            if self._stopped():
                return
            self._state = "starting"
        started = time.monotonic()
        try:
            root = jvm.start(self._conf, self._held, apart=self._supervisor is None)
            sessions = [root.newSession() for _ in range(self._count)]
        except Exception as e:
            with self._changed:
                self._state = "failed"
                self._changed.notify_all()
            raise EngineUnavailable(f"Spark did not start: {e}") from e
        with self._changed:
            if self._stopped():  # during the start
                jvm.stop(root, 2)
                return
            self._root, self._idle, self._state, self._limited = root, sessions, "up", Counter()
            self._waiters.forget_taken()
            self._life += 1
            self._changed.notify_all()
        threading.Thread(target=self._watch, args=(self._life,), name="firn-jvm-watch", daemon=True).start()
        if self._supervisor is None:
            self._relief.start(partial(self._over, self._life))
        log.info("Spark %s is up after %.1f s", root.version, time.monotonic() - started)

    def run(self, job: Callable[Concatenate[SparkSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a job that cannot be cancelled on a lent session."""
        with self.lend() as session:
            return job(session, *args, **kwargs)

    def run_for(
        self, call: Call, job: Callable[Concatenate[SparkSession, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a job for a call on a lent session. If the call is cancelled, so are the job's Spark jobs."""
        with self.lend(call) as session:
            return job(session, *args, **kwargs)

    @contextmanager
    def lend(self, call: Call | None = None) -> Iterator[SparkSession]:
        """Lend a session for the block, and translate the JVM's exceptions.

        If the call is cancelled, it no longer waits for a session, the Spark jobs of the block are cancelled, and the
        block ends with the reason. A call that is not a change cannot use the sessions reserved for changes.
        """
        session, life, waiter = self._borrow(call)
        try:
            jvm.activate(session)
            with self._tagged(session, call):
                yield session
        except FirnError as e:
            _check(call, e)
            raise
        except Exception as e:
            _check(call, e)
            # If the JVM has ended, a job can fail in any way.
            if is_lost(e) or self._over(life) or (is_odd(e) and not jvm.answers()):
                self._end(life)
                raise SparkEnded("Spark ended during this request and is being restarted; try again") from e
            error = translated(e)
            if error is e:
                raise
            raise error from e
        finally:
            self._give_back(session, life, waiter)

    @contextmanager
    def _tagged(self, session: SparkSession, call: Call | None) -> Iterator[None]:
        """Cancel the Spark jobs of the block with its call. Those of queries and maintenance give way to changes."""
        if call is None or call.is_change:
            self._priorities.protect()
        if call is None:
            yield
            return
        stuck = () if self._supervisor is None else (self._supervisor.stuck,)
        with cancellable_for(session, call, *stuck) as tag, self._low(session, tag, call), self._relief.offering(call):
            yield

    def _low(self, session: SparkSession, tag: str, call: Call) -> AbstractContextManager[None]:
        return nullcontext() if call.is_change else self._priorities.low(session, tag)

    def run_on_all(self, job: Callable[[SparkSession], Any]) -> None:
        """Run a job on every free session at the same time, to warm them."""
        with self._changed:
            sessions, life = list(self._idle), self._life
            self._idle.clear()
        try:
            with ThreadPoolExecutor(max(1, len(sessions))) as pool:
                list(pool.map(job, sessions))
        finally:
            for session in sessions:
                self._give_back(session, life)

    def stop(self, seconds: float = 3) -> None:
        with self._changed:
            was, self._state = self._state, "stopped"
            root, self._root = self._root, None
            self._idle.clear()
            self._changed.notify_all()
        if was not in ("new", "stopped"):
            jvm.stop(root, seconds)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with a tag. Does nothing if the JVM does not respond."""
        root = self._root
        if root is not None:
            with suppress(Exception):
                root.sparkContext.cancelJobsWithTag(tag)

    def rows_written(self, tag: str) -> int:
        """How many rows the jobs with a tag have written so far; 0 if the JVM does not respond."""
        root = self._root
        with suppress(Exception):
            return 0 if root is None else rows_written(root, tag)
        return 0

    def rows_read(self, tag: str) -> int:
        """How many rows the jobs with a tag have read so far; 0 if the JVM does not respond."""
        root = self._root
        with suppress(Exception):
            return 0 if root is None else rows_read(root, tag)
        return 0

    def cancel_all(self, seconds: float) -> None:
        """Cancel every running job, so that a stop need not wait. Times out if the JVM does not respond."""
        root = self._root
        if root is not None:
            cancelling = threading.Thread(target=jvm.cancel_quietly, args=(root,), daemon=True)
            cancelling.start()
            cancelling.join(seconds)

    def _over(self, life: int) -> bool:
        """Whether the JVM of a session that was lent has ended."""
        with self._changed:
            return life != self._life or self._state != "up"

    def _stopped(self) -> bool:
        return self._state == "stopped"

    def _borrow(self, call: Call | None) -> tuple[SparkSession, int, _Waiter]:
        waiter = _Waiter(working_for(), limited=call is not None and not call.is_change)
        with self._changed, self._waiting(waiter), _waking(call, self._wake):
            ready = self._changed.wait_for(
                lambda: self._is_next(waiter) or self._state in ("failed", "stopped") or (call and call.cancelled),
                timeout=self._start_wait_s,
            )
            if call is not None:
                call.check()
            if not ready and self._state == "up":
                raise TooManyRequests(
                    f"no Spark session became free for this request in {self._start_wait_s:g} s; try again later"
                )
            if not self._idle:
                raise EngineUnavailable(f"Spark is not available ({self._state}); try again in a few seconds")
            self._waiters.take(waiter.tenant, waiter)
            self._limited += waiter.counted
            self._moved = time.monotonic()
            self._changed.notify_all()  # another waiter is the next now
            # The session used last is the warmest.
            return self._idle.pop(), self._life, waiter

    def _is_next(self, waiter: _Waiter) -> bool:
        """Whether there is a session to lend, and this waiter gets it."""
        return bool(self._idle) and self._waiters.first(self._may_lend) == (waiter.tenant, waiter)

    def _may_lend(self, waiter: _Waiter) -> bool:
        """Some sessions are reserved for changes, and some of the others for other tenants."""
        if not waiter.limited:
            return True
        if waiter.tenant != SERVICE and self._limited[waiter.tenant] >= self._limited_share:
            return False
        return self._limited.total() < self._count - self._reserved

    @contextmanager
    def _waiting(self, waiter: _Waiter) -> Iterator[None]:
        self._waiters.add(waiter.tenant, waiter)
        try:
            yield
        finally:
            self._waiters.remove(waiter.tenant, waiter)
            self._changed.notify_all()

    def _oldest(self) -> float:
        """Since when the first of those that wait has waited."""
        return min(waiter.since for waiter in self._waiters.items())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _give_back(self, session: SparkSession, life: int, waiter: _Waiter | None = None) -> None:
        """Return a session; `waiter` is whoever had waited for it."""
        with self._changed:
            self._moved = time.monotonic()
            if life != self._life or self._state != "up":
                return
            if waiter is not None:
                self._limited -= waiter.counted  # this forgets tenants that have none left
                self._waiters.leave(waiter.tenant)
            self._idle.append(session)
            self._changed.notify_all()

    def _end(self, life: int) -> None:
        """Kill a JVM whose connection broke, so that it cannot later commit what was reported as failed."""
        process = jvm.process()
        with self._changed:
            current = life == self._life and self._state == "up"
        if process is not None and current:
            process.kill()
            process.wait()

    def _watch(self, life: int) -> None:
        process = jvm.process()
        if process is None:
            return
        code = process.wait()
        with self._changed:
            if self._state == "stopped" or life != self._life:
                return
            self._state, self._root = "starting", None
            self._idle.clear()
        if self._supervisor is not None:
            self._supervisor.ended(code)
            return
        log.error("the JVM ended with code %s; restarting Spark", code)
        for delay in itertools.chain((0, 1, 5, 15), itertools.repeat(60)):
            time.sleep(delay)
            try:
                return self.start()
            except FirnError as e:
                log.error("%s", e.message)


def _waking(call: Call | None, wake: Callable[[], None]) -> AbstractContextManager[None]:
    return nullcontext() if call is None else call.cancelling(wake)


def _check(call: Call | None, failure: BaseException) -> None:
    """Raise the reason of the cancellation, if any: a job whose Spark jobs were cancelled can fail in any way."""
    if call is not None and call.cancelled:
        try:
            call.check()
        except FirnError as reason:
            if reason is not failure:
                raise reason from failure
