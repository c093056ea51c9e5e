"""Bounds the memory that all requests in progress may take together."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import TooManyRequests

# JSON takes about so many times its size once it is parsed.
_PER_BYTE = 8
_PER_REQUEST = 8 * 1024


class HeldMemory:
    """The memory that one request has taken."""

    def __init__(self, budget: "MemoryBudget") -> None:
        self._budget = budget
        self.bytes = 0

    def add(self, size: int) -> None:
        """Take the memory for so many more bytes of JSON; TooManyRequests if there is not enough."""
        self.take(size * _PER_BYTE)

    def take(self, size: int) -> None:
        self._budget._take(size)
        self.bytes += size


class MemoryBudget:
    """Counts bytes rather than requests: a thousand small ones take less than one large one."""

    def __init__(self, memory_mb: int, body_mb: int) -> None:
        """It holds the largest body at least."""
        self._size = max(memory_mb, 2 * body_mb * _PER_BYTE) * 1024 * 1024
        self._lock = threading.Lock()
        self._taken = 0

    @contextmanager
    def hold(self) -> Iterator[HeldMemory]:
        """Memory for one request, given back at the end of the block."""
        held = HeldMemory(self)
        try:
            held.take(_PER_REQUEST)
            yield held
        finally:
            with self._lock:
                self._taken -= held.bytes

    @property
    def taken(self) -> int:
        with self._lock:
            return self._taken

    def _take(self, size: int) -> None:
        with self._lock:
            if self._taken + size > self._size:
                raise TooManyRequests(
                    f"the requests in progress hold all the memory there is for them ({self._size >> 20} MiB, "
                    "FIRN_LIMITS__MEMORY_MB); try again in a second"
                )
            self._taken += size
