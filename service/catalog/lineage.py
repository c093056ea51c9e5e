"""Which commits made a table what it is, and which files each of them added and removed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from service.catalog.tables import Table, leaves_rows, summary_of
from service.catalog.translate import translated
from service.derived import Derived
from service.names import (
    BATCH_PROPERTY,
    EDIT_PROPERTY,
    KEYS_PROPERTY,
    RESERVED_COLUMN_PREFIX,
    RESTORED_PROPERTY,
)


@dataclass(frozen=True)
class Commit:
    """A commit whose snapshot is still there."""

    snapshot_id: int
    parent_id: int | None
    summary: Mapping[str, str]
    schema_id: int | None = None
    """The columns that the table had then."""

    @property
    def batch(self) -> str | None:
        return self.summary.get(BATCH_PROPERTY)

    @property
    def leaves_rows(self) -> bool:
        """Whether it left all rows as they were."""
        return leaves_rows(self.summary)

    @property
    def removes(self) -> bool:
        """Whether it may have taken files out of the table."""
        return self.summary.get("operation") != "append" and self.summary.get("deleted-data-files") != "0"

    @property
    def is_edit(self) -> bool:
        """Whether it was more than an append of records, though it may have removed nothing."""
        return any(key in self.summary for key in (EDIT_PROPERTY, RESTORED_PROPERTY))

    @property
    def restores(self) -> bool:
        """Whether it made the table hold an earlier state of it."""
        return RESTORED_PROPERTY in self.summary

    @property
    def adds_deletes(self) -> bool:
        """Whether it said of rows that they are gone by files beside them."""
        return self.summary.get("added-delete-files", "0") != "0"


@dataclass(frozen=True)
class Moved:
    """The data files that a commit added and removed, with their rows."""

    added: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)


def line(table: Table) -> list[Commit]:
    """The commits that led to what the table is, oldest first; those whose snapshots have expired are left out."""
    return [step.commit for step in _back(table, table.iceberg.metadata.current_snapshot_id)][::-1]


def ancestors(table: Table) -> frozenset[int]:
    """The present snapshot, and those that it was built on and that are still there."""
    return frozenset(commit.snapshot_id for commit in line(table))


def changes_since(table: Table, since: int, until: int | None = None) -> int | None:
    """How many commits changed rows between a snapshot and the present or a later one; None where the one was not
    built on the other, and where nobody knows, as snapshots between have expired."""
    found = 0
    for step in _back(table, table.iceberg.metadata.current_snapshot_id if until is None else until):
        if step.commit.snapshot_id == since:
            return found
        if step.parent_expired:
            return None
        found += not step.commit.leaves_rows
    return None


@dataclass(frozen=True)
class _Step:
    """A commit on the way back, and whether the snapshot that it was built on has expired."""

    commit: Commit
    parent_expired: bool


def _back(table: Table, at: int | None) -> Iterator[_Step]:
    """The commit of a snapshot and those that it was built on, newest first. Where some have expired it goes on with
    the newest before them."""
    newest_first = sorted(table.iceberg.metadata.snapshots, key=lambda s: s.sequence_number or 0, reverse=True)
    by_id = {s.snapshot_id: s for s in newest_first}
    while at is not None:
        snapshot = by_id[at]
        parent, number = snapshot.parent_snapshot_id, snapshot.sequence_number or 0
        expired = parent is not None and parent not in by_id
        yield _Step(_commit(snapshot), expired)
        before = (s.snapshot_id for s in newest_first if (s.sequence_number or 0) < number)
        at = next(before, None) if expired else parent


def oldest(table: Table) -> int | None:
    """The oldest snapshot that led to what the table is and that is still there."""
    commits = line(table)
    return commits[0].snapshot_id if commits else None


def moved(table: Table, commit: Commit) -> Moved:
    """The files that a commit added and removed: its own manifests name both."""
    added: dict[str, int] = {}
    removed: dict[str, int] = {}
    with translated():
        for manifest in _data_manifests(table, commit.snapshot_id):
            if manifest.added_snapshot_id != commit.snapshot_id:
                continue
            for path, rows, status, by in _entries(table, manifest):
                if by == commit.snapshot_id and status != ManifestEntryStatus.EXISTING:
                    (removed if status == ManifestEntryStatus.DELETED else added)[path] = rows
    return Moved(added, removed)


def added_by(table: Table, snapshot_id: int) -> tuple[int, dict[str, int]] | None:
    """The oldest snapshot that holds files of one that has expired, and those files, with their rows."""
    seen: set[str] = set()
    with translated():
        for commit in line(table):
            files: dict[str, int] = {}
            for manifest in _data_manifests(table, commit.snapshot_id):
                if manifest.manifest_path in seen:
                    continue
                seen.add(manifest.manifest_path)
                for path, rows, status, by in _entries(table, manifest):
                    if by == snapshot_id and status != ManifestEntryStatus.DELETED:
                        files[path] = rows
            if files:
                return commit.snapshot_id, files
    return None


def origins(table: Table, paths: frozenset[str]) -> dict[str, int]:
    """Of files of the current snapshot, which snapshot added each."""
    head = table.iceberg.current_snapshot()
    found: dict[str, int] = {}
    if head is None:
        return found
    with translated():
        for manifest in _data_manifests(table, head.snapshot_id):
            for path, _, status, by in _entries(table, manifest):
                if path in paths and status != ManifestEntryStatus.DELETED and by is not None:
                    found[path] = by
    return found


def columns_then(table: Table, schema_id: int) -> dict[str, str | None] | None:
    """What the columns of an earlier schema are called now, None for one that is gone; None if nobody knows it."""
    then = next((s for s in table.iceberg.metadata.schemas if s.schema_id == schema_id), None)
    if then is None:
        return None
    now = {field.field_id: field.name for field in table.iceberg.schema().fields}
    shown = (field for field in then.fields if not field.name.startswith(RESERVED_COLUMN_PREFIX))
    return {field.name: now.get(field.field_id) for field in shown}


def keys_now(table: Table, commit: Commit) -> tuple[str, ...]:
    """What the columns by which an UPSERT met rows are called now; none of another commit, or where one is gone."""
    then = columns_then(table, commit.schema_id) if commit.schema_id is not None else None
    keys = json.loads(commit.summary.get(KEYS_PROPERTY, "[]"))
    now = [then.get(key) for key in keys] if then else []
    return tuple(name for name in now if name is not None) if None not in now else ()


def derived_since(table: Table, snapshot_id: int) -> tuple[Derived, ...]:
    """Columns that are worked out and that the table did not have at a snapshot."""
    snapshot = table.iceberg.snapshot_by_id(snapshot_id)
    schema_id = None if snapshot is None else snapshot.schema_id
    then = columns_then(table, schema_id) if schema_id is not None else None
    return table.derived if then is None else tuple(d for d in table.derived if d.column not in then.values())


def required_since(table: Table) -> tuple[str, ...]:
    """Columns that must have a value and that rows of some earlier time may lack, as they were not there or could be
    null."""
    metadata = table.iceberg.metadata
    always = [{field.field_id for field in schema.fields if field.required} for schema in metadata.schemas]
    now = (field for field in table.iceberg.schema().fields if field.required)
    return tuple(field.name for field in now if any(field.field_id not in ids for ids in always))


def states_of_edits(table: Table, since_ms: int) -> Iterator[int]:
    """The snapshots that were more than appends since a time, and the state before each; newest first."""
    by_id = {s.snapshot_id: s for s in table.iceberg.metadata.snapshots}
    for commit in reversed(line(table)):
        if by_id[commit.snapshot_id].timestamp_ms < since_ms:
            return
        if commit.removes or commit.adds_deletes or commit.is_edit:
            yield commit.snapshot_id
            if commit.parent_id in by_id:
                yield commit.parent_id


def _commit(snapshot: Snapshot) -> Commit:
    return Commit(snapshot.snapshot_id, snapshot.parent_snapshot_id, summary_of(snapshot), snapshot.schema_id)


def _data_manifests(table: Table, snapshot_id: int) -> list[ManifestFile]:
    snapshot = table.iceberg.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return []
    return [m for m in snapshot.manifests(table.iceberg.io) if m.content == ManifestContent.DATA]


def _entries(table: Table, manifest: ManifestFile) -> Iterator[tuple[str, int, ManifestEntryStatus, int | None]]:
    """Path, rows and status of each data file, and the snapshot that gave it that status, or added it."""
    for entry in manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=False):
        if entry.data_file.content == DataFileContent.DATA:
            yield entry.data_file.file_path, entry.data_file.record_count, entry.status, entry.snapshot_id
