"""The listening server, and a stop in which nobody who reached it is left without an answer."""

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

log = logging.getLogger("firn.http")
_LAST_WORDS_S = 0.5


class Server(uvicorn.Server):
    """Uvicorn, but a stop first finishes what is under way, answering 503 to what comes meanwhile."""

    def __init__(self, config: uvicorn.Config, finish: Callable[[], None], local: socket.socket | None = None) -> None:
        """`local` is a Unix socket to listen on, too."""
        super().__init__(config)
        self._finish = finish
        self._local = local
        self._asked = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._local is not None and self.started:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_unix_server(self._protocol, sock=self._local))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._asked:
            self.should_exit = self.force_exit = True
            return
        self._asked = True
        log.info("stopping on %s", signal.Signals(sig).name)
        threading.Thread(target=self._stop, name="firn-stop").start()

    def _stop(self) -> None:
        try:
            self._finish()
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door behind whoever is through it, and hear what they have to say before they are sent away."""
        doors = [_another(listening) for server in self.servers for listening in server.sockets]
        for server in self.servers:
            server.close()
        for door in doors:
            await self._let_in(door)
        until = time.monotonic() + _LAST_WORDS_S
        while self.server_state.connections and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    async def _let_in(self, door: socket.socket) -> None:
        # The system resets connections nobody took by the time the door is closed, with the requests in them.
        waiting = []
        with door:
            try:
                while True:
                    waiting.append(door.accept()[0])
            except OSError:
                pass  # nobody is left at it
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def _another(listening: Any) -> socket.socket:
    """The same door, held by us: it is closed when both are."""
    door = socket.socket(fileno=os.dup(listening.fileno()))
    door.setblocking(False)
    return door
