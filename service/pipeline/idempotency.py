"""Idempotency keys: the same request sent twice has one effect and one response."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from service.commits.batches import store_response
from service.errors import Cancelled, DeadlineExceeded, FirnError, InternalError, KeyBusy, KeyReused, LedgerUnavailable
from service.ledger.ledger import UNFINISHED, Ledger
from service.model.call import Call, IdempotencyKey
from service.operations.envelope import status_of
from service.pipeline.response import Response, failure, response_of
from service.pipeline.waiting import shared_result

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("firn.requests")
_RETRY_EVERY_S = 0.05
_CANCELLED = (Cancelled.code, DeadlineExceeded.code)


@dataclass(frozen=True)
class _Found:
    """What the ledger says of a key: the stored response, and the batch of an earlier attempt."""

    answer: bytes | None = None
    batch: str | None = None
    elsewhere: bool = False
    """Whether another instance works on a request with this key."""
    is_done: bool = False
    """Whether that batch had its effect."""


class IdempotencyKeys:
    """Knows the requests in progress here; those answered, or in progress on another instance, are in the ledger."""

    def __init__(
        self, ledger: Ledger, is_void: Callable[[bytes], bool] = lambda answer: False, patience_s: float = 300
    ) -> None:
        """`is_void` says whether a stored response is worthless because its job had no effect. `patience_s` is how long
        to wait for the responses of other instances.
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
            mine.set_running_or_notify_cancel()  # a caller that disconnects does not cancel it for the others
            with self._lock:
                fingerprint, first = self._in_progress.setdefault(key.id, (key.fingerprint, mine))
            _check(key, fingerprint)
            if first is mine:
                break
            response = await shared_result(first, call)
            if response.code not in _CANCELLED:
                return response
            # The caller of the first disconnected or set a shorter deadline. This one still waits.
            call.check()
        try:
            response = await self._first(call, key, work)
        except BaseException as e:
            response = failure(e, call)
        if response.pending is None:
            self._release(key, mine, response)
        else:  # the caller did not wait for the end; others that send the same with the key do
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
        found = await self._find(key)
        while True:
            if found.answer is not None and await self._aside(self._is_void, found.answer):
                await self._aside(self._ledger.delete_response, key.id, found.answer)
                found = await self._find(key)
            elif found.answer is not None:
                return Response(status_of(found.answer), found.answer)
            elif found.elsewhere:
                found = await self._when_free(key, until)
            else:
                call.key, call.earlier = key, found.batch
                response = await work()
                if not await self._is_elsewhere(key, response, call.earlier):
                    return response
                found = await self._when_free(key, until)

    async def _is_elsewhere(self, key: IdempotencyKey, response: Response, earlier: str | None) -> bool:
        """Whether another instance has the key. It may even have caused a refusal, such as that the table exists.

        `earlier` is the batch that the response knew of.
        """
        if response.code == KeyBusy.code:
            return True
        if response.status < 300 or not self._ledger.owners.shared:
            return False
        try:
            found = await self._find(key)
        except FirnError:
            return False
        return found.elsewhere or found.answer is not None or (found.is_done and found.batch != earlier)

    async def _when_free(self, key: IdempotencyKey, until: float) -> _Found:
        """What the ledger says of a key once no other instance works on it; KeyBusy if that takes too long."""
        pause = _RETRY_EVERY_S
        while True:
            await asyncio.sleep(pause)
            if self._stopped is not None:
                raise self._stopped
            started, late = time.monotonic(), time.monotonic() > until
            try:
                found = await self._find(key)
            except LedgerUnavailable:
                if late:
                    raise
            except FirnError:
                raise
            except Exception as e:
                log.exception("the state of an idempotency key of %s could not be read", key.table)
                raise InternalError(f"the state of this idempotency_key could not be read: {e}") from e
            else:
                if not found.elsewhere:
                    return found
                if late:
                    raise KeyBusy("another instance has been working on a request with this key for a long time")
            pause = max(_RETRY_EVERY_S, time.monotonic() - started)

    async def _find(self, key: IdempotencyKey) -> _Found:
        return await self._aside(self._read, key)

    def _read(self, key: IdempotencyKey) -> _Found:
        found = self._ledger.key(key.id)
        if found is None:
            return _Found()
        if not found.is_free:
            _check(key, found.fingerprint)
        owner, owners = found.owner, self._ledger.owners
        in_progress = found.answer is None and found.state in UNFINISHED and owner not in (None, owners.me)
        elsewhere = in_progress and not owners.gone(owner or "")
        return _Found(found.answer, found.batch, elsewhere, found.state == "done")

    async def _aside(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the ledger on another thread if it is on another machine; SQLite answers sooner than a thread does."""
        if self._ledger.owners.shared:
            return await asyncio.to_thread(ask, *args, **kwargs)
        return ask(*args, **kwargs)

    def store(self, key: IdempotencyKey, answer: bytes) -> bytes:
        """Store the response to a success; returns what to send. KeyBusy if another instance has the key."""
        return store_response(self._ledger, key, answer)

    def request_id(self, call: Call) -> str:
        """The request id that the effect of a call has: that of an earlier attempt, if that had the effect."""
        if call.key is None or call.earlier is None:
            return call.id
        try:
            found = self._ledger.key(call.key.id)
        except LedgerUnavailable as e:
            log.error("the response to %s has its own request id, not the first attempt's: %s", call.id, e.message)
            return call.id
        if found is None or (found.batch, found.state) != (call.earlier, "done"):
            return call.id
        return found.request_id or call.id

    def stop_waiting(self, error: FirnError) -> None:
        """Fail all requests that wait for other instances with this error."""
        self._stopped = error


def _check(key: IdempotencyKey, fingerprint: str) -> None:
    if key.fingerprint != fingerprint:
        raise KeyReused(
            f"idempotency_key {key.text[:80]!r} was used for another {key.operation} request; "
            "choose a new key, or send that request as it was",
            field="idempotency_key",
        )
