"""The snapshots that dynamic tables need, so that they do not expire."""

from dataclasses import dataclass

from service.catalog.lineage import lineage
from service.catalog.tables import Table
from service.ledger.dynamic_cursors import CursorRecords
from service.model.dynamic.definition import is_dynamic_table
from service.model.dynamic.state import state_of
from service.model.times import HOUR_MS, now_ms

_STATE = "it says which snapshots of its sources the rows of this dynamic table stand for"


@dataclass(frozen=True)
class NeededByDynamicTables:
    """Keeps the snapshots of sources from which dynamic tables compute their next change, up to an age.

    Without them the next refresh is in full.
    """

    cursors: CursorRecords
    hours: int

    def __call__(self, table: Table) -> dict[int, str]:
        kept: dict[int, str] = {}
        young = now_ms() - self.hours * HOUR_MS
        for needed in self.cursors.needed(table.uuid):
            found = table.iceberg.snapshot_by_id(needed.snapshot_id)
            if found is not None and found.timestamp_ms >= young and needed.snapshot_id not in kept:
                name = f"{needed.table.namespace}.{needed.table.table}"
                kept[needed.snapshot_id] = f"the dynamic table {name} needs it for its next refresh"
        return kept | _with_state(table)


def _with_state(table: Table) -> dict[int, str]:
    """The snapshot of a dynamic table that has its state."""
    if not is_dynamic_table(table.properties):
        return {}
    for commit in reversed(lineage(table)):
        if state_of(commit.summary) is not None:
            return {commit.snapshot_id: _STATE}
        if not commit.leaves_rows:
            break
    return {}
