"""The WRITEs that wait for one table's next commit."""

import threading
import time
from collections import deque
from collections.abc import Callable

from service.settings import WriteQueueSettings
from service.writes.entry import Entry

MIB = 1024 * 1024


class Queue:
    """Gathers entries while a commit runs, and hands out batches; it knows no thread, table or commit itself.

    `ask_for_turn` is called when there is something to commit and no turn has been asked for.
    """

    def __init__(self, settings: WriteQueueSettings, ask_for_turn: Callable[[], None]) -> None:
        self._settings = settings
        self._ask_for_turn = ask_for_turn
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._asked = False
        self._last = 0
        self._last_answered = 0.0

    def add(self, entry: Entry) -> None:
        with self._changed:
            self._waiting.append(entry)
            first, self._asked = not self._asked, True
            if not first and len(self._waiting) >= self._last:
                self._changed.notify_all()
        if first:
            self._ask_for_turn()

    def take(self) -> list[Entry]:
        """The next batch, when the turn has come; it may wait some milliseconds for those that were just answered."""
        with self._changed:
            self._linger()
            batch: list[Entry] = []
            records = size = 0
            has_large = False
            while self._waiting and self._fits(batch, records + self._waiting[0].count, size + self._waiting[0].size):
                if has_large and not self._waiting[0].small:
                    break  # whose rows are whose is noted of all requests of a batch but one
                entry = self._waiting.popleft()
                batch.append(entry)
                has_large = has_large or not entry.small
                records, size = records + entry.count, size + entry.size
            return batch

    def done(self, answered: int) -> None:
        """A batch was answered; if others wait, they ask for the next turn."""
        with self._changed:
            self._last, self._last_answered = answered, time.monotonic()
            again = self._asked = bool(self._waiting)
        if again:
            self._ask_for_turn()

    @property
    def waiting(self) -> int:
        """How many wait; those that are being committed do not."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        with self._changed:
            return not self._asked

    def _linger(self) -> None:
        """Clients that were answered together come back together, one after the other: a batch waits for them."""
        expected = min(self._last, self._settings.batch_requests)
        if expected < 2 or not self._settings.group_commit:
            return
        until = self._last_answered + self._settings.linger_ms / 1000
        while len(self._waiting) < expected:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _fits(self, batch: list[Entry], records: int, size: int) -> bool:
        settings = self._settings
        if not batch:
            return True  # however large it is, alone it must go
        if not settings.group_commit:
            return False
        return (
            len(batch) < settings.batch_requests
            and records <= settings.batch_records
            and size <= settings.batch_mb * MIB
        )
