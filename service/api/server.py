"""The listening server. When it stops, every client that had connected still gets a response."""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("firn.http")
# How long open connections may still send a request, once the sockets are closed.
_LAST_REQUESTS_S = 0.5


class Server(uvicorn.Server):
    """Uvicorn, but a stop first finishes the requests in progress, and responds with 503 to new ones."""

    def __init__(self, config: uvicorn.Config, finish: Callable[[], None], local: socket.socket | None = None) -> None:
        """`finish` ends the service. `local` is a Unix socket to listen on as well."""
        super().__init__(config)
        self._finish = finish
        self._local = local
        self._stopping = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._local is not None and self.started:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_unix_server(self._protocol, sock=self._local))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._stopping:
            self.should_exit = self.force_exit = True
            return
        self._stopping = True
        log.info("stopping on %s", signal.Signals(sig).name)
        threading.Thread(target=self._stop, name="firn-stop").start()

    def _stop(self) -> None:
        try:
            self._finish()
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and receive the requests of those that were made."""
        listening = [_duplicate(s) for server in self.servers for s in server.sockets]
        for server in self.servers:
            server.close()
        for socket_ in listening:
            await self._accept_waiting(socket_)
        until = time.monotonic() + _LAST_REQUESTS_S
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    async def _accept_waiting(self, listening: socket.socket) -> None:
        # When a socket is closed, the system resets the connections that were not accepted, with the requests in them.
        waiting = []
        with listening:
            try:
                while True:
                    waiting.append(listening.accept()[0])
            except OSError:
                pass  # none is left
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection, ssl=self.config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def _duplicate(listening: Any) -> socket.socket:
    """A second handle of a socket, which stays open until both are closed."""
    duplicate = socket.socket(fileno=os.dup(listening.fileno()))
    duplicate.setblocking(False)
    return duplicate


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
        """Call `stop` once, after that many idle seconds. A thread watches for that."""

        def watch() -> None:
            while self.seconds(busy()) < idle_timeout_s:
                time.sleep(min(1.0, idle_timeout_s / 4))
            log.info("stopping: there was no request for %.0f s", idle_timeout_s)
            stop()

        threading.Thread(target=watch, name="firn-idle", daemon=True).start()
