"""Failed refreshes: those that will pass are tried again after a pause, others only a few times."""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from service.engine.session.translate import SparkEnded
from service.errors import FirnError, OutcomeUnknown, SnapshotNotFound
from service.ledger.dynamic_tables import DynamicTable, DynamicTableRecords
from service.model.times import now_ms

log = logging.getLogger("firn.dynamic")

MOST_FAILURES = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0


def is_transient(error: FirnError) -> bool:
    """Whether a later refresh may succeed although nobody has changed anything. If Spark ended, the refresh may be why:
    it must not end Spark again and again."""
    if isinstance(error, SparkEnded):
        return False
    return error.retryable or isinstance(error, OutcomeUnknown | SnapshotNotFound)


def pause_s(failures: int, jitter: float = 0.0) -> float:
    """How long to wait after a number of failures in a row: twice as long after each. `jitter`, from 0 to 1, makes it
    up to a quarter longer, so that tables which failed together are not tried together."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(30, failures - 1)) * (1 + jitter / 4)


@dataclass(eq=False)
class Failures:
    """Counts the failures of tables, and records when they may be tried again."""

    records: DynamicTableRecords
    now_ms: Callable[[], int] = now_ms
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _in_a_row: dict[str, int] = field(default_factory=dict)

    def failed(self, table: DynamicTable, error: FirnError) -> None:
        """Record a failure; the third lasting one in a row stops further refreshes. It does not raise."""
        with self._lock:
            row = self._in_a_row[table.uuid] = self._in_a_row.get(table.uuid, 0) + 1
        passes = is_transient(error)
        ends = not passes and table.failures + 1 >= MOST_FAILURES
        retry_ms = None if ends else self.now_ms() + round(1000 * pause_s(row, random.random()))
        reason = f"{error.code}: {error.message}"
        if ends:
            log.error("%s is not refreshed any more after %d failures: %s", table.name, table.failures + 1, reason)
        else:
            log.warning("%s could not be refreshed, trying again: %s", table.name, reason)
        try:
            self.records.failed(table.uuid, reason, retry_ms, counts=not passes, state="failed" if ends else "active")
        except FirnError as e:
            log.error("the failure of %s could not be recorded: %s", table.name, e.message)

    def succeeded(self, table: DynamicTable) -> None:
        with self._lock:
            self._in_a_row.pop(table.uuid, None)
