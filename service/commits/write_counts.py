"""How many WRITEs each table has had."""

import logging
import threading

from service.errors import LedgerUnavailable
from service.ledger.ledger import Ledger

log = logging.getLogger("firn.maintenance")


class WriteCounts:
    """Counted in memory from where the ledger left off, without what other instances add to it meanwhile."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._totals: dict[str, int] = {}

    def add(self, table_uuid: str, writes: int) -> int:
        """So many more; how many there have been by now. No two writes are the same one."""
        with self._lock:
            known = self._totals.get(table_uuid)
            if known is None:
                try:
                    known = self._ledger.writes(table_uuid)
                except LedgerUnavailable:  # a count may start anew, a write may not fail for it
                    known = 0
            self._totals[table_uuid] = known + writes
            return known + writes

    def keep(self, table_uuid: str, writes: int) -> None:
        """Note so many more; a write never fails for want of it."""
        try:
            self._ledger.count_writes(table_uuid, writes)
        except LedgerUnavailable as e:
            log.error("the writes of table %s could not be noted: %s", table_uuid, e.message)
