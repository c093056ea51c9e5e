"""A fair line per table: changes to one table happen one after another, in the order they came."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CHECK_EVERY_S = 1.0


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
    def hold(self, table_uuid: str, check: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Wait for this table's turn and keep it for the block. What `check` raises meanwhile ends the waiting."""
        turn = threading.Event()
        self.join(table_uuid, turn.set)
        try:
            while not turn.wait(_CHECK_EVERY_S):
                check()
        except BaseException:
            self._give_up(table_uuid, turn)
            raise
        try:
            yield
        finally:
            self.leave(table_uuid)

    def _give_up(self, table_uuid: str, turn: threading.Event) -> None:
        """Leave the line, wherever in it one stands by now."""
        with self._lock:
            line = self._lines[table_uuid]
            waits = line[0] != turn.set
            if waits:
                line.remove(turn.set)
        if not waits:
            self.leave(table_uuid)
