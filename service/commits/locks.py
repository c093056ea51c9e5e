"""A lock for each table: changes of a table happen one after another, in the order they came."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CHECK_EVERY_S = 1.0


class TableLocks:
    """Locks by table UUID. Each has a queue, whose first holds the lock; it exists only while it is not empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, deque[Callable[[], None]]] = {}

    def request(self, table_uuid: str, on_locked: Callable[[], None]) -> None:
        """Have `on_locked` called once the lock is the caller's, until `release`. No thread waits."""
        with self._lock:
            queue = self._queues.setdefault(table_uuid, deque())
            queue.append(on_locked)
            first = len(queue) == 1
        if first:
            on_locked()

    def release(self, table_uuid: str) -> None:
        """Give the lock to the next in the queue."""
        with self._lock:
            queue = self._queues[table_uuid]
            queue.popleft()
            following = queue[0] if queue else None
            if not queue:
                del self._queues[table_uuid]
        if following:
            following()

    @contextmanager
    def hold(self, table_uuid: str, check: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Wait for the lock and hold it for the block. If `check`, called while it waits, raises, the wait ends."""
        locked = threading.Event()
        self.request(table_uuid, locked.set)
        try:
            while not locked.wait(_CHECK_EVERY_S):
                check()
            yield
        finally:
            with self._lock:
                queue = self._queues[table_uuid]
                ours = queue[0] == locked.set
                if not ours:
                    queue.remove(locked.set)
            if ours:
                self.release(table_uuid)
