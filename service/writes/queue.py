"""The WRITEs, and the edits of rows by key, that wait for one table's next commit."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from service.settings import WriteQueueSettings
from service.writes.entry import PendingWrite
from service.writes.keyed.edit import PendingEdit

MIB = 1024 * 1024
Pending: TypeAlias = PendingWrite | PendingEdit
# The ledger keeps the rows that each request of a batch with edits moved.
_MOST_WITH_EDITS, _BYTES_WITH_EDITS = 10_000, 8 * MIB
# Parts of `linger_ms`: the longest wait in all, and the longest one for the next client while they keep coming.
_LONGEST_LINGER, _LINGER_GAP = 4, 0.3


class Queue:
    """Gathers entries while a commit runs, and returns them in batches. It knows no thread, table or commit.

    `request_lock` is called if there is something to commit and the table's lock is not requested or held.
    """

    def __init__(self, settings: WriteQueueSettings, request_lock: Callable[[], None]) -> None:
        self._settings = settings
        self._request_lock = request_lock
        self._changed = threading.Condition()
        self._waiting: deque[Pending] = deque()
        self._requested = False
        self._expected = 0
        """How many clients there are, as far as the last batch and those that waited beside it show."""
        self._last_done_at = 0.0
        self._last_added_at = 0.0

    def add(self, entry: Pending) -> None:
        with self._changed:
            self._waiting.append(entry)
            self._last_added_at = time.monotonic()
            first, self._requested = not self._requested, True
            if not first and len(self._waiting) >= self._expected:
                self._changed.notify_all()
        if first:
            self._request_lock()

    def take(self) -> list[Pending]:
        """The next batch, once the lock is held; it may wait some milliseconds for clients that just got a response."""
        with self._changed:
            self._linger()
            batch: list[Pending] = []
            records = size = 0
            edits, upsert_keys = False, set[tuple[str, ...]]()
            while self._waiting:
                entry = self._waiting[0]
                records, size = records + entry.count, size + entry.size
                if entry.is_edit or edits:
                    fits = self._fits_edits(entry, batch, upsert_keys, edits)
                    fits = fits and records <= _MOST_WITH_EDITS and size <= _BYTES_WITH_EDITS
                    edits = True
                else:
                    fits = True
                if batch and not (fits and self._fits(entry, batch, records, size)):
                    break
                batch.append(self._waiting.popleft())
            return batch

    def done(self, count: int) -> None:
        """A batch of this many has its responses. If others wait, request the lock for them."""
        with self._changed:
            # Without those that wait, clients that once split into two groups would never share a commit again.
            self._expected = count + len(self._waiting)
            self._last_done_at = time.monotonic()
            again = self._requested = bool(self._waiting)
        if again:
            self._request_lock()

    @property
    def waiting(self) -> int:
        """How many entries wait, without those that are being committed."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        with self._changed:
            return not self._requested

    def _linger(self) -> None:
        """Wait for clients that got their responses together: they send their next requests at about the same time.

        They have `linger_ms` to begin. While they keep coming, one soon after the other, the wait goes on for a while.
        """
        expected = min(self._expected, self._settings.batch_requests)
        if expected < 2 or not self._settings.group_commit:
            return
        linger_s = self._settings.linger_ms / 1000
        begin, end = self._last_done_at + linger_s, self._last_done_at + _LONGEST_LINGER * linger_s
        while len(self._waiting) < expected:
            left = min(end, max(begin, self._last_added_at + _LINGER_GAP * linger_s)) - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _fits(self, entry: Pending, batch: list[Pending], records: int, size: int) -> bool:
        settings = self._settings
        return (
            settings.group_commit
            and len(batch) < settings.batch_requests
            and records <= settings.batch_records
            and size <= settings.batch_mb * MIB
            # The record of which rows belong to which request leaves out the largest one.
            and (entry.small or all(other.small for other in batch))
        )

    def _fits_edits(self, entry: Pending, batch: list[Pending], upsert_keys: set[tuple[str, ...]], edits: bool) -> bool:
        """Whether an entry fits a batch that has edits, or gets its first one.

        All of its UPSERTs have the same keys, which the snapshot names.
        """
        if isinstance(entry, PendingEdit) and entry.upsert_keys:
            upsert_keys.add(entry.upsert_keys)
        return len(upsert_keys) <= 1 and entry.small and (edits or all(other.small for other in batch))
