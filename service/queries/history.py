"""HISTORY: a table's commits, from its metadata and the ledger alone."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.catalog.history import history
from service.catalog.lineage import ancestors, row_changes_between
from service.catalog.tables import Snapshot, Table
from service.ledger.ledger import Ledger
from service.ledger.requests import BatchRequests, requests_by_batch
from service.model.names import BATCH_PROPERTY, EDIT_PROPERTY


@dataclass(frozen=True)
class CommitRows:
    """How many rows a commit added, removed and updated, from its own summary."""

    added: int = 0
    removed: int = 0
    updated: int = 0


@dataclass(frozen=True)
class HistoryEntry:
    """A snapshot, and the requests that made it."""

    snapshot: Snapshot
    requests: BatchRequests | None
    rows: CommitRows
    tags: tuple[str, ...]
    is_current: bool
    is_ancestor: bool
    """Whether it led to the table's current state, as far as the remaining snapshots show; not if another engine rolled
    back past it."""


def history_entries(table: Table, ledger: Ledger, page: Sequence[Snapshot]) -> list[HistoryEntry]:
    """Some of a table's snapshots, with the requests that made them."""
    batches = [s.summary[BATCH_PROPERTY] for s in page if BATCH_PROPERTY in s.summary]
    requests, tags, line = requests_by_batch(ledger, batches), _tags(table), ancestors(table)
    return [
        HistoryEntry(
            snapshot,
            requests.get(snapshot.summary.get(BATCH_PROPERTY, "")),
            commit_rows(snapshot),
            tuple(sorted(tags[snapshot.snapshot_id])),
            snapshot.snapshot_id == table.current_snapshot_id,
            snapshot.snapshot_id in line,
        )
        for snapshot in page
    ]


def newest_first(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Snapshots in the order of their commits, or of their times in format 1, which has no sequence numbers."""
    return sorted(snapshots, key=lambda s: (s.sequence_number, s.timestamp_ms, s.snapshot_id), reverse=True)


def commit_rows(snapshot: Snapshot) -> CommitRows:
    """The rows that a commit changed. Rows that it only copied do not count, if its summary shows which they are."""
    summary = snapshot.summary
    if snapshot.leaves_rows:
        return CommitRows()
    if EDIT_PROPERTY in summary:
        counts = json.loads(summary[EDIT_PROPERTY])
        # An UNDO counts restored and removed rows.
        added = counts.get("inserted", counts.get("restored", 0))
        removed = counts.get("deleted", counts.get("removed", 0)) + counts.get("replaced", 0)
        return CommitRows(added, removed, counts.get("updated", 0))
    # Delete files remove rows, too. A row whose file and delete file are removed together was removed before.
    by_files = snapshot.counted("added-position-deletes") - snapshot.counted("removed-position-deletes")
    return CommitRows(snapshot.counted("added-records"), max(0, snapshot.counted("deleted-records") + by_files))


def same_rows(table: Table, one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots hold the same rows in the same columns: only rewrites happened in between."""
    newer, older = newest_first((one, other))
    same_columns = one.schema_id == other.schema_id
    return same_columns and row_changes_between(table, older.snapshot_id, newer.snapshot_id) == 0


def _tags(table: Table) -> dict[int, list[str]]:
    tags: dict[int, list[str]] = defaultdict(list)
    for ref in history(table).refs:
        if ref.is_tag:
            tags[ref.snapshot_id].append(ref.name)
    return tags
