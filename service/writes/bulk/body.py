"""A request body between the event loop that receives it and the thread that reads it: bounded, counted and hashed."""

import asyncio
import hashlib
import threading
import time
from collections import deque

from service.errors import BodyTooLarge, InvalidRequest

_MOST_HELD = 16 << 20
_SILENCE_S = 60.0


class ClientGone(Exception):
    """The client disconnected before the body was complete, so nobody waits for a response."""


class Body:
    """One request's body. It holds at most some megabytes in memory; a client that is faster than the reader waits."""

    def __init__(self, limit_mb: int, silence_s: float = _SILENCE_S, *, hashed: bool = False) -> None:
        self._limit_mb = limit_mb
        self._silence_s = silence_s
        self._changed = threading.Condition()
        self._chunks: deque[memoryview] = deque()
        self._held = 0
        self._ended = False
        self._failure: Exception | None = None
        self._closed = False
        self._hash = hashlib.sha256() if hashed else None
        self.size = 0

    async def put(self, chunk: bytes) -> bool:
        """Add the next piece; returns False if the rest will not be read."""
        if not self._put(chunk):
            return False
        if self._held > _MOST_HELD:
            await asyncio.to_thread(self._wait_for_room)
        return True

    def end(self) -> None:
        """Mark the end of the body."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self, why: Exception) -> None:
        """Raise this exception in the reader instead of waiting for the rest."""
        with self._changed:
            self._failure = self._failure or why
            self._changed.notify_all()

    def read(self, count: int) -> memoryview:
        """The next `count` bytes, fewer only at the end."""
        if count <= 0:
            return memoryview(b"")
        piece = self._next(count)
        if len(piece) == count or not piece:
            return piece
        # Filled in place, because joining would hold a large piece twice.
        whole = bytearray(count)
        filled = 0
        while piece:
            whole[filled : filled + len(piece)] = piece
            filled += len(piece)
            piece = self._next(count - filled) if filled < count else memoryview(b"")
        return memoryview(whole)[:filled]

    def digest(self) -> str:
        """The SHA-256 of what was read, in hexadecimal; only for a body created with `hashed`."""
        assert self._hash is not None
        return self._hash.hexdigest()

    def close(self) -> None:
        """Stop reading."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._held = 0
            self._changed.notify_all()

    def _put(self, chunk: bytes) -> bool:
        with self._changed:
            if self._closed or self._failure:
                return False
            self.size += len(chunk)
            if self.size > self._limit_mb << 20:
                self._failure = BodyTooLarge(
                    f"the body is larger than {self._limit_mb} MiB; send it in parts, or raise FIRN_LIMITS__BULK_MB"
                )
            elif chunk:
                self._chunks.append(memoryview(chunk))
                self._held += len(chunk)
            self._changed.notify_all()
            return self._failure is None

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._held <= _MOST_HELD // 2 or self._closed or self._failure)

    def _next(self, most: int) -> memoryview:
        with self._changed:
            deadline = time.monotonic() + self._silence_s
            while not (self._chunks or self._failure or self._ended):
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and not self._chunks:
                    self._failure = self._failure or InvalidRequest(
                        f"the body did not continue for {self._silence_s:g} s; send the request again"
                    )
            if self._failure:
                raise self._failure
            if not self._chunks:
                return memoryview(b"")
            chunk = self._chunks.popleft()
            if len(chunk) > most:
                self._chunks.appendleft(chunk[most:])
                chunk = chunk[:most]
            self._held -= len(chunk)
            self._changed.notify_all()
        if self._hash is not None:
            self._hash.update(chunk)
        return chunk
