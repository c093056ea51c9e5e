"""The snapshots that dynamic tables need, so that they do not expire."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from service.catalog.history import history
from service.catalog.tables import Table
from service.dynamic.refresh.pins import newest_state
from service.ledger.dynamic_cursors import CursorRecords
from service.model.dynamic.definition import is_dynamic_table
from service.model.times import HOUR_MS, now_ms

_STATE = "it says which snapshots of its sources the rows of this dynamic table stand for"


@dataclass(frozen=True)
class NeededByDynamicTables:
    """Keeps the snapshots of sources from which dynamic tables compute their next change, for some hours after a later
    one took their place. Without them the next refresh is in full.
    """

    cursors: CursorRecords
    hours: int
    now_ms: Callable[[], int] = now_ms

    def __call__(self, table: Table) -> dict[int, str]:
        kept: dict[int, str] = {}
        needed = self.cursors.needed(table.uuid)
        versions = history(table).versions if needed else ()
        replaced_ms = {one.snapshot_id: later.timestamp_ms for one, later in pairwise(versions)}
        known, since_ms = {one.snapshot_id for one in versions}, self.now_ms() - self.hours * HOUR_MS
        for one in needed:
            at = one.snapshot_id
            if at in known and replaced_ms.get(at, since_ms) >= since_ms and at not in kept:
                name = f"{one.table.namespace}.{one.table.table}"
                kept[at] = f"the dynamic table {name} needs it for its next refresh"
        found = newest_state(table) if is_dynamic_table(table.properties) else None
        return kept if found is None else kept | {found[0]: _STATE}
