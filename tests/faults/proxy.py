"""A wire between clients and a service that can lose the answers on their way back."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from service.model import wire


class Proxy:
    """Listens on a port of its own and passes bytes on, both ways. While it swallows, what is answered gets no further.

    Where the service takes no connection, or ends one, the client's ends too.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._swallowing = False
        self._swallowed: list[bytearray] = []
        self._clients: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Proxy":
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @contextmanager
    def swallowing(self) -> Iterator[None]:
        """Lose what is answered meanwhile; at the end, those who wait for it are cut off."""
        self._swallowed, self._swallowing = [], True
        try:
            yield
        finally:
            self._call(self._cut())
            self._swallowing = False

    @property
    def swallowed(self) -> list[bytes]:
        """The bodies of the answers that were swallowed whole, of all that succeeded, since it last began."""
        bodies = [_body(bytes(answer)) for answer in list(self._swallowed)]
        return [body for body in bodies if body and wire.parse(body)["success"]]

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _cut(self) -> None:
        for client in self._clients:
            client.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:  # each ends when its connection does
            await asyncio.wait(others, timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            with contextlib.suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
                ways = {
                    asyncio.ensure_future(self._forth(reader, up_writer)),
                    asyncio.ensure_future(self._back(up_reader, writer)),
                }
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                up_writer.transport.abort()
        finally:
            self._clients.discard(writer)
            writer.transport.abort()

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept: bytearray | None = None
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._swallowing and kept is None:
                    kept = bytearray()
                    self._swallowed.append(kept)
                if kept is None:
                    writer.write(data)
                else:
                    kept += data


def _body(answer: bytes) -> bytes | None:
    """The body of an HTTP answer, if all of it is there."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    whole = bool(lengths) and len(body) == int(lengths[0].partition(b":")[2])
    return body if whole else None
