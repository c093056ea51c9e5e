"""The snapshots that a refresh reads: one of each base table, also behind the dynamic tables among its sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.catalog.lineage import ancestors, lineage, row_changes_between
from service.catalog.tables import Table
from service.errors import CommitConflict
from service.ledger.dynamic_cursors import Cursors
from service.model.dynamic.state import RefreshState, SourceState, state_of

Snapshots = Mapping[str, int | None]
"""Snapshots by the UUIDs of their tables; None for a table without one."""


class SourcesDisagree(CommitConflict):
    """The sources of a dynamic table stand for different states of a base table, so that they cannot be read together.

    It lasts as long as one of them is not refreshed with the others.
    """


@dataclass(frozen=True)
class PinnedSource:
    """A source at the snapshot that is read."""

    table: Table
    snapshot_id: int | None
    bases: Snapshots | None = None
    """For a dynamic table, the snapshots of the base tables that its rows stand for; None for a base table."""

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
    snapshots: Snapshots = field(default_factory=dict)
    """Of all sources and base tables: those of the state, or later ones for which the rows are right, too."""

    @property
    def bases(self) -> Snapshots:
        """The snapshots of base tables alone."""
        assert self.state is not None
        return {one.uuid: self.snapshots[one.uuid] for one in self.state.all if one.is_base}


def known_result(table: Table, cursors: Cursors | None) -> KnownResult:
    """What a result stands for, by its own snapshots, and what the ledger knows of later snapshots of its sources."""
    for commit in reversed(lineage(table)):
        state = state_of(commit.summary)
        if state is not None:
            current = cursors is not None and cursors.pass_id == state.pass_id
            known = cursors.snapshots if cursors is not None and current else {}
            return KnownResult(state, {uuid: known.get(uuid, at) for uuid, at in state.snapshots.items()})
        if not commit.leaves_rows:
            break
    return KnownResult(None)


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


def agreed_bases(sources: Sequence[PinnedSource], pinned: Mapping[str, Table]) -> dict[str, int | None]:
    """The snapshot of each base table behind the sources; `pinned` are the base tables as the pass has pinned them.

    A base table that a dynamic source stands for is read at the same snapshot, so that they agree. Raises
    SourcesDisagree if two dynamic sources stand for different rows of a base table, or if its snapshot has expired.
    """
    found: dict[str, int | None] = {}
    whose: dict[str, PinnedSource] = {}
    for source in sources:
        for uuid, snapshot_id in (source.bases or {}).items():
            table = pinned.get(uuid)
            if uuid not in found:
                found[uuid], whose[uuid] = _newest(table, snapshot_id), source
            elif table is None or not same_rows(table, found[uuid], snapshot_id):
                one, other = whose[uuid].table.name.table, source.table.name.table
                base = uuid if table is None else table.name.table
                raise SourcesDisagree(
                    f"{one} and {other} stand for different states of {base}, so they cannot be read together; "
                    "refresh both of them, or resume the one that is suspended"
                )
    for source in sources:
        uuid = source.table.uuid
        if not source.is_base:
            continue
        if uuid not in found:
            found[uuid] = source.snapshot_id
        elif found[uuid] is not None and source.table.iceberg.snapshot_by_id(found[uuid] or 0) is None:
            raise SourcesDisagree(
                f"{whose[uuid].table.name.table} stands for a state of {source.table.name.table} that has expired, so "
                "they cannot be read together; resume or refresh it"
            )
    return found


def _newest(table: Table | None, snapshot_id: int | None) -> int | None:
    """The snapshot that the pass has pinned, if it has the same rows."""
    if table is not None and same_rows(table, snapshot_id, table.current_snapshot_id):
        return table.current_snapshot_id
    return snapshot_id
