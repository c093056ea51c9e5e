"""Queries in a process of their own, with a JVM and a heap: what exhausts these ends no change.

The service starts the process, watches it, and starts it again when it has ended. Each job has a connection to it.
"""

import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from service.engine.queries import wire
from service.engine.queries.batches import RowBatches
from service.engine.queries.child import Options
from service.engine.queries.engine import REASONS, QueryState, Reason
from service.engine.queries.launch import QueryChild
from service.engine.queries.lending import Entry, Lending
from service.engine.session.engine import Session
from service.errors import EngineUnavailable, FirnError
from service.model.call import Call

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("firn.queries")
_LOOK_EVERY_S = 0.1
# How long the job of a cancelled query may go on before its process is replaced.
_CANCEL_S = 3.5
# Before a start after one that failed.
_PAUSES_S = (0.0, 1.0, 5.0, 15.0)
_LONG_PAUSE_S = 60.0
_RESPONSE_S = 5.0
_END_S = 20.0


class _Ended(Exception):
    """The process ended during a job."""


@dataclass(eq=False)
class _Life:
    """One process, from its start to its end."""

    child: QueryChild
    over: threading.Event = field(default_factory=threading.Event)
    """Set when it is known why it ended."""
    _free: list[Connection] = field(default_factory=list)

    def connection(self) -> Connection:
        try:
            return self._free.pop()
        except IndexError:
            return self.child.connect()

    def give_back(self, connection: Connection) -> None:
        self._free.append(connection)

    def close(self) -> None:
        while self._free:
            self._free.pop().close()

    def ask(self, request: Any, seconds: float | None = _RESPONSE_S) -> Any:
        """The response to a request that is not a job. Raises TimeoutError if it does not come in time."""
        connection = self.connection()
        try:
            wire.send(connection, request)
            if not connection.poll(seconds):
                raise TimeoutError("the process for queries does not respond")
            response = wire.receive(connection)
        except (EOFError, OSError):
            connection.close()
            raise
        self.give_back(connection)
        if isinstance(response, wire.JobFailure):
            raise response.error()
        return response.value


