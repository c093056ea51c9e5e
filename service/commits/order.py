"""A fair line per table: changes to one table happen one after another, in the order they came."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Order:
    """Lines by table UUID; a line exists only while somebody stands in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Callable[[], None]]] = {}

    def join(self, table_uuid: str, on_turn: Callable[[], None]) -> None:
        """Stand in line without a thread: `on_turn` is called when it is this one's turn, which `leave` ends."""
        with self._lock:
            line = self._lines.setdefault(table_uuid, deque())
            line.append(on_turn)
            first = len(line) == 1
        if first:
            on_turn()

    def leave(self, table_uuid: str) -> None:
        """End the present turn; the next in line is called."""
        with self._lock:
            line = self._lines[table_uuid]
            line.popleft()
            following = line[0] if line else None
            if not line:
                del self._lines[table_uuid]
        if following:
            following()

    @contextmanager
    def hold(self, table_uuid: str) -> Iterator[None]:
        """Wait for this table's turn and keep it for the block."""
        turn = threading.Event()
        self.join(table_uuid, turn.set)
        turn.wait()
        try:
            yield
        finally:
            self.leave(table_uuid)
