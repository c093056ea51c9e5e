"""What the service and its process for queries send each other.

Both ends are this program, and their connections are pairs of sockets that no one else can open, so messages are
pickled.
"""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from service.engine.session.scans import Scan
from service.errors import FirnError

_PROTOCOL = pickle.HIGHEST_PROTOCOL


class AskedBack:
    """An argument of a job: a function that runs in the service's own process, wherever the job runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)


class QueryDefect(Exception):
    """A job failed in a way that no one foresaw; the message has its stack trace."""


@dataclass(frozen=True, slots=True)
class JobFailure:
    """An error on its way to the other process."""

    kind: type[FirnError] | None
    message: str
    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: FirnError) -> "JobFailure":
        return cls(type(error), error.message, dict(vars(error)))

    def error(self) -> Exception:
        if self.kind is None:
            return QueryDefect(self.message)
        # Not by calling the class: some have other parameters.
        error = self.kind.__new__(self.kind)
        Exception.__init__(error, self.message)
        error.__dict__.update(self.fields)
        return error


@dataclass(frozen=True, slots=True)
class Run:
    """Run a job. The response is `Done`, `JobFailure` or `Opened`, after any number of `Ask`."""

    id: str
    job: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the job with this id, on another connection than the job's."""

    id: str


@dataclass(frozen=True, slots=True)
class CancelTag:
    tag: str


@dataclass(frozen=True, slots=True)
class CountRows:
    tag: str


@dataclass(frozen=True, slots=True)
class Warm:
    table: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered by whether Spark responds."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """After `Opened`: answered by `Done` with a batch, or with None after the last."""


@dataclass(frozen=True, slots=True)
class CloseBatches:
    """After `Opened`: not answered."""


@dataclass(frozen=True, slots=True)
class Done:
    value: Any = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Call the nth `AskedBack` of the job. Answered by `Done` or `JobFailure`."""

    number: int
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """The job returned batches, to be requested one by one."""

    schema: pa.Schema
    scans: tuple[Scan, ...]


@dataclass(frozen=True, slots=True)
class Up:
    """The process is ready for connections."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The JVM has ended with this code, and so does the process."""

    code: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """Tasks of a cancelled query do not end, and so the process does."""

    tag: str


def send(connection: Connection, message: Any) -> None:
    connection.send_bytes(pickle.dumps(message, _PROTOCOL))


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


def send_run(connection: Connection, run: Run) -> list[AskedBack]:
    """Send a job; returns the functions that it may ask for, by their numbers."""
    file = io.BytesIO()
    pickler = _JobPickler(file)
    pickler.dump(run)
    connection.send_bytes(file.getbuffer())
    return pickler.asked


def read_request(data: bytes, ask: Callable[..., Any]) -> Any:
    """A request; `ask(number, …)` calls an `AskedBack` of it."""
    return _JobUnpickler(io.BytesIO(data), ask).load()


class _JobPickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.asked: list[AskedBack] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, AskedBack):
            return None
        self.asked.append(value)
        return len(self.asked) - 1


class _JobUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, ask: Callable[..., Any]) -> None:
        super().__init__(file)
        self._ask = ask

    def persistent_load(self, number: Any) -> Callable[..., Any]:
        return lambda *args: self._ask(number, *args)
