"""From an operation's name to its answer: parse, dispatch to the operation's pool, run, translate."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from service import envelope, wire
from service.commits.ask import Ask, Key, fingerprint
from service.commits.keys import Claim, Keys
from service.context import Context
from service.errors import (
    FirnError,
    InvalidRequest,
    KeyBusy,
    ShuttingDown,
    TooManyRequests,
    UnknownOperation,
    nearest,
)
from service.failures import unforeseen
from service.metrics.catalogue import BULK, NONE, OK
from service.operation import ChangeRequest, Operation, Pool, Request, Result
from service.refusals import refusal
from service.settings import LimitSettings
from service.streams.caller import Caller
from service.streams.streams import Stream

log = logging.getLogger("firn.router")
_CLAIMS = 8


@dataclass(frozen=True)
class Answer:
    """What goes back to the caller, whichever door the request came through."""

    status: int
    body: bytes
    retry_after_s: int | None = None
    busy: bool = False
    """Whether it only says that another instance works on a request with the same key."""
    code: str = OK
    """What it came to: ok, or the code of the error."""
    stream: Stream | None = None
    """What to send instead of the body; whoever gets it closes it."""


class Router:
    """Serves the operations it was given, each in the pool of threads it belongs to."""

    def __init__(self, operations: Iterable[Operation], context: Context) -> None:
        self._operations = {o.name: o for o in operations}
        self._context = context
        self._keys: Keys[Answer] = Keys(context.ledger)
        limits = context.settings.limits
        self._pools = {pool: _pool(pool, limits) for pool in get_args(Pool) if pool != "inline"}
        self._claims = ThreadPoolExecutor(_CLAIMS, thread_name_prefix="firn-claims")
        self._limit = limits.waiting_requests
        self._lock = threading.Condition()
        self._under_way = 0
        self._waiting = 0
        self._draining = False
        self._metrics = context.metrics
        for name in (*self._operations, BULK):
            self._metrics.serves(name)
        self._metrics.read("firn_requests_under_way", lambda: self._under_way)
        self._metrics.read("firn_requests_waiting", self._queued)

    @property
    def context(self) -> Context:
        return self._context

    @property
    def keys(self) -> Keys[Answer]:
        return self._keys

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Be a request under way, which a stop waits for, outside of any pool; ShuttingDown where it is too late."""
        self._enter("inline")
        try:
            yield
        finally:
            self._leave("inline")

    @property
    def operations(self) -> list[Operation]:
        return sorted(self._operations.values(), key=lambda o: o.name)

    def submit(
        self,
        body: Any,
        request_id: str | None = None,
        key: str | None = None,
        caller: Caller | None = None,
        ask: Ask | None = None,
    ) -> "Future[Answer]":
        """Start a request and return at once; the future always ends in an Answer, never in an exception.

        `key` is the idempotency key that came beside the body, if one did. A caller who is not named reads JSON.
        `ask` says more of who asks, where that is not a client.
        """
        started = time.monotonic()
        request_id = request_id or (ask.request_id if ask else uuid.uuid4().hex)
        answer: Future[Answer] = Future()
        answer.set_running_or_notify_cancel()  # a caller who hangs up calls nothing off
        value: Any = None
        try:
            value = _object(body)
            found, request = self._model(value, key)
            pool = found.pool(request) if callable(found.pool) else found.pool
            self._enter(pool)
        except FirnError as e:
            self._metrics.request(self._named(value), e.code, time.monotonic() - started)
            answer.set_result(_failed(e, request_id))
            return answer
        size = len(body) if isinstance(body, bytes | str) else 0
        asked = _Asked(found, request, request_id, started, size, caller or Caller(), ask or Ask(request_id))

        def finish(outcome: Answer) -> None:
            self._leave(pool)
            self._metrics.request(found.name, outcome.code, time.monotonic() - started)
            answer.set_result(outcome)

        if not isinstance(request, ChangeRequest) or request.idempotency_key is None or not request.has_effect:
            self._start(pool, asked, asked.ask, finish)
        else:
            once = _key(found, request, request.idempotency_key, value)
            self._claiming(lambda: self._start_once(pool, asked, once, finish), asked, finish)
        return answer

    def _claiming(self, start: Callable[[], None], asked: "_Asked", finish: "Finish") -> None:
        """Look a key up, which may take a moment where the ledger is on another machine."""
        if not self._context.ledger.owners.shared:
            return start()
        _submit(self._claims, start, lambda: finish(_failed(_stopping(), asked.request_id)))

    def _start_once(self, pool: Pool, asked: "_Asked", key: Key, finish: "Finish") -> None:
        """Start a keyed request unless it is under way or was answered."""
        try:
            claim = self._keys.claim(key, asked.request_id)
        except FirnError as e:
            return finish(_failed(e, asked.request_id))

        def release(outcome: Answer) -> None:
            self._keys.release(key, outcome)
            finish(outcome)

        if claim.under_way is not None:
            claim.under_way.add_done_callback(lambda done: finish(self._outcome(done, asked.request_id)))
        else:
            self._go_on(pool, asked, key, claim, release)

    def _go_on(self, pool: Pool, asked: "_Asked", key: Key, claim: "Claim[Answer]", release: "Finish") -> None:
        """Answer a request whose key is claimed, start it, or wait for another instance that is at it."""

        def look_again(found: "Claim[Answer] | FirnError") -> None:
            if isinstance(found, FirnError):
                release(_failed(found, asked.request_id))
            else:
                self._go_on(pool, asked, key, found, release)

        def end(outcome: Answer) -> None:
            if self._is_elsewhere(key, asked, outcome):
                self._keys.wait(key, asked.request_id, look_again)
            else:
                release(outcome)

        try:
            claim = self._standing(key, asked, claim)
        except Exception as e:
            return release(self._told(asked, _broken(e)))
        if claim.answer is not None:
            release(Answer(200, claim.answer))
        elif claim.elsewhere:
            self._keys.wait(key, asked.request_id, look_again)
        else:
            self._start(pool, asked, replace(asked.ask, key=claim.ask.key, earlier=claim.ask.earlier), end)

    def _standing(self, key: Key, asked: "_Asked", claim: "Claim[Answer]") -> "Claim[Answer]":
        """The same, or what the key means where its answer names a job that came to nothing: that is no effect."""
        job_id = None if claim.answer is None else _job_of(claim.answer)
        if claim.answer is None or job_id is None or not self._context.jobs.came_to_nothing(job_id):
            return claim
        return self._keys.afresh(key, asked.request_id, claim.answer)

    def _is_elsewhere(self, key: Key, asked: "_Asked", outcome: Answer) -> bool:
        """Whether another instance has the key: also a refusal, as of what is there already, may be of its making."""
        if outcome.busy or outcome.status == 200 or not self._context.ledger.owners.shared:
            return outcome.busy
        try:
            claim = self._keys.look(key, asked.request_id)
        except FirnError:
            return False
        return claim.elsewhere or claim.answer is not None

    def _start(self, pool: Pool, asked: "_Asked", ask: Ask, finish: "Finish") -> None:
        if pool == "inline":
            return self._answer(asked, ask, finish)

        def run() -> None:
            self._answer(asked, ask, finish)

        _submit(self._pools[pool], run, lambda: finish(_failed(_stopping(), asked.request_id)))

    def parse(self, body: Any, *, trusted: bool = False) -> tuple[Operation, Request]:
        """The operation a request names and its checked model. `body` is JSON text or its value."""
        return self._model(_object(body), None, trusted=trusted)

    def _model(self, value: dict[str, Any], key: str | None, *, trusted: bool = False) -> tuple[Operation, Request]:
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
        value = {**value, "operation": found.name}
        if key is not None and issubclass(found.request, ChangeRequest):
            if value.get("idempotency_key") not in (None, key):
                raise InvalidRequest(
                    "idempotency_key and the header Idempotency-Key differ; send one of them", field="idempotency_key"
                )
            value["idempotency_key"] = key
        try:
            return found, found.request.model_validate(value, context={"trusted": trusted})
        except ValidationError as e:
            raise refusal(e, found.request) from e

    def _named(self, value: Any) -> str:
        """The operation that a refused request names, as metrics call it."""
        name = value.get("operation") if isinstance(value, dict) else None
        return name.upper() if isinstance(name, str) and name.upper() in self._operations else NONE

    def _queued(self) -> dict[tuple[str, ...], float]:
        """How many requests wait for a thread, by pool."""
        return {(name,): pool._work_queue.qsize() for name, pool in self._pools.items()}

    def run(self, operation: Operation, request: Request, request_id: str) -> "Result | bytes | Stream":
        """Run a parsed request and wait for it on this thread; a failure is a FirnError."""
        result = operation.run(request, replace(self._context, ask=Ask(request_id)))
        return result.result() if isinstance(result, Future) else result

    def _answer(self, asked: "_Asked", ask: Ask, finish: "Finish") -> None:
        """Run a request and finish it, now or when its handler's future ends."""

        def reply(result: Result) -> bytes:
            elapsed = round((time.monotonic() - asked.started) * 1000)
            return envelope.success(result, self._keys.id_of(ask), elapsed)

        try:
            context = replace(self._context, ask=ask, size=asked.size, reply=reply, caller=asked.caller)
            result = asked.operation.run(asked.request, context)
            if isinstance(result, Future):
                result.add_done_callback(lambda done: finish(self._told(asked, done)))
                return
            if isinstance(result, Stream):
                return finish(self._streaming(result))
            body = reply(result)
            answer = self._told(asked, _done(self._keys.store(ask.key, body) if ask.key else body))
        except BaseException as e:
            answer = self._told(asked, _broken(e))
        finish(answer)

    def _streaming(self, stream: Stream) -> Answer:
        """A stream is under way until it is closed, though nothing waits for it here."""
        with self._lock:
            self._under_way += 1
        stream.when_closed(lambda: self._leave("inline"))
        return Answer(200, b"", stream=stream)

    def _told(self, asked: "_Asked", done: "Future[bytes]") -> Answer:
        """The answer that a handler's end means, logged."""
        failure = done.exception()
        if failure is None:
            elapsed = round((time.monotonic() - asked.started) * 1000)
            log.info("%s %s ok in %d ms", asked.request_id, asked.operation.name, elapsed)
            return Answer(200, done.result())
        if isinstance(failure, FirnError):
            log.info("%s %s refused: %s: %s", asked.request_id, asked.operation.name, failure.code, failure.message)
            return _failed(failure, asked.request_id)
        if isinstance(failure, RecursionError):
            return _failed(InvalidRequest("the request is nested too deeply; flatten it"), asked.request_id)
        return self.defect(asked.request_id, failure)

    def _outcome(self, done: "Future[Answer]", request_id: str) -> Answer:
        """What the first of two equal requests came to."""
        failure = done.exception()
        if failure is None:
            return done.result()
        return _failed(failure, request_id) if isinstance(failure, FirnError) else self.defect(request_id, failure)

    def defect(self, request_id: str, failure: BaseException | None = None) -> Answer:
        """The answer to an unforeseen failure: an id for the log, and nothing of the inside."""
        return _failed(unforeseen(log, request_id, failure), request_id)

    def drain(self, seconds: float) -> bool:
        """Take no more requests and wait for those under way; true when none is left."""
        with self._lock:
            self._draining = True
            self._keys.stop_waiting(_stopping())
            return self._lock.wait_for(lambda: self._under_way == 0, timeout=seconds)

    @property
    def busy(self) -> bool:
        """Whether a request is still under way."""
        with self._lock:
            return self._under_way > 0

    def close(self) -> None:
        """Give up what has not begun; its callers are told that the service is stopping."""
        for pool in (self._claims, *self._pools.values()):
            pool.shutdown(wait=False, cancel_futures=True)

    def _enter(self, pool: Pool) -> None:
        with self._lock:
            if self._draining:
                raise _stopping()
            if pool != "inline":
                # What runs inline holds memory and no thread; the edge bounds the memory.
                if self._waiting >= self._limit:
                    raise TooManyRequests(f"{self._limit} requests are waiting already; try again in a second")
                self._waiting += 1
            self._under_way += 1

    def _leave(self, pool: Pool) -> None:
        with self._lock:
            self._under_way -= 1
            self._waiting -= pool != "inline"
            if not self._under_way:
                self._lock.notify_all()


