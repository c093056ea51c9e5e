"""A fair line per table: changes to one table happen one after another, in the order they came."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Order:
    """Lines by table UUID; a line exists only while somebody stands in it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, deque[object]] = {}

    @contextmanager
    def hold(self, table_uuid: str) -> Iterator[None]:
        """Wait for this table's turn and keep it for the block."""
        ticket = object()
        with self._changed:
            line = self._lines.setdefault(table_uuid, deque())
            line.append(ticket)
            self._changed.wait_for(lambda: line[0] is ticket)
        try:
            yield
        finally:
            with self._changed:
                line.popleft()
                if not line:
                    del self._lines[table_uuid]
                self._changed.notify_all()
