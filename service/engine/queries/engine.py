"""The engine for queries: Spark's process for everything, or a process of their own."""

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from service.engine.session.engine import Engine, Session
from service.engine.session.translate import TOO_MUCH_MEMORY, OutOfMemory
from service.errors import QueryTooExpensive
from service.model.call import Call

P = ParamSpec("P")
T = TypeVar("T")


# Why a process for queries ended: its heap was full; its JVM crashed; someone else killed it; it did not respond; a
# cancelled query did not end; it did not start; the service stops.
Reason = Literal["memory", "crash", "killed", "hang", "stuck", "start", "stop"]
REASONS: tuple[Reason, ...] = ("memory", "crash", "killed", "hang", "stuck", "start")


# Of the process for queries; None if there is none.
QueryState = Literal["up", "starting"] | None


class QueryEngine(Protocol):
    """Runs jobs that only read, on behalf of a user.

    A job is a function of a module, because it may run in another process. Its arguments are plain values, functions of
    modules, or an `AskedBack`. If it returns `ArrowBatches`, these are read here, wherever they are computed.
    """

    @property
    def up(self) -> bool:
        """Whether a process for queries is up."""

    @property
    def longest_wait_s(self) -> float: ...

    @property
    def stalled_s(self) -> float: ...

    @property
    def state(self) -> QueryState: ...

    @property
    def idle(self) -> int:
        """How many sessions of a process for queries are free."""

    @property
    def lent(self) -> int: ...

    @property
    def starts(self) -> int:
        """How many times a process for queries has started."""

    @property
    def ends(self) -> dict[tuple[str, ...], int]:
        """How often it has ended unexpectedly, by reason."""

    def start(self) -> None:
        """Start in the background what does not run yet."""

    def run_for(self, call: Call, job: Callable[Concatenate[Session, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a job for a call. If the call is cancelled, so are the job's Spark jobs.

        Raises QueryTooExpensive if it exhausts the memory or the stack.
        """

    def cancel(self, tag: str) -> None:
        """Cancel the Spark jobs with a tag."""

    def rows_read(self, tag: str) -> int:
        """How many rows the Spark jobs with a tag have read so far; 0 if that is not known."""

    def warm(self, table: str) -> None:
        """Run a query over a table in every session that is for queries only; waits until they are up."""

    def stop(self, seconds: float) -> None:
        """Stop what `start` has started. Queries that run there fail with EngineUnavailable."""


class SharedEngine:
    """Queries in the process of all other work. What exhausts its memory ends that process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    up = False
    longest_wait_s = stalled_s = 0.0

    state: QueryState = None
    idle = lent = starts = 0

    @property
    def ends(self) -> dict[tuple[str, ...], int]:
        return {(reason,): 0 for reason in REASONS}

    def start(self) -> None:
        """There is no other process."""

    def run_for(self, call: Call, job: Callable[Concatenate[Session, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return self._engine.run_for(call, job, *args, **kwargs)
        except OutOfMemory as e:
            raise too_much_memory() from e

    def cancel(self, tag: str) -> None:
        self._engine.cancel(tag)

    def rows_read(self, tag: str) -> int:
        return self._engine.rows_read(tag)

    def warm(self, table: str) -> None:
        """No session is for queries only."""

    def stop(self, seconds: float) -> None:
        """There is no other process."""


def too_much_memory(details: dict[str, Any] | None = None) -> QueryTooExpensive:
    return QueryTooExpensive(TOO_MUCH_MEMORY, details=details)