@dataclass(frozen=True)
class _Asked:
    """A request that was read."""

    operation: Operation
    request: Request
    request_id: str
    started: float
    size: int
    caller: Caller
    ask: Ask


Finish = Callable[[Answer], None]


def _object(body: Any) -> dict[str, Any]:
    value = wire.parse(body) if isinstance(body, bytes | str) else body
    if not isinstance(value, dict):
        raise InvalidRequest('the request must be a JSON object such as {"operation": "LIST_TABLES", …}')
    return value


def _key(operation: Operation, request: ChangeRequest, text: str, value: dict[str, Any]) -> Key:
    said = {"namespace": request.namespace, **value, "operation": operation.name}
    said.pop("idempotency_key", None)
    return Key(operation.name, request.table_name, text, fingerprint(said))


def _job_of(answer: bytes) -> str | None:
    """The job that an answer promises the work of, if it does."""
    if b'"job_id"' not in answer:
        return None
    job_id = wire.parse(answer).get("job_id")
    return job_id if isinstance(job_id, str) else None


def _pool(pool: Pool, limits: LimitSettings) -> ThreadPoolExecutor:
    sizes = {"queries": limits.query_threads, "edits": limits.edit_threads, "upkeep": limits.upkeep_threads}
    return ThreadPoolExecutor(sizes[pool], thread_name_prefix=f"firn-{pool}")


def _submit(pool: ThreadPoolExecutor, work: Callable[[], None], given_up: Callable[[], None]) -> None:
    """Have a pool do some work; if it is closed before, `given_up` is called."""
    try:
        done = pool.submit(work)
    except RuntimeError:
        return given_up()
    done.add_done_callback(lambda ended: given_up() if ended.cancelled() else None)


def _stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping and takes no new requests; send this one to it again once it is back")


def _failed(error: FirnError, request_id: str) -> Answer:
    wait = 1 if error.status in (429, 503) else None
    return Answer(
        error.status, envelope.failure(error, request_id), wait, busy=isinstance(error, KeyBusy), code=error.code
    )


def _done(body: bytes) -> "Future[bytes]":
    future: Future[bytes] = Future()
    future.set_result(body)
    return future


def _broken(failure: BaseException) -> "Future[bytes]":
    future: Future[bytes] = Future()
    future.set_exception(failure)
    return future
