"""Idempotency keys: the same request sent twice has one effect and one response."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from service.commits.batches import store_answer
from service.errors import Cancelled, DeadlineExceeded, FirnError, InternalError, KeyBusy, KeyReused, LedgerUnavailable
from service.ledger.ledger import UNFINISHED, Ledger
from service.model.call import Call, IdempotencyKey
from service.pipeline.response import Response, failure, response_of
from service.pipeline.waiting import shared_result

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("firn.requests")
_LOOK_EVERY_S = 0.05
_CANCELLED = (Cancelled.code, DeadlineExceeded.code)


@dataclass(frozen=True)
class _Noted:
    """What the ledger says of a key: the stored response, the batch of an earlier attempt, and who works on it."""

    answer: bytes | None = None
    batch: str | None = None
    elsewhere: bool = False
    """Whether another instance works on a request with this key."""


class IdempotencyKeys:
    """Requests in progress are known here; those answered, or in progress on another instance, are in the ledger."""

    def __init__(
        self, ledger: Ledger, is_void: Callable[[bytes], bool] = lambda answer: False, patience_s: float = 300
    ) -> None:
        """`is_void` says whether a stored response means nothing any more, because its job did nothing. `patience_s` is
        how long to wait for the responses of other instances.
        """
        self._ledger = ledger
        self._is_void = is_void
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._in_progress: dict[str, tuple[str, Future[Response]]] = {}
        self._stopped: FirnError | None = None

    async def once(self, call: Call, key: IdempotencyKey, work: Callable[[], Awaitable[Response]]) -> Response:
        """The response to the first request with this key, which does the work; KeyReused if that request differed."""
        while True:
            mine: Future[Response] = Future()
            mine.set_running_or_notify_cancel()  # a caller who goes away does not cancel it for the others
            with self._lock:
                fingerprint, first = self._in_progress.setdefault(key.id, (key.fingerprint, mine))
            _check(key, fingerprint)
            if first is mine:
                break
            response = await shared_result(first, call)
            if response.code not in _CANCELLED:
                return response
            # The caller of the first went away, or set a shorter deadline. This one still waits.
            call.check()
        try:
            response = await self._first(call, key, work)
        except BaseException as e:
            response = failure(e, call)
        if response.pending is None:
            self._release(key, mine, response)
        else:  # the caller did not wait for the end; those who send the same with the key do
            response.pending.add_done_callback(lambda work: self._release(key, mine, response_of(work, call)))
        return response

    def _release(self, key: IdempotencyKey, mine: "Future[Response]", response: Response) -> None:
        with self._lock:
            del self._in_progress[key.id]
        mine.set_result(response)

    async def _first(self, call: Call, key: IdempotencyKey, work: Callable[[], Awaitable[Response]]) -> Response:
        """Replay a stored response, wait for another instance that works on the key, or do the work."""
        until = time.monotonic() + self._patience_s
        if call.deadline is not None:
            until = min(until, call.deadline)
        noted = await self._noted(key)
        while True:
            if noted.answer is not None and await self._aside(self._is_void, noted.answer):
                await self._aside(self._ledger.forget_answer, key.id, noted.answer)
                noted = await self._noted(key)
            elif noted.answer is not None:
                return Response(200, noted.answer)
            elif noted.elsewhere:
                noted = await self._when_free(key, until)
            else:
                call.key, call.earlier = key, noted.batch
                response = await work()
                if not await self._is_elsewhere(key, response):
                    return response
                noted = await self._when_free(key, until)

    async def _is_elsewhere(self, key: IdempotencyKey, response: Response) -> bool:
        """Whether another instance has the key. Even a refusal, as of what exists already, may be its making."""
        if response.code == KeyBusy.code:
            return True
        if response.status < 300 or not self._ledger.owners.shared:
            return False
        try:
            noted = await self._noted(key)
        except FirnError:
            return False
        return noted.elsewhere or noted.answer is not None

    async def _when_free(self, key: IdempotencyKey, until: float) -> _Noted:
        """What the ledger says of a key once no other instance works on it; KeyBusy if that takes too long."""
        pause = _LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause)
            if self._stopped is not None:
                raise self._stopped
            started, late = time.monotonic(), time.monotonic() > until
            try:
                noted = await self._noted(key)
            except LedgerUnavailable:
                if late:
                    raise
            except FirnError:
                raise
            except Exception as e:
                log.exception("the state of an idempotency key of %s could not be read", key.table)
                raise InternalError(f"the state of this idempotency_key could not be read: {e}") from e
            else:
                if not noted.elsewhere:
                    return noted
                if late:
                    raise KeyBusy("another instance has been working on a request with this key for long")
            pause = max(_LOOK_EVERY_S, time.monotonic() - started)

    async def _noted(self, key: IdempotencyKey) -> _Noted:
        return await self._aside(self._look, key)

    def _look(self, key: IdempotencyKey) -> _Noted:
        noted = self._ledger.key(key.id)
        if noted is None:
            return _Noted()
        if not noted.is_free:
            _check(key, noted.fingerprint)
        if noted.answer is not None or noted.owner is None or noted.state not in UNFINISHED:
            return _Noted(noted.answer, noted.batch)
        owners = self._ledger.owners
        return _Noted(None, noted.batch, noted.owner != owners.me and not owners.gone(noted.owner))

    async def _aside(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the ledger on another thread if it is on another machine; SQLite answers sooner than a thread does."""
        if self._ledger.owners.shared:
            return await asyncio.to_thread(ask, *args, **kwargs)
        return ask(*args, **kwargs)

    def store(self, key: IdempotencyKey, answer: bytes) -> bytes:
        """Keep the response of a success; what to answer. KeyBusy if another instance has the key."""
        return store_answer(self._ledger, key, answer)

    def request_id(self, call: Call) -> str:
        """The request id that the effect of a call is noted under: of an earlier attempt, if that had the effect."""
        if call.key is None or call.earlier is None:
            return call.id
        try:
            noted = self._ledger.key(call.key.id)
        except LedgerUnavailable as e:
            log.error("%s is answered under its own id: %s", call.id, e.message)
            return call.id
        if noted is None or (noted.batch, noted.state) != (call.earlier, "done"):
            return call.id
        return noted.request_id or call.id

    def stop_waiting(self, error: FirnError) -> None:
        """Fail all requests that wait for other instances with this error."""
        self._stopped = error


def _check(key: IdempotencyKey, fingerprint: str) -> None:
    if key.fingerprint != fingerprint:
        raise KeyReused(
            f"idempotency_key {key.text[:80]!r} was used for another {key.operation} request to this table; "
            "choose a new key, or send that request as it was",
            field="idempotency_key",
        )
