"""Which states of a table UNDO needs."""

import itertools
import time
from dataclasses import dataclass

from service.catalog.lineage import edit_states
from service.catalog.tables import Table
from service.model.properties import edit_policy
from service.settings import EditSettings

_HOUR_MS = 3_600_000
# Every commit pays for the snapshots that there are.
MOST = 100
REASON = "UNDO may need it"


@dataclass(frozen=True)
class UndoStates:
    """Keeps the states before and after changes, as long as they can be undone."""

    settings: EditSettings

    def keeps(self, table: Table) -> dict[int, str]:
        """The newest of them, each with the reason why it stays."""
        hours = edit_policy(table.properties, self.settings).undo_retention_hours
        since_ms = time.time_ns() // 1_000_000 - hours * _HOUR_MS
        states = dict.fromkeys(edit_states(table, since_ms), REASON) if hours else {}
        return dict(itertools.islice(states.items(), MOST))
