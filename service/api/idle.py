"""The end of a service that nobody has used for a while."""

import logging
import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("firn.http")


class Idle:
    """The door of a service, and for how long nobody has been at it."""

    def __init__(self, app: ASGIApp, now: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._now = now
        self._lock = threading.Lock()
        self._under_way = 0
        self._since = now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        with self._lock:
            self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            with self._lock:
                self._under_way -= 1
                self._since = self._now()

    def seconds(self, busy: bool) -> float:
        """For how long nothing has been under way, here or, as `busy` says, behind the door."""
        with self._lock:
            if busy or self._under_way:
                self._since = self._now()
            return self._now() - self._since

    def end_after(self, idle_s: float, busy: Callable[[], bool], end: Callable[[], None]) -> None:
        """Call `end` once, when so long nothing has been under way; it is looked for on a thread of its own."""

        def watch() -> None:
            while self.seconds(busy()) < idle_s:
                time.sleep(min(1.0, idle_s / 4))
            log.info("ending: nothing was asked for %.0f s", idle_s)
            end()

        threading.Thread(target=watch, name="firn-idle", daemon=True).start()
