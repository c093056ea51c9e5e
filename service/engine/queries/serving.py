"""Runs the jobs that the service sends to its process for queries, each on a connection of its own."""

import logging
import threading
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

from service.engine.queries import wire
from service.engine.queries.batches import RowBatches
from service.engine.queries.engine import too_much_memory
from service.engine.session.translate import OutOfMemory, SparkEnded
from service.errors import FirnError
from service.model.call import Call

log = logging.getLogger("firn.queries")


class JobEngine(Protocol):
    """What the process for queries needs of its engine. A fake of it needs no JVM."""

    def start(self) -> object: ...

    def run_for(self, call: Call, job: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

    def cancel_stubborn(self, tag: str) -> None: ...

    def rows_read(self, tag: str) -> int: ...

    def warm(self, table: str) -> None: ...

    def answers(self) -> bool: ...

    def discard(self) -> None: ...


class Serving:
    """Answers the requests of all connections."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._running: dict[str, Call] = {}

    def serve(self, connection: Connection) -> None:
        """Answer the requests of a connection in order, until it is closed."""
        try:
            with connection:
                while True:
                    data = connection.recv_bytes()
                    request = _outcome(partial(wire.read_request, data, partial(_ask, connection)))
                    if isinstance(request, wire.Done):
                        self._answer(connection, request.value)
                    else:
                        wire.send(connection, request)
        except (EOFError, OSError):
            pass

    def _answer(self, connection: Connection, request: Any) -> None:
        match request:
            case wire.Run():
                self._run(connection, request)
            case wire.Cancel(id):
                with self._lock:
                    call = self._running.get(id)
                if call is not None:
                    call.cancel()
                wire.send(connection, wire.Done(call is not None))
            case wire.CancelTag(tag):
                self._engine.cancel_stubborn(tag)
                wire.send(connection, wire.Done())
            case wire.CountRows(tag):
                wire.send(connection, wire.Done(self._engine.rows_read(tag)))
            case wire.Warm(table):
                wire.send(connection, _outcome(partial(self._engine.warm, table)))
            case wire.Ping():
                wire.send(connection, wire.Done(self._engine.answers()))

    def _run(self, connection: Connection, run: wire.Run) -> None:
        call = Call(run.id)
        with self._lock:
            self._running[run.id] = call
        try:
            response = _outcome(lambda: self._engine.run_for(call, run.job, *run.args, **run.kwargs))
        finally:
            with self._lock:
                del self._running[run.id]
        if isinstance(response, wire.Done) and isinstance(response.value, RowBatches):
            self._stream(connection, response.value)
        else:
            _respond(connection, response)

    def _stream(self, connection: Connection, batches: RowBatches) -> None:
        """Send batches as they are requested. The service holds no more of them than the one that it sends on."""
        try:
            wire.send(connection, wire.Opened(batches.schema, tuple(batches.scans)))
            rows = iter(batches)
            while isinstance(wire.receive(connection), wire.NextBatch):
                wire.send(connection, _outcome(partial(next, rows, None)))
        finally:
            batches.close()


def _respond(connection: Connection, response: wire.Done | wire.JobFailure) -> None:
    try:
        wire.send(connection, response)
    except OSError:
        raise
    except Exception:  # a value that cannot be pickled; nothing was sent
        wire.send(connection, wire.JobFailure(None, traceback.format_exc()))


def _outcome(work: Callable[[], Any]) -> wire.Done | wire.JobFailure:
    try:
        return wire.Done(work())
    except (OutOfMemory, MemoryError):
        return wire.JobFailure.of(too_much_memory())
    except SparkEnded:
        # The process ends at once, and the service finds out why. To respond would be to blame this job.
        threading.Event().wait()
        raise
    except FirnError as e:
        return wire.JobFailure.of(e)
    except Exception:
        return wire.JobFailure(None, traceback.format_exc())


def _ask(connection: Connection, number: int, *args: Any) -> Any:
    """Call a function of the service, on behalf of the job of a connection."""
    wire.send(connection, wire.Ask(number, args))
    response = wire.receive(connection)
    if isinstance(response, wire.JobFailure):
        raise response.error()
    return response.value
