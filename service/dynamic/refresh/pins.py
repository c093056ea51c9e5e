"""The snapshots that a refresh reads: one of each base table, also behind the dynamic tables among its sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from service.catalog.lineage import ancestors, newest_first, row_changes_between
from service.catalog.tables import Table
from service.errors import RefreshHeldBack
from service.ledger.dynamic_cursors import Cursors
from service.model.dynamic.state import RefreshState, SourceState, state_of

Bases = Mapping[str, SourceState]
"""Base tables at the snapshots that are read, by their UUIDs."""


class SourcesDisagree(RefreshHeldBack):
    """The sources of a dynamic table stand for different states of a base table, so that they cannot be read together.

    It lasts as long as one of them is not refreshed with the others.
    """


@dataclass(frozen=True)
class PinnedSource:
    """A source at the snapshot that is read."""

    table: Table
    snapshot_id: int | None
    bases: "Bases | None" = None
    """For a dynamic table, the base tables at the snapshots that its rows stand for; None for a base table."""
    as_of_ms: int | None = None
    """For a dynamic table, the time for which its rows are right."""

    @property
    def is_base(self) -> bool:
        return self.bases is None

    @property
    def state(self) -> SourceState:
        name = self.table.name
        return SourceState(
            name.namespace, name.table, self.table.uuid, self.snapshot_id, self.is_base, self.table.schema_id
        )


@dataclass(frozen=True)
class KnownResult:
    """What the rows of a dynamic table stand for."""

    state: RefreshState | None
    """None if it was not built yet, or if others have changed its rows."""
    snapshots: Mapping[str, int | None] = field(default_factory=dict)
    """By UUID, of all sources and base tables: those of the state, or later ones for which the rows are right, too."""

    @property
    def bases(self) -> Bases:
        """The base tables alone."""
        assert self.state is not None
        return {one.uuid: replace(one, snapshot_id=self.snapshots[one.uuid]) for one in self.state.all if one.is_base}


def known_result(table: Table, cursors: Cursors | None) -> KnownResult:
    """What a result stands for, by its own snapshots, and what the ledger knows of later snapshots of its sources."""
    found = newest_state(table)
    return KnownResult(None) if found is None else _known(found[1], cursors)


def newest_state(table: Table, at: int | None = None) -> tuple[int, RefreshState] | None:
    """What the rows of a result stand for, now or at a snapshot, and the snapshot that says so; None if it was not
    built yet, or if others have changed its rows."""
    for commit in newest_first(table, at):
        state = state_of(commit.summary)
        if state is not None:
            return commit.snapshot_id, state
        if not commit.leaves_rows:
            break
    return None


def last_known_result(table: Table, cursors: Cursors | None) -> KnownResult:
    """What a result stood for at its last refresh, whatever others have done to its rows since."""
    states = (state_of(commit.summary) for commit in newest_first(table))
    state = next((one for one in states if one is not None), None)
    return KnownResult(None) if state is None else _known(state, cursors)


def _known(state: RefreshState, cursors: Cursors | None) -> KnownResult:
    later = cursors.snapshots if cursors is not None and cursors.pass_id == state.pass_id else {}
    return KnownResult(state, {uuid: later.get(uuid, at) for uuid, at in state.snapshots.items()})


def same_rows(table: Table, one: int | None, other: int | None) -> bool:
    """Whether two snapshots have the same rows: one is the other, or only rewrites lie between them."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    has = table.iceberg.snapshot_by_id
    if has(one) is None or has(other) is None:
        return False
    return row_changes_between(table, one, other) == 0 or row_changes_between(table, other, one) == 0


def is_later(table: Table, one: int | None, other: int | None) -> bool:
    """Whether a snapshot has rows that were committed after another one, in the history that the table has now."""
    if one is None or one == other or table.iceberg.snapshot_by_id(one) is None:
        return False
    if one not in ancestors(table):
        return False
    return (other is None or other in ancestors(table, one)) and not same_rows(table, one, other)


def agreed_bases(sources: Sequence[PinnedSource], pinned: Mapping[str, Table]) -> dict[str, SourceState]:
    """The base tables behind some sources, each at one snapshot; `pinned` are those that the pass has pinned.

    A base table that a dynamic source stands for is read at the same snapshot, so that they agree. Raises
    SourcesDisagree if two dynamic sources stand for different rows of a base table, or if its snapshot has expired.
    """
    found: dict[str, SourceState] = {}
    whose: dict[str, PinnedSource] = {}
    for source in sources:
        for uuid, base in (source.bases or {}).items():
            table = pinned.get(uuid)
            if uuid not in found:
                found[uuid], whose[uuid] = _newest(table, base), source
            elif not _agree(table, found[uuid].snapshot_id, base.snapshot_id):
                one, other = whose[uuid].table.name.table, source.table.name.table
                raise SourcesDisagree(
                    f"{one} and {other} stand for different states of {base.table}, so they cannot be read together; "
                    "refresh both of them, or resume the one that is suspended"
                )
    for source in sources:
        if source.is_base:
            known = found.setdefault(source.table.uuid, source.state).snapshot_id
            if known is not None and source.table.iceberg.snapshot_by_id(known) is None:
                raise SourcesDisagree(
                    f"{whose[source.table.uuid].table.name.table} stands for a state of {source.table.name.table} that "
                    "has expired, so they cannot be read together; resume or refresh it"
                )
    return found


def _agree(table: Table | None, one: int | None, other: int | None) -> bool:
    return one == other or (table is not None and same_rows(table, one, other))


def _newest(table: Table | None, base: SourceState) -> SourceState:
    """The snapshot that the pass has pinned, if it has the same rows."""
    if table is not None and same_rows(table, base.snapshot_id, table.current_snapshot_id):
        return replace(base, snapshot_id=table.current_snapshot_id, schema_id=table.schema_id)
    return base
