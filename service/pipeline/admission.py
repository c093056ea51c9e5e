"""How many requests are served at a time: none once the service stops, and a bounded number that wait for a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import ShuttingDown, TooManyRequests
from service.operations.operation import Pool


class Admission:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._in_progress = 0
        self._in_threads = 0
        self._draining = False

    @property
    def in_progress(self) -> int:
        """How many requests are being served."""
        return self._in_progress

    @contextmanager
    def admit(self, pool: Pool) -> Iterator[None]:
        """Count a request for the block; TooManyRequests or ShuttingDown if it is not admitted."""
        with self._changed:
            if self._draining:
                raise stopping()
            if pool != "inline":
                # What runs inline holds memory and no thread; the HTTP routes bound the memory.
                if self._in_threads >= self._limit:
                    raise TooManyRequests(f"{self._limit} requests are waiting already; try again in a second")
                self._in_threads += 1
            self._in_progress += 1
        try:
            yield
        finally:
            self.leave(pool)

    def leave(self, pool: Pool) -> None:
        with self._changed:
            self._in_progress -= 1
            self._in_threads -= pool != "inline"
            if not self._in_progress:
                self._changed.notify_all()

    def hold(self) -> None:
        """Count one more for a request that is admitted, such as a stream that is still being sent."""
        with self._changed:
            self._in_progress += 1

    def drain(self, seconds: float) -> bool:
        """Admit no more requests and wait for those in progress; true if none is left."""
        with self._changed:
            self._draining = True
            return self._changed.wait_for(lambda: not self._in_progress, timeout=seconds)


def stopping() -> ShuttingDown:
    return ShuttingDown("the service is stopping and accepts no new requests; send this one again once it is back")
