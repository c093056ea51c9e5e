"""A streamed response. It ends as it should or the connection breaks, so that no part is taken for the whole."""

import asyncio
import logging
from functools import partial

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.exchange import disconnected
from service.model.call import Call
from service.pipeline.waiting import Watch
from service.queries.streaming.streams import Stream

log = logging.getLogger("firn.http")


class StreamResponse(StreamingResponse):
    """Sends a stream at the client's pace."""

    def __init__(self, stream: Stream, call: Call, stall_s: float) -> None:
        """`stall_s` is how long the client may accept nothing."""
        headers = {"X-Request-Id": call.id}
        if stream.snapshot_id is not None:
            headers["X-Firn-Snapshot-Id"] = str(stream.snapshot_id)
        super().__init__((), headers=headers, media_type=stream.media_type)
        self._stream = stream
        self._call = call
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Returning without a last message makes the server break the connection."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            # Only until the last message: after that, the server reports every client as gone.
            async with Watch(self._call, partial(disconnected, receive)):
                await self._send_chunks(send)
            if not self._call.cancelled:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning("%s: its client read nothing for %g s; the stream is aborted", self._call.id, self._stall_s)
        except Exception as e:
            log.info("%s: its stream failed, and its connection is broken: %s", self._call.id, e)
        finally:
            self._stream.close()

    async def _send_chunks(self, send: Send) -> None:
        while chunk := await asyncio.wrap_future(self._stream.advance()):
            if self._call.cancelled:
                return
            # A stream whose client reads nothing would hold snapshots and disk.
            async with asyncio.timeout(self._stall_s):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
