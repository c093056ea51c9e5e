"""What surrounds the work of a call while it is served: its deadline, its client, and an event loop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from service.errors import OutcomeUnknown
from service.model.call import Call

T = TypeVar("T")
Disconnected = Callable[[], Coroutine[Any, Any, None]]
"""Returns when the client has gone."""


@asynccontextmanager
async def watching(call: Call, disconnected: Disconnected | None) -> AsyncIterator[None]:
    """Cancel a call during the block if its client disconnects or its deadline passes."""

    async def cancel_when_gone(disconnected: Disconnected) -> None:
        await disconnected()
        await asyncio.to_thread(call.cancel)

    loop = asyncio.get_running_loop()
    watches: list[asyncio.TimerHandle | asyncio.Task[None]] = []
    if call.deadline is not None:
        remaining = max(0.0, call.deadline - time.monotonic())
        watches.append(loop.call_later(remaining, lambda: loop.run_in_executor(None, call.expire)))
    if disconnected is not None:
        watches.append(asyncio.create_task(cancel_when_gone(disconnected)))
    try:
        yield
    finally:
        for watch in watches:
            watch.cancel()


async def shared_result(future: "Future[T]", call: Call) -> T:
    """The result of work that is shared with other calls. Its future is marked as running, so nobody can cancel it.

    OutcomeUnknown if it has not ended by the deadline.
    """
    waiting = asyncio.wrap_future(future)
    if call.deadline is None:
        return await waiting
    try:
        return await asyncio.wait_for(asyncio.shield(waiting), max(0.0, call.deadline - time.monotonic()))
    except TimeoutError as e:
        raise OutcomeUnknown(
            "the change was not committed within timeout_ms, but may still be; if the request has an idempotency key, "
            "send it again; if not, check first"
        ) from e


class BackgroundLoop:
    """An event loop on a thread of its own, started when it is first used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start work. It goes on when the future is cancelled."""
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()

        async def run() -> None:
            try:
                result.set_result(await work)
            except BaseException as e:
                result.set_exception(e)
                raise

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="firn-requests", daemon=True).start()
        asyncio.run_coroutine_threadsafe(run(), self._loop)
        return result
