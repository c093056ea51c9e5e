"""When old snapshots are let go: after commits have been answered, now and then, on threads of its own."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.errors import FirnError, TableNotFound
from service.model.names import TableName

log = logging.getLogger("firn.maintenance")

# Fewer are not worth a commit of their own.
SLACK = 25
# After a look a table is left alone for so many times as long as that took: upkeep never takes a busy service over.
REST = 10
REST_AFTER_FAILURE_S = 60.0
_TABLES = 10_000


@dataclass
class _Tally:
    """What is known of a table. Of one not seen before nothing is, so its first commit has it looked at."""

    commits_left: int = 1
    not_before: float = 0.0
    asked: bool = False


# Looks at a table and says after how many more commits to look again.
ExpiryCheck = Callable[[TableName, str, int], int]


class Expiry:
    """Counts commits, and has a table looked at when enough of them have come."""

    def __init__(
        self, look: ExpiryCheck, *, slack: int = SLACK, threads: int = 2, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._slack = slack
        self._clock = clock
        self._most_threads = threads
        self._lock = threading.Lock()
        self._tallies: dict[str, _Tally] = {}
        self._waiting: queue.SimpleQueue[tuple[TableName, str] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def after_commit(self, name: TableName, table_uuid: str) -> None:
        """Count a commit. It takes no time and never fails; what it may set off happens elsewhere."""
        with self._lock:
            if len(self._tallies) >= _TABLES and table_uuid not in self._tallies:
                self._tallies.clear()
            tally = self._tallies.setdefault(table_uuid, _Tally())
            tally.commits_left -= 1
            if self._closed or tally.asked or tally.commits_left > 0 or self._clock() < tally.not_before:
                return
            tally.asked, tally.commits_left = True, 0
            self._waiting.put((name, table_uuid))
            if len(self._threads) < self._most_threads:
                thread = threading.Thread(target=self._work, name="firn-expiry", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, seconds: float = 2) -> None:
        """Begin nothing more, and wait a moment for what is under way: whatever is cut off does no harm."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._waiting.put(None)
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (asked := self._waiting.get()) is not None and not self._closed:
            self._look_at(*asked)

    def _look_at(self, name: TableName, table_uuid: str) -> None:
        started = self._clock()
        commits, rest = self._slack, REST_AFTER_FAILURE_S
        try:
            commits = self._look(name, table_uuid, self._slack)
            rest = REST * (self._clock() - started)
        except TableNotFound:
            log.debug("%s was dropped before its snapshots were looked at", name)
        except FirnError as e:
            log.warning("old snapshots of %s could not be let go, later commits try again: %s", name, e.message)
        except Exception:
            log.exception("old snapshots of %s could not be let go", name)
        with self._lock:
            tally = self._tallies.setdefault(table_uuid, _Tally(0))
            tally.commits_left += commits  # less those that came meanwhile
            tally.not_before = self._clock() + rest
            tally.asked = False
