"""A body on its way from the loop that receives it to the thread that reads it: bounded, counted, hashed if need be."""

import asyncio
import hashlib
import threading
import time
from collections import deque

from service.errors import BodyTooLarge, InvalidRequest

_HELD = 16 << 20
_SILENCE_S = 60.0


class Gone(Exception):
    """The client left before the body was whole; there is nobody to answer."""


class Body:
    """One request's body. It holds at most some megabytes, whatever its size; a client faster than the reader waits."""

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
        """Take the next piece; false when nobody reads any more, so that the rest need not be sent."""
        if not self._put(chunk):
            return False
        if self._held > _HELD:
            await asyncio.to_thread(self._wait_for_room)
        return True

    def end(self) -> None:
        """That was all."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self, why: Exception) -> None:
        """There will be no more; the reader gets this exception instead."""
        with self._changed:
            self._failure = self._failure or why
            self._changed.notify_all()

    def read(self, count: int) -> memoryview:
        """The next `count` bytes, fewer only at the end."""
        if count <= 0:
            return memoryview(b"")
        first = self._next(count)
        if len(first) == count or not first:
            return first
        # Filled in place: joining would hold a large piece twice.
        whole = bytearray(count)
        filled = 0
        piece = first
        while piece:
            whole[filled : filled + len(piece)] = piece
            filled += len(piece)
            piece = self._next(count - filled) if filled < count else memoryview(b"")
        return memoryview(whole)[:filled]

    def digest(self) -> str:
        """SHA-256 of what was read, in hexadecimal, of a body that is hashed."""
        assert self._hash is not None
        return self._hash.hexdigest()

    def close(self) -> None:
        """Nothing more will be read."""
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
            self._changed.wait_for(lambda: self._held <= _HELD // 2 or self._closed or self._failure)

    def _next(self, most: int) -> memoryview:
        with self._changed:
            deadline = time.monotonic() + self._silence_s
            while not (self._chunks or self._failure or self._ended):
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and not self._chunks:
                    self._failure = self._failure or InvalidRequest(
                        f"nothing more of the body came for {self._silence_s:g} s; send the request again"
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
