"""Snapshots that must not expire while somebody in this process works with them."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.catalog.history import history
from service.catalog.tables import Table
from service.ledger.ledger import Ledger

READ = "a query or a stream reads it"
BUILT_ON = "a change that is under way builds on it"
AWAITED = "a change that made it, or was made on it, has no end noted or no answer stored yet"


@dataclass(frozen=True)
class _Hold:
    snapshot_id: int
    and_later: bool


class SnapshotHolds:
    """What is being read or built upon now, by table UUID. A hold ends with its block; none outlives the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._tables: dict[str, dict[int, _Hold]] = {}

    @contextmanager
    def reading(self, table_uuid: str, snapshot_id: int | None) -> Iterator[None]:
        """Keep a snapshot for the block; None, of a table without one, keeps nothing."""
        with self._hold(table_uuid, snapshot_id, and_later=False):
            yield

    @contextmanager
    def building_on(self, table_uuid: str, snapshot_id: int | None) -> Iterator[None]:
        """Keep a snapshot and every later one for the block.

        For a long change: its commit looks through all that happened since the snapshot it began with.
        """
        with self._hold(table_uuid, snapshot_id, and_later=True):
            yield

    def held(self, table_uuid: str) -> set[int]:
        """The snapshots named by a hold."""
        with self._lock:
            return {hold.snapshot_id for hold in self._tables.get(table_uuid, {}).values()}

    def keeps(self, table: Table) -> dict[int, str]:
        """All of a table's snapshots that must stay because of a hold, each with what it is held for."""
        with self._lock:
            holds = list(self._tables.get(table.uuid, {}).values())
        if not holds:
            return {}
        in_order = [version.snapshot_id for version in history(table).versions]
        kept: dict[int, str] = {}
        for hold in holds:
            if hold.and_later and hold.snapshot_id in in_order:
                kept |= dict.fromkeys(in_order[in_order.index(hold.snapshot_id) :], BUILT_ON)
        # A snapshot that is read is held for that, whatever else it is held for.
        return kept | {
            hold.snapshot_id: BUILT_ON if hold.and_later else READ for hold in sorted(holds, key=_reads_last)
        }

    @contextmanager
    def _hold(self, table_uuid: str, snapshot_id: int | None, *, and_later: bool) -> Iterator[None]:
        if snapshot_id is None:
            yield
            return
        number = next(self._numbers)
        with self._lock:
            self._tables.setdefault(table_uuid, {})[number] = _Hold(snapshot_id, and_later)
        try:
            yield
        finally:
            with self._lock:
                left = self._tables[table_uuid]
                del left[number]
                if not left:
                    del self._tables[table_uuid]


def _reads_last(hold: _Hold) -> bool:
    return not hold.and_later


def awaited_snapshots(ledger: Ledger, table: Table) -> dict[int, str]:
    """Snapshots whose change has no noted end yet, and those that answers by key are still to be made from.

    Their parents too: rows that a change concerned are counted on what it was made on.
    """
    kept = ledger.awaited_snapshots(table.uuid)
    for begun in ledger.unfinished():
        made = table.committed_by(begun.batch) if begun.table_uuid == table.uuid else None
        if made:
            kept.add(made.snapshot_id)
    kept |= {s.parent_id for s in table.snapshots() if s.snapshot_id in kept and s.parent_id is not None}
    return dict.fromkeys(kept, AWAITED)