class QueryProcess:
    """The engine for queries, in another process."""

    def __init__(self, options: Options, sessions: int, start_wait_s: float, tenant_share: int = 100) -> None:
        """`tenant_share` is how many of the sessions one tenant may use, in percent."""
        self._options = options
        self._lending: Lending[_Life] = Lending(sessions, start_wait_s, tenant_share)
        self._life: _Life | None = None
        self._started = False
        self._stopping = threading.Event()
        self._ends: Counter[Reason] = Counter()
        self.starts = 0
        """How many times it has started."""
        self.sessions = sessions

    @property
    def up(self) -> bool:
        return self._lending.life is not None

    @property
    def state(self) -> QueryState:
        return "up" if self.up else "starting"

    @property
    def lent(self) -> int:
        return len(self._lending.running)

    @property
    def idle(self) -> int:
        return self.sessions - self.lent if self.up else 0

    @property
    def longest_wait_s(self) -> float:
        return self._lending.longest_wait_s()

    @property
    def stalled_s(self) -> float:
        return self._lending.stalled_s()

    @property
    def ends(self) -> dict[tuple[str, ...], int]:
        return {(reason,): self._ends[reason] for reason in REASONS}

    def start(self) -> None:
        if not self._started:
            self._started = True
            threading.Thread(target=self._supervise, name="firn-queries", daemon=True).start()

    def run_for(self, call: Call, job: Callable[Concatenate[Session, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        run = wire.Run(uuid.uuid4().hex, job, args, kwargs)
        result: T = self._run(Entry(call), run)
        return result

    def _run(self, entry: Entry, run: wire.Run) -> Any:
        while True:
            life = self._lending.enter(entry)
            try:
                result = self._exchange(life, entry, run)
            except _Ended:
                self._await_verdict(life, entry)
                continue
            except BaseException:
                self._lending.leave(entry)
                raise
            if not isinstance(result, RowBatches):
                self._lending.leave(entry)
            return result

    def _await_verdict(self, life: _Life, entry: Entry) -> None:
        """Return if the entry is to run again, once the end of its process is known."""
        if not life.over.wait(_END_S):  # only its connection has ended
            life.child.kill("crash")
            life.over.wait()
        if entry.failure is not None or entry.call.cancelled:
            self._lending.leave(entry)
            entry.call.check()
            assert entry.failure is not None
            raise entry.failure
        log.info("running the query of request %s again", entry.call.id)

    def _exchange(self, life: _Life, entry: Entry, run: wire.Run) -> Any:
        """Send a job and return its result, or the batches that it opened. Raises `_Ended` if the process ends."""
        connection = None
        try:
            connection = life.connection()
            asked = wire.send_run(connection, run)
            response, raised = self._response(life, connection, entry, run.id, asked)
        except (EOFError, OSError) as e:
            if connection is not None:
                connection.close()
            raise _Ended from e
        if isinstance(response, wire.Opened):
            self._lending.stream(entry)
            batches = _RemoteBatches(self, life, connection, entry, run, response)
            if entry.call.cancelled:
                batches.close()
            entry.call.check()
            return batches
        life.give_back(connection)
        if isinstance(response, wire.JobFailure):
            entry.call.check()  # a job that is cancelled may fail in any way
            raise raised or response.error()
        return response.value

    def _response(
        self, life: _Life, connection: Connection, entry: Entry, id: str, asked: list[wire.AskedBack]
    ) -> tuple[Any, Exception | None]:
        """The response to a job, and the last exception that answered what it asked.

        In the meantime answer what it asks, and see whether its call is cancelled.
        """
        cancelling = _Cancelling(life, id)
        raised: Exception | None = None
        while True:
            if connection.poll(_LOOK_EVERY_S):
                message = wire.receive(connection)
                if not isinstance(message, wire.Ask):
                    return message, raised
                answer, raised = _answered(asked[message.number], message.args)
                wire.send(connection, answer)
            elif entry.call.cancelled and cancelling.is_late():
                log.warning("the query of request %s did not end when it was cancelled", entry.call.id)
                life.child.kill("stuck")
                connection.close()
                entry.call.check()

    def cancel(self, tag: str) -> None:
        self._ask(wire.CancelTag(tag))

    def rows_read(self, tag: str) -> int:
        return self._ask(wire.CountRows(tag)) or 0

    def warm(self, table: str) -> None:
        """Wait until the process is up, and warm it."""
        entry = Entry(Call("warm-up"))
        life = self._lending.enter(entry)
        try:
            with suppress(EOFError, OSError):
                life.ask(wire.Warm(table), None)
        finally:
            self._lending.leave(entry)

    def _ask(self, request: Any) -> Any:
        """The response; None if the process does not respond."""
        life = self._lending.life
        if life is None:
            return None
        with suppress(EOFError, OSError, FirnError, wire.QueryDefect):
            return life.ask(request)
        return None

    def stop(self, seconds: float) -> None:
        self._stopping.set()
        self._lending.stop()
        life = self._life
        if life is not None:
            life.child.stop(seconds)

    def _supervise(self) -> None:
        """Keep a process running until the service stops."""
        pauses = _pauses()
        while not self._stopping.wait(next(pauses)):
            reason: Reason = "start"
            try:
                life = self._begin()
                pauses = _pauses()
                reason = life.child.wait_until_ended()
                self._lending.end(reason)
                life.over.set()
                life.close()
            except (EngineUnavailable, OSError) as e:
                if not self._stopping.is_set():
                    log.error("%s", e)
            if not self._stopping.is_set():
                self._ends[reason] += 1
                log.error("the process for queries ended (%s); starting it again", reason)

    def _begin(self) -> _Life:
        """Start a process, and wait until it is up."""
        started = time.monotonic()
        life = self._life = _Life(QueryChild(self._options))
        if self._stopping.is_set():
            life.child.kill("stop")
        life.child.wait_until_up()
        self.starts += 1
        self._lending.start(life)
        log.info("the process for queries is up after %.1f s", time.monotonic() - started)
        return life


def _pauses() -> Iterator[float]:
    return itertools.chain(_PAUSES_S, itertools.repeat(_LONG_PAUSE_S))


class _Cancelling:
    """Cancels a job until it responds, or its time is over."""

    def __init__(self, life: _Life, id: str) -> None:
        self._life, self._id = life, id
        self._since: float | None = None
        self._arrived = False

    def is_late(self) -> bool:
        """Cancel the job, if it was not; whether it should have ended by now."""
        if self._since is None:
            self._since = time.monotonic()
        if not self._arrived:  # the first may have come before the job
            with suppress(EOFError, OSError):
                self._arrived = bool(self._life.ask(wire.Cancel(self._id), 1))
        return time.monotonic() - self._since > _CANCEL_S


def _answered(function: wire.AskedBack, args: tuple[Any, ...]) -> tuple[wire.Done | wire.JobFailure, Exception | None]:
    """The response to a job that asks, and what was raised in place of a value."""
    try:
        return wire.Done(function(*args)), None
    except FirnError as e:
        return wire.JobFailure.of(e), e
    except Exception as e:
        return wire.JobFailure(None, str(e)), e


class _RemoteBatches(RowBatches):
    """Batches that the process computes."""

    def __init__(
        self,
        engine: QueryProcess,
        life: _Life,
        connection: Connection,
        entry: Entry,
        run: wire.Run,
        opened: wire.Opened,
    ) -> None:
        self.schema = opened.schema
        self.scans = opened.scans
        self._engine, self._life, self._connection, self._entry, self._run = engine, life, connection, entry, run
        self._whole = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                wire.send(self._connection, wire.NextBatch())
                response = wire.receive(self._connection)
            except (EOFError, OSError):
                self._reopen()
                continue
            if isinstance(response, wire.JobFailure):
                raise response.error()
            if response.value is None:
                self._whole = True
                return
            self._entry.streaming = True
            yield response.value

    def _reopen(self) -> None:
        """After the process has ended: compute the rows again if none of them was sent on yet."""
        self._engine._await_verdict(self._life, self._entry)
        again = self._engine._run(self._entry, self._run)
        assert isinstance(again, _RemoteBatches)
        self._life, self._connection = again._life, again._connection

    def close(self) -> None:
        with suppress(OSError):
            wire.send(self._connection, wire.CloseBatches())
        self._connection.close()
        self._engine._lending.leave(self._entry, unfinished=not self._whole)
