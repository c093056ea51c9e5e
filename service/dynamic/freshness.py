"""How far dynamic tables lag behind their base tables, by metadata: what changed since the snapshots they stand for."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from service.catalog.lineage import commits_between, oldest_ancestor
from service.catalog.tables import Table
from service.dynamic.graph import Graph
from service.dynamic.lag import lag_ms
from service.dynamic.refresh.pins import Bases
from service.errors import FirnError
from service.ledger.dynamic_cursors import Cursors
from service.ledger.dynamic_tables import DynamicTable
from service.model.dynamic.definition import DynamicSource
from service.model.times import now_ms


@dataclass(frozen=True)
class MissingChanges:
    """What a base table has that a dynamic table does not have yet."""

    since_ms: int | None = None
    """When the first missing change was committed; None if no row has changed."""
    rewritten: bool = False
    """Whether files were written again, or anything else was committed that changed no row."""


_NOTHING = MissingChanges()
_AT_ONCE = 8
LoadTable = Callable[[DynamicSource], Table]


@dataclass
class Freshness:
    """Compares snapshots; what it found for a base table counts until that has other metadata."""

    load: LoadTable
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[tuple[str, int | None], tuple[str, MissingChanges]] = field(default_factory=dict)

    def look(self, graph: Graph, cursors: Mapping[str, Cursors], tables: Iterable[DynamicTable]) -> "Look":
        """A look at the base tables of some dynamic tables as they are now, each loaded once."""
        return Look(self, graph, cursors, {one.uuid: one for one in graph.base_tables([t.uuid for t in tables])})

    def missing(self, table: Table, snapshot_id: int | None) -> MissingChanges:
        """What changed in a base table since a snapshot."""
        if snapshot_id == table.current_snapshot_id:
            return _NOTHING
        key, at = (table.uuid, snapshot_id), table.metadata_location
        with self._lock:
            seen = self._seen.get(key)
        if seen is not None and seen[0] == at:
            return seen[1]
        found = missing_changes(table, snapshot_id)
        with self._lock:
            self._seen = {
                known: value for known, value in self._seen.items() if known[0] != table.uuid or value[0] == at
            }
            self._seen[key] = at, found
        return found


@dataclass
class Look:
    """Base tables at one time; those that cannot be read count as unchanged, because a refresh could not read them
    either."""

    freshness: Freshness
    graph: Graph
    cursors: Mapping[str, Cursors]
    bases: Mapping[str, DynamicSource]
    _loaded: dict[str, Table | None] = field(default_factory=dict)

    def missing(self, table: DynamicTable, is_left: Callable[[DynamicTable], bool]) -> MissingChanges | None:
        """What a dynamic table lacks; None if it was never built. `is_left` says which tables are not refreshed: what
        depends on one of them is read at the same state of their base tables."""
        own = self.cursors.get(table.uuid)
        if own is None:
            return None
        fixed: dict[str, int | None] = {}
        for source in self.graph.upstream([table.uuid]):
            if source.uuid != table.uuid and is_left(source) and source.uuid in self.cursors:
                fixed |= self.cursors[source.uuid].snapshots
        found = [
            self._missing(uuid, snapshot_id)
            for uuid, snapshot_id in own.snapshots.items()
            if uuid in self.bases and uuid not in fixed
        ]
        since = [one.since_ms for one in found if one.since_ms is not None]
        return MissingChanges(min(since, default=None), any(one.rewritten for one in found))

    def lag_ms(self, table: DynamicTable, now_ms: int) -> int | None:
        """How far a dynamic table lags behind all its base tables; None if it was never built."""
        own = self.cursors.get(table.uuid)
        if own is None:
            return None
        found = (self._missing(uuid, at) for uuid, at in own.snapshots.items() if uuid in self.bases)
        return lag_ms((one.since_ms for one in found), now_ms)

    def load(self) -> None:
        """Load all base tables side by side, for a request that waits for them."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            self._loaded = dict(zip(self.bases, pool.map(self._load, self.bases.values()), strict=True))

    def _load(self, base: DynamicSource) -> Table | None:
        try:
            return self.freshness.load(base)
        except FirnError:
            return None

    def _missing(self, uuid: str, snapshot_id: int | None) -> MissingChanges:
        if uuid not in self._loaded:
            self._loaded[uuid] = self._load(self.bases[uuid])
        table = self._loaded[uuid]
        return _NOTHING if table is None else self.freshness.missing(table, snapshot_id)


def lag_behind(bases: Bases, tables: Mapping[str, Table]) -> int:
    """How far rows that stand for snapshots of base tables lag behind these tables now."""
    now = ((tables.get(uuid), base.snapshot_id) for uuid, base in bases.items())
    return lag_ms((missing_changes(table, at).since_ms for table, at in now if table is not None), now_ms())


def missing_changes(table: Table, snapshot_id: int | None) -> MissingChanges:
    """What changed in a table since a snapshot, by the summaries of its commits."""
    at = table.iceberg.snapshot_by_id
    commits = commits_between(table, snapshot_id)
    if commits is None:  # it was rolled back, or what came in between has expired
        is_known = snapshot_id is not None and at(snapshot_id) is not None
        first = table.current_snapshot_id if is_known else oldest_ancestor(table)
        found = None if first is None else at(first)
        return MissingChanges(found.timestamp_ms if found else None)
    changes = [commit for commit in commits if not commit.leaves_rows]
    if not changes:
        return MissingChanges(rewritten=bool(commits))
    oldest = at(changes[-1].snapshot_id)
    return MissingChanges(oldest.timestamp_ms if oldest else None)
