"""What the rows of a dynamic table stand for that a query reads, and the states of tables in a pass."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.catalog.tables import Table
from service.dynamic.definitions import Definitions
from service.dynamic.freshness import Freshness
from service.dynamic.lag import lag_ms
from service.dynamic.refresh.pins import known_result, newest_state
from service.errors import FirnError, SnapshotNotFound
from service.ledger.dynamic_cursors import CursorRecords
from service.ledger.dynamic_tables import DynamicTable, RefreshFilter
from service.model.dynamic.definition import DynamicSource, is_dynamic_table
from service.model.dynamic.state import SourceState
from service.model.identity.principal import Principal
from service.model.names import TableName
from service.model.times import now_ms


@dataclass(frozen=True)
class DynamicRead:
    """The state of a dynamic table that a query has read."""

    table: TableName
    pass_id: str
    refreshed_ms: int
    """The time for which its rows are right."""
    sources: tuple[SourceState, ...]
    lag_ms: int | None = None
    """The age of the oldest change of its base tables that it lacks, 0 if it lacks none; None for a state of the past,
    and if a base table cannot be read."""


@dataclass(frozen=True)
class DynamicReads:
    """Says what queries over dynamic tables have read; by metadata."""

    definitions: Definitions
    cursors: CursorRecords
    freshness: Freshness

    def of(self, table: Table, snapshot_id: int | None) -> DynamicRead | None:
        """What a table's rows at a snapshot, or now, stand for; None if it is not a dynamic one, or was not built."""
        if not is_dynamic_table(table.properties):
            return None
        read_id = table.current_snapshot_id if snapshot_id is None else snapshot_id
        found = None if read_id is None else newest_state(table, read_id)
        if found is None:
            return None
        _, state = found
        if read_id != table.current_snapshot_id:
            return DynamicRead(table.name, state.pass_id, state.refreshed_ms, state.sources)
        known = self.definitions.records.find(table.uuid)
        refreshed_ms = max(state.refreshed_ms, (known and known.refreshed_ms) or 0)
        return DynamicRead(table.name, state.pass_id, refreshed_ms, state.sources, self._lag_ms(table))

    def lags_ms(self, tables: Sequence[DynamicTable]) -> dict[str, int | None]:
        """How far dynamic tables lag behind their base tables, by UUID; None for one that was never built."""
        look, at = self.freshness.look(self.definitions.graph(), self.cursors.all(), tables), now_ms()
        look.load()
        return {one.uuid: look.lag_ms(one, at) for one in tables}

    def in_pass(self, tenant: str, pass_id: str, principal: Principal) -> dict[str, int | None]:
        """The snapshots of a pass, by UUID: those that its refreshes made, and those that they read.

        Refreshes of tables that the principal may not read do not count.
        """
        found: dict[str, int | None] = {}
        for one in self.definitions.records.refreshes(tenant, RefreshFilter(pass_id=pass_id)):
            if one.state == "done" and principal.may("reader", tenant, one.table.namespace):
                found |= {source.uuid: source.snapshot_id for source in one.sources if source.uuid not in found}
                found[one.table_uuid] = one.snapshot_id
        if not found:
            raise SnapshotNotFound(
                f"as_of: no dynamic table was refreshed by a pass {pass_id[:80]!r}; REFRESH_HISTORY lists the passes",
                field="as_of",
            )
        return found

    def _lag_ms(self, table: Table) -> int | None:
        known, at = known_result(table, self.cursors.of(table.uuid)), now_ms()
        if known.state is None:
            return None
        since = []
        for base in known.bases.values():
            name = TableName(table.name.tenant, base.namespace, base.table)
            try:
                now = self.freshness.load(DynamicSource(name, base.uuid, base.table))
            except FirnError:
                return None
            since.append(self.freshness.missing(now, base.snapshot_id).since_ms)
        return lag_ms(since, at)
