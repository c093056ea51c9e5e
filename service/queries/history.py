"""HISTORY: what became of a table, commit by commit, from its metadata and the ledger alone."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from service.catalog.history import history
from service.catalog.lineage import ancestors, changes_since
from service.catalog.tables import Snapshot, Table
from service.ledger.asked import Asked, asked_for
from service.ledger.ledger import Ledger
from service.names import BATCH_PROPERTY, EDIT_PROPERTY


@dataclass(frozen=True)
class Rows:
    """How many rows a commit brought, took and changed, as the commit itself says."""

    added: int = 0
    removed: int = 0
    updated: int = 0


@dataclass(frozen=True)
class Entry:
    """A snapshot, and who asked for it."""

    snapshot: Snapshot
    asked: Asked | None
    rows: Rows
    tags: tuple[str, ...]
    is_current: bool
    is_ancestor: bool
    """Whether the table's present state was built on it, as far as snapshots that are left tell; not so, where somebody
    went back behind it."""


def entries(table: Table, ledger: Ledger, limit: int, offset: int) -> list[Entry]:
    """Some of a table's snapshots, newest first."""
    page = newest_first(table.snapshots())[offset : offset + limit]
    batches = [s.summary[BATCH_PROPERTY] for s in page if BATCH_PROPERTY in s.summary]
    asked = asked_for(ledger, batches)
    tags = _tags(table)
    line = ancestors(table)
    return [
        Entry(
            snapshot,
            asked.get(snapshot.summary.get(BATCH_PROPERTY, "")),
            rows_of(snapshot),
            tuple(sorted(tags[snapshot.snapshot_id])),
            snapshot.snapshot_id == table.current_snapshot_id,
            snapshot.snapshot_id in line,
        )
        for snapshot in page
    ]


def newest_first(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Snapshots by their commits; format 1 has no sequence numbers, so there the time tells."""
    return sorted(snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms), reverse=True)


def rows_of(snapshot: Snapshot) -> Rows:
    """What a commit did to rows. Rows that it only copied into other files count for nothing where it says so."""
    said = snapshot.summary
    if snapshot.leaves_rows:
        return Rows()
    if EDIT_PROPERTY in said:
        counts = json.loads(said[EDIT_PROPERTY])
        # An UNDO tells what it brought back and what it took away again.
        came, went = counts.get("inserted", counts.get("restored", 0)), counts.get("deleted", counts.get("removed", 0))
        return Rows(came, went, counts.get("updated", 0))
    # A row that a delete file takes out is gone, too; one whose file goes with its delete file was gone before.
    by_files = snapshot.counted("added-position-deletes") - snapshot.counted("removed-position-deletes")
    return Rows(snapshot.counted("added-records"), max(0, snapshot.counted("deleted-records") + by_files))


def same_rows(table: Table, one: Snapshot, other: Snapshot) -> bool:
    """Whether all that happened between two snapshots was rewriting, under the same columns."""
    newer, older = newest_first((one, other))
    same_columns = one.schema_id == other.schema_id
    return same_columns and changes_since(table, older.snapshot_id, newer.snapshot_id) == 0


def _tags(table: Table) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for ref in history(table).refs:
        if ref.is_tag:
            found[ref.snapshot_id].append(ref.name)
    return found
