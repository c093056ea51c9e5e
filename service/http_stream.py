"""A streamed answer over HTTP: it ends well or the connection breaks, so that no part is taken for the whole."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.router import Answer
from service.streams.caller import Caller
from service.streams.streams import Stream

log = logging.getLogger("firn.http")


def caller_of(request: Request) -> Caller:
    """Who sent a request. In HTTP/1.0 an answer's end is the connection's, so that a break looks like an end."""
    return Caller(", ".join(request.headers.getlist("accept")), streams=request.scope["http_version"] != "1.0")


async def heard(request: Request, caller: Caller, answer: Awaitable[Answer]) -> Answer:
    """The answer. One that may be a stream is not worked for any more once its caller has hung up."""
    if not caller.may_stream:
        return await answer
    async with listening(request.receive, caller):
        return await answer


@asynccontextmanager
async def listening(receive: Receive, caller: Caller) -> AsyncIterator[None]:
    """Tell the caller's work if they hang up during the block."""
    task = asyncio.create_task(_listen(receive, caller))
    try:
        yield
    finally:
        task.cancel()


class Streamed(StreamingResponse):
    """Sends a stream as it comes, at the client's pace."""

    def __init__(self, stream: Stream, request_id: str, caller: Caller, stall_s: float) -> None:
        headers = {"X-Request-Id": request_id}
        if stream.snapshot_id is not None:
            headers["X-Firn-Snapshot-Id"] = str(stream.snapshot_id)
        super().__init__((), headers=headers, media_type=stream.media_type)
        self._stream = stream
        self._caller = caller
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What returns without a last message makes the server break the connection."""
        request_id = self.headers["X-Request-Id"]
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            # Not until the last message, as the server says that the client is gone after that, too.
            async with listening(receive, self._caller):
                await self._send_chunks(send)
            if not self._caller.gone:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("%s: its client took nothing for %g s and is given up", request_id, self._stall_s)
        except Exception as e:
            log.info("%s: the connection is broken, as its stream was: %s", request_id, e)
        finally:
            self._stream.close()

    async def _send_chunks(self, send: Send) -> None:
        while chunk := await asyncio.wrap_future(self._stream.advance()):
            if self._caller.gone:
                return
            # What waits for a client that takes nothing holds snapshots and disk.
            async with asyncio.timeout(self._stall_s):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _listen(receive: Receive, caller: Caller) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    await asyncio.to_thread(caller.hang_up)
