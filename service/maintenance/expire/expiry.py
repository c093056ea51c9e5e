"""When old snapshots expire: after a number of commits, in the background, on threads of its own."""

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
# A table rests for this multiple of the last look's duration: maintenance never dominates a busy service.
REST = 10
REST_AFTER_FAILURE_S = 60.0
_TABLES = 10_000


@dataclass
class _Tally:
    """What is known about a table. A new one is looked at after its first commit."""

    commits_left: int = 1
    not_before: float = 0.0
    queued: bool = False


# Looks at a table; returns the number of commits after which to look again.
ExpiryCheck = Callable[[TableName, str, int], int]


@dataclass(eq=False)
class Expiry:
    """Counts a table's commits, and looks at the table after enough of them."""

    look: ExpiryCheck
    slack: int = SLACK
    threads: int = 2
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[str, _Tally] = {}
        self._waiting: queue.SimpleQueue[tuple[TableName, str] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def after_commit(self, name: TableName, table_uuid: str) -> None:
        """Count a commit. It takes no time and never fails: the work is done on other threads."""
        with self._lock:
            if len(self._tallies) >= _TABLES and table_uuid not in self._tallies:
                self._tallies.clear()
            tally = self._tallies.setdefault(table_uuid, _Tally())
            tally.commits_left -= 1
            if self._closed or tally.queued or tally.commits_left > 0 or self.clock() < tally.not_before:
                return
            tally.queued, tally.commits_left = True, 0
            self._waiting.put((name, table_uuid))
            if len(self._threads) < self.threads:
                thread = threading.Thread(target=self._work, name="firn-expiry", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, seconds: float = 2) -> None:
        """Start nothing more, and wait a moment for work in progress. It may be cut off at any point."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._waiting.put(None)
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None and not self._closed:
            self._look_at(*waiting)

    def _look_at(self, name: TableName, table_uuid: str) -> None:
        started = self.clock()
        commits, rest = self.slack, REST_AFTER_FAILURE_S
        try:
            commits = self.look(name, table_uuid, self.slack)
            rest = REST * (self.clock() - started)
        except TableNotFound:
            log.debug("%s was dropped before its snapshots were looked at", name)
        except Exception as e:
            level = logging.WARNING if isinstance(e, FirnError) else logging.ERROR
            log.log(level, "snapshots of %s could not be expired: %s", name, e, exc_info=level > logging.WARNING)
        with self._lock:
            tally = self._tallies.setdefault(table_uuid, _Tally(0))
            tally.commits_left += commits  # minus those in the meantime
            tally.not_before = self.clock() + rest
            tally.queued = False
