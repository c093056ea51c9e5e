"""From an operation's name to its answer: parse, dispatch to the operation's pool, run, translate."""

import logging
import threading
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from service import envelope, wire
from service.context import Context
from service.errors import (
    FirnError,
    InternalError,
    InvalidRequest,
    ShuttingDown,
    TooManyRequests,
    UnknownOperation,
    nearest,
)
from service.operation import Operation, Pool, Request, Result
from service.refusals import refusal
from service.settings import LimitSettings

log = logging.getLogger("firn.router")


@dataclass(frozen=True)
class Answer:
    """What goes back to the caller, whichever door the request came through."""

    status: int
    body: bytes
    retry_after_s: int | None = None


class Router:
    """Serves the operations it was given, each in the pool of threads it belongs to."""

    def __init__(self, operations: Iterable[Operation], context: Context) -> None:
        self._operations = {o.name: o for o in operations}
        self._context = context
        limits = context.settings.limits
        self._pools = {pool: _pool(pool, limits) for pool in get_args(Pool)}
        self._limit = limits.waiting_requests
        self._lock = threading.Condition()
        self._under_way = 0
        self._draining = False

    @property
    def operations(self) -> list[Operation]:
        return sorted(self._operations.values(), key=lambda o: o.name)

    def submit(self, body: Any, request_id: str | None = None) -> "Future[Answer]":
        """Start a request and return at once; the future always ends in an Answer, never in an exception."""
        started = time.monotonic()
        request_id = request_id or uuid.uuid4().hex
        try:
            found, request = self.parse(body)
            self._enter()
        except FirnError as e:
            return _done(_failed(e, request_id))
        answer: Future[Answer] = Future()

        def finish(work: "Future[Answer]") -> None:
            self._leave()
            answer.set_result(_failed(_stopping(), request_id) if work.cancelled() else work.result())

        try:
            work = self._pools[found.pool].submit(self._answer, found, request, request_id, started)
        except RuntimeError:  # the pool was closed between the two lines
            self._leave()
            return _done(_failed(_stopping(), request_id))
        work.add_done_callback(finish)
        return answer

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Operation, Request]:
        """The operation a request names and its checked model. `body` is JSON text or its value."""
        value = wire.parse(body) if isinstance(body, bytes | str) else body
        if not isinstance(value, dict):
            raise InvalidRequest('the request must be a JSON object such as {"operation": "LIST_TABLES", …}')
        name = value.get("operation")
        if not isinstance(name, str):
            problem = "is missing" if name is None else "must be text"
            raise InvalidRequest(
                f"operation {problem}; name one of {', '.join(sorted(self._operations))}", field="operation"
            )
        found = self._operations.get(name.upper())
        if found is None:
            near = nearest(name, self._operations)
            hint = f"did you mean {near}?" if near else f"known are {', '.join(sorted(self._operations))}"
            raise UnknownOperation(f"{name[:80]!r} is not an operation; {hint}", field="operation", suggestion=near)
        try:
            context = {"trusted": trusted}
            return found, found.request.model_validate({**value, "operation": found.name}, context=context)
        except ValidationError as e:
            raise refusal(e, found.request) from e

    def run(self, operation: Operation, request: Request, request_id: str) -> Result:
        """Run a parsed request on this thread; a failure is a FirnError."""
        return operation.run(request, replace(self._context, request_id=request_id))

    def _answer(self, operation: Operation, request: Request, request_id: str, started: float) -> Answer:
        try:
            result = self.run(operation, request, request_id)
            elapsed = round((time.monotonic() - started) * 1000)
            answer = Answer(200, envelope.success(result, request_id, elapsed))
            log.info("%s %s ok in %d ms", request_id, operation.name, elapsed)
            return answer
        except FirnError as e:
            log.info("%s %s refused: %s: %s", request_id, operation.name, e.code, e.message)
            return _failed(e, request_id)
        except RecursionError:
            return _failed(InvalidRequest("the request is nested too deeply; flatten it"), request_id)
        except Exception:
            return self.defect(request_id)

    def defect(self, request_id: str) -> Answer:
        """The answer to an unforeseen failure: an id for the log, and nothing of the inside."""
        error_id = uuid.uuid4().hex[:12]
        log.exception("%s failed unexpectedly; error id %s", request_id, error_id)
        message = f"something went wrong inside the service; the log has it under error id {error_id}"
        return _failed(InternalError(message, details={"error_id": error_id}), request_id)

    def drain(self, seconds: float) -> bool:
        """Take no more requests and wait for those under way; true when none is left."""
        with self._lock:
            self._draining = True
            return self._lock.wait_for(lambda: self._under_way == 0, timeout=seconds)

    @property
    def busy(self) -> bool:
        """Whether a request is still under way."""
        with self._lock:
            return self._under_way > 0

    def close(self) -> None:
        """Give up what has not begun; its callers are told that the service is stopping."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _enter(self) -> None:
        with self._lock:
            if self._draining:
                raise _stopping()
            if self._under_way >= self._limit:
                raise TooManyRequests(f"{self._limit} requests are waiting already; try again in a second")
            self._under_way += 1

    def _leave(self) -> None:
        with self._lock:
            self._under_way -= 1
            self._lock.notify_all()


def _pool(pool: Pool, limits: LimitSettings) -> ThreadPoolExecutor:
    sizes = {"queries": limits.query_threads, "edits": limits.edit_threads, "upkeep": limits.upkeep_threads}
    return ThreadPoolExecutor(sizes[pool], thread_name_prefix=f"firn-{pool}")


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping and takes no new requests; send this one to it again once it is back")


def _failed(error: FirnError, request_id: str) -> Answer:
    wait = 1 if error.status in (429, 503) else None
    return Answer(error.status, envelope.failure(error, request_id), wait)


def _done(answer: Answer) -> "Future[Answer]":
    future: Future[Answer] = Future()
    future.set_result(answer)
    return future
