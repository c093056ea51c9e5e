"""What a batch with edits changes: the rows with its keys are found, and its requests applied to them in order."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.catalog.files.key_lookup import KeyHits, find_keys, read_files
from service.catalog.tables import Table
from service.engine.jobs.append import SharedReplacement
from service.engine.session.rows import arrow_schema, to_arrow
from service.errors import FirnError
from service.model.keyed.apply import AppliedChange, AppliedChanges, apply_changes
from service.model.keyed.changes import AddRows, KeyedChange, PutRows
from service.model.keyed.records import RequestPart
from service.model.names import EDIT_PROPERTY, KEYS_PROPERTY
from service.settings.kinds import RowLevel
from service.writes.entry import PendingWrite
from service.writes.keyed.contents import FileContents, ReadFiles
from service.writes.keyed.cost import choose_files
from service.writes.keyed.edit import PendingEdit
from service.writes.queue import Pending


@dataclass(frozen=True)
class KeyFiles:
    """How the rows of a table are found and read; a test can pass others."""

    find: Callable[[Table, Sequence[pa.Table]], KeyHits] = find_keys
    read: ReadFiles = read_files


@dataclass(frozen=True)
class SharedPlan:
    """The requests of a batch that share its commit, and what each does."""

    entries: list[Pending]
    parts: list[RequestPart]
    applied: AppliedChanges
    what: SharedReplacement
    refused: list[tuple[Pending, FirnError]] = field(default_factory=list)
    alone: list[PendingEdit] = field(default_factory=list)
    """Those that need a commit of their own."""

    @property
    def changing(self) -> list[int]:
        """The positions of the requests that change rows: the commit is theirs."""
        return [i for i, part in enumerate(self.parts) if part.counts.changes_rows]


def plan_batch(
    table: Table, entries: Sequence[Pending], files: KeyFiles, row_level: RowLevel, *, merges: bool = True
) -> SharedPlan:
    """Plan a batch on the table as it is now. `merges` says whether it may merge small files with it.

    Raises UnreadableFile or TooManyRows if the rows of its edits are better found by Spark.
    """
    refused, alone = _fitted(table, entries)
    entries = [e for e in entries if e not in alone and all(e is not other for other, _ in refused)]
    changes = [_change(table, entry) for entry in entries]
    hits = files.find(table, _lookups(changes))
    edits = [(e, c) for e, c in zip(entries, changes, strict=True) if isinstance(e, PendingEdit)]
    touched = [hits.files_of(keys) if (keys := change.keys) is not None else frozenset() for _, change in edits]
    mode = row_level if hits.deletes_by_place else "copy_on_write"
    choice = choose_files(mode, touched, hits, merges=merges)
    alone += [edit for (edit, _), shares in zip(edits, choice.shares, strict=True) if not shares]
    together = [(e, c) for e, c in zip(entries, changes, strict=True) if e not in alone]

    contents = FileContents.read(table, hits, choice, files.read)
    applied = apply_changes(arrow_schema(table.schema), contents.found, [change for _, change in together])
    refused += [(e, r) for (e, _), one in zip(together, applied.changes, strict=True) if (r := one.refusal)]
    kept = [(e, c, one) for (e, c), one in zip(together, applied.changes, strict=True) if one.refusal is None]
    parts = [_part(entry, one, hits) for entry, _, one in kept]
    done = AppliedChanges(tuple(one for *_, one in kept), applied.pool, applied.gone, applied.new)
    what = contents.replacement(table, done, _summary([change for _, change, _ in kept], parts, hits))
    return SharedPlan([entry for entry, *_ in kept], parts, done, what, refused, alone)


def _fitted(table: Table, entries: Sequence[Pending]) -> tuple[list[tuple[Pending, FirnError]], list[PendingEdit]]:
    """Check edits again if the table's properties or partitioning are not what they were; returns those that are
    refused now, and those that cannot share a commit any more."""
    refused: list[tuple[Pending, FirnError]] = []
    alone: list[PendingEdit] = []
    for entry in entries:
        seen = entry.table
        if isinstance(entry, PendingEdit) and seen is not None:
            if (seen.properties, seen.partition) == (table.properties, table.partition):
                continue
            try:
                if not entry.fit(table):
                    alone.append(entry)
            except FirnError as e:
                refused.append((entry, e))
    return refused, alone


def _change(table: Table, entry: Pending) -> KeyedChange:
    if isinstance(entry, PendingWrite):
        rows = entry.columns
        return AddRows(to_arrow(table.schema, rows) if isinstance(rows, dict) else rows)
    assert entry.change is not None
    return entry.change


def _lookups(changes: Sequence[KeyedChange]) -> list[pa.Table]:
    """The keys of all changes, those of the same columns together."""
    by_columns: dict[tuple[str, ...], list[pa.Table]] = {}
    for change in changes:
        if (keys := change.keys) is not None:
            schema = pa.schema([pa.field(column.name, column.type) for column in keys.schema])
            by_columns.setdefault(tuple(keys.column_names), []).append(keys.cast(schema))
    return [pa.concat_tables(parts) for parts in by_columns.values()]


def _part(entry: Pending, one: AppliedChange, hits: KeyHits) -> RequestPart:
    touched = [hits.files[path] for path in one.files]
    key = entry.call.key.id if entry.call.key else None
    groups = {file.group for file in touched}
    scanned = hits.scanned_files if entry.is_edit else 0
    return RequestPart(entry.operation, one.counts, len(touched), len(groups), scanned, key)


def _summary(changes: Sequence[KeyedChange], parts: Sequence[RequestPart], hits: KeyHits) -> dict[str, str]:
    """The counts of the whole batch, and the keys of its UPSERTs."""
    counts: dict[str, Any] = {
        name: sum(getattr(part.counts, name) for part in parts)
        for name in ("inserted", "updated", "unchanged", "deleted")
    }
    summary = {EDIT_PROPERTY: json.dumps({**counts, "scanned_files": hits.scanned_files})}
    keys = next((change.how.keys for change in changes if isinstance(change, PutRows)), None)
    return summary if keys is None else {**summary, KEYS_PROPERTY: json.dumps(keys)}
