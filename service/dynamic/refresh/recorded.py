"""What the ledger keeps of one refresh: that it runs, what it reads, and how it ended.

Each transaction waits for the disk, so what belongs to one moment is recorded in one.
"""

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from service.catalog.tables import Table
from service.errors import Cancelled, FirnError
from service.ledger.dynamic_cursors import CursorRecords, Cursors
from service.ledger.dynamic_tables import DynamicTableRecords, RefreshRecord
from service.ledger.ledger import Transaction
from service.metrics.catalogue import NONE
from service.metrics.metrics import Metrics
from service.model.dynamic.state import RefreshState, state_of
from service.model.failures import internal_error
from service.model.times import now_ms

log = logging.getLogger("firn.dynamic")


@dataclass
class RecordedRefresh:
    """The record of a refresh, and its writes to the ledger."""

    records: DynamicTableRecords
    cursors: CursorRecords
    metrics: Metrics
    record: RefreshRecord
    """As it is known now."""
    reads: Mapping[str, int | None]
    """The snapshots of the sources that the query reads, by UUID."""

    def begin(self, transaction: Transaction) -> None:
        """Record, with the claim of the table, that it runs, and what it reads."""
        self.records.put_refresh(self.record, transaction)
        self.cursors.reading(self.record.table_uuid, self.reads, transaction)

    def note(self, **values: Any) -> None:
        """Take values into the record, which the next write stores."""
        self.record = replace(self.record, **values)

    def show(self) -> None:
        """Record what is known so far: for work that takes long enough to be looked at."""
        self.records.put_refresh(self.record)

    def needless(self) -> None:
        """Nothing had to be done: what `begin` recorded is taken back."""
        try:
            self.records.forget_refresh(self.record.id)
            self.cursors.reading(self.record.table_uuid, {})
        except FirnError as e:  # the next refresh finds that it did nothing
            log.error("the record of a needless refresh of %s stays: %s", self.record.table, e.message)

    def end(self, state: RefreshState, as_of_ms: int, within: Transaction | None = None) -> None:
        """Record that it is done, and what the rows stand for."""
        read: Set[str] = self.reads.keys()
        self.note(state="done", ended_ms=now_ms())
        self.cursors.put(self.record.table_uuid, Cursors(state.pass_id, state.snapshots), read, within)
        self.records.refreshed(self.record.table_uuid, as_of_ms, within)
        self.records.put_refresh(self.record, within)

    def end_anyway(self, state: RefreshState, as_of_ms: int) -> None:
        """The same in transactions of its own. What cannot be recorded is found in the table by the next refresh."""
        try:
            self.end(state, as_of_ms)
        except FirnError as e:
            log.error("the refresh of %s could not be recorded: %s", self.record.table, e.message)

    def fail(self, failure: BaseException) -> None:
        """Record that it failed."""
        what = f"the refresh of {self.record.table}"
        error = failure if isinstance(failure, FirnError) else internal_error(log, what, failure)
        self.note(state="failed", error_code=error.code, error=error.message, ended_ms=now_ms())
        try:
            self.records.put_refresh(self.record)
        except FirnError as e:
            log.error("the failure of %s could not be recorded: %s", what, e.message)
        if not isinstance(failure, Cancelled):
            self.count()

    def count(self) -> None:
        """Add it to the metrics, now that it has ended."""
        ended = self.record
        seconds = ((ended.ended_ms or 0) - ended.started_ms) / 1000
        self.metrics.refreshed(ended.mode or NONE, ended.state, seconds, ended.rows_added, ended.rows_removed)

    def complete_earlier(self, result: Table, *, claimed: bool) -> None:
        """Record how refreshes ended whose process ended first: the table says whether they were committed. Without
        the claim of the table, those that were not may still be in progress."""
        for left in self.records.refreshes_of(result.uuid, 10, state="running"):
            if left.id == self.record.id:
                continue
            made = next((one for one in result.snapshots() if _is_of(one.summary, left)), None)
            if made is not None:
                ended = replace(left, state="done", snapshot_id=made.snapshot_id, ended_ms=made.timestamp_ms)
                self.records.put_refresh(ended)
            elif claimed:
                why = "the service ended while it ran; nothing of it was committed"
                failed = replace(left, state="failed", error_code="UNAVAILABLE", error=why, ended_ms=now_ms())
                self.records.put_refresh(failed)


def _is_of(summary: Mapping[str, str], refresh: RefreshRecord) -> bool:
    """Whether a snapshot was made by a refresh."""
    state = state_of(summary)
    return state is not None and (state.pass_id, state.definition) == (refresh.pass_id, refresh.version)
