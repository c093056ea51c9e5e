"""Stops a service that nobody has used for a while."""

import logging
import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("firn.http")


class IdleStop:
    """An ASGI application that knows how long it has been idle."""

    def __init__(self, app: ASGIApp, now: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._now = now
        self._lock = threading.Lock()
        self._in_progress = 0
        self._since = now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        with self._lock:
            self._in_progress += 1
        try:
            await self._app(scope, receive, send)
        finally:
            with self._lock:
                self._in_progress -= 1
                self._since = self._now()

    def seconds(self, busy: bool) -> float:
        """For how long there has been no request; `busy` says that the service has other work in progress."""
        with self._lock:
            if busy or self._in_progress:
                self._since = self._now()
            return self._now() - self._since

    def stop_after(self, idle_timeout_s: float, busy: Callable[[], bool], stop: Callable[[], None]) -> None:
        """Call `stop` once, after so many idle seconds. A thread watches for that."""

        def watch() -> None:
            while self.seconds(busy()) < idle_timeout_s:
                time.sleep(min(1.0, idle_timeout_s / 4))
            log.info("stopping: there was no request for %.0f s", idle_timeout_s)
            stop()

        threading.Thread(target=watch, name="firn-idle", daemon=True).start()
