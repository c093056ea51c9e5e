"""Snapshots that must not expire while this process works with them."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from service.catalog.history import history
from service.catalog.tables import Table
from service.ledger.ledger import Ledger

READ = "a query or a stream reads it"
BUILT_ON = "a change in progress builds on it"
AWAITED = "a change that made it, or was made on it, has not ended in the ledger, or has no response stored yet"


# How long a merge waits for an edit that writes files again: longer than such edits take.
_LONGEST_EDIT_S = 10.0


@dataclass(frozen=True)
class _Hold:
    snapshot_id: int
    and_later: bool


class SnapshotHolds:
    """What is being read or built upon now, by table UUID. A hold ends with its block; none outlives the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, list[_Hold]] = {}
        self._merging = Counter[str]()
        self._rewriting = Counter[str]()
        self._ended = threading.Condition(self._lock)

    def reading(self, table_uuid: str, snapshot_id: int | None) -> AbstractContextManager[None]:
        """Keep a snapshot for the block; None, of a table without one, keeps nothing."""
        return self._hold(table_uuid, snapshot_id, and_later=False)

    def building_on(self, table_uuid: str, snapshot_id: int | None) -> AbstractContextManager[None]:
        """Keep a snapshot and every later one for the block.

        For a long change: its commit looks through all that happened since the snapshot it began with.
        """
        return self._hold(table_uuid, snapshot_id, and_later=True)

    @contextmanager
    def merging(self, table_uuid: str) -> Iterator[None]:
        """Mark a table as one whose files are merged in the block, so that edits leave its files in place if they can:
        the merge can carry over deleted rows, but not files that were written again."""
        with self._lock:
            self._merging[table_uuid] += 1
            # Edits that began before may still write files again; they take a second.
            self._ended.wait_for(lambda: not self._rewriting[table_uuid], _LONGEST_EDIT_S)
        try:
            yield
        finally:
            with self._lock:
                self._merging[table_uuid] -= 1
                self._merging = +self._merging

    @contextmanager
    def rewriting(self, table_uuid: str) -> Iterator[bool]:
        """Whether files of a table may be written again in the block: a merge that begins meanwhile waits for its end,
        and while they are merged they must stay."""
        with self._lock:
            may = not self._merging[table_uuid]
            self._rewriting[table_uuid] += may
        try:
            yield may
        finally:
            with self._lock:
                self._rewriting[table_uuid] -= may
                self._rewriting = +self._rewriting
                self._ended.notify_all()

    def is_merged(self, table_uuid: str) -> bool:
        """Whether files of a table are being merged."""
        with self._lock:
            return self._merging[table_uuid] > 0

    def is_built_on(self, table_uuid: str) -> bool:
        """Whether a change in progress builds on a state of a table, whose files it may replace or delete rows of."""
        with self._lock:
            return any(hold.and_later for hold in self._tables.get(table_uuid, ()))

    def held(self, table_uuid: str) -> set[int]:
        """The snapshots named by a hold."""
        with self._lock:
            return {hold.snapshot_id for hold in self._tables.get(table_uuid, ())}

    def keeps(self, table: Table) -> dict[int, str]:
        """All of a table's snapshots that must stay because of a hold, each with the reason."""
        with self._lock:
            # Reads come last, so that a read is the reason to give if there are several.
            holds = sorted(self._tables.get(table.uuid, ()), key=lambda hold: not hold.and_later)
        in_order = [version.snapshot_id for version in history(table).versions] if holds else []
        kept: dict[int, str] = {}
        for hold in holds:
            kept[hold.snapshot_id] = BUILT_ON if hold.and_later else READ
            if hold.and_later and hold.snapshot_id in in_order:
                kept |= dict.fromkeys(in_order[in_order.index(hold.snapshot_id) :], BUILT_ON)
        return kept

    @contextmanager
    def _hold(self, table_uuid: str, snapshot_id: int | None, *, and_later: bool) -> Iterator[None]:
        if snapshot_id is None:
            yield
            return
        hold = _Hold(snapshot_id, and_later)
        with self._lock:
            self._tables.setdefault(table_uuid, []).append(hold)
        try:
            yield
        finally:
            with self._lock:
                self._tables[table_uuid].remove(hold)
                if not self._tables[table_uuid]:
                    del self._tables[table_uuid]


def snapshots_awaiting_response(ledger: Ledger, table: Table) -> dict[int, str]:
    """Snapshots whose change has not ended in the ledger, and those that a stored key's response is still made from.

    Their parents too: the rows that a change concerned are counted on the snapshot it was made on.
    """
    kept = ledger.snapshots_awaiting_response(table.uuid)
    for batch in ledger.unfinished():
        made = table.committed_by(batch.batch) if batch.table_uuid == table.uuid else None
        if made:
            kept.add(made.snapshot_id)
    kept |= {s.parent_id for s in table.snapshots() if s.snapshot_id in kept and s.parent_id is not None}
    return dict.fromkeys(kept, AWAITED)
