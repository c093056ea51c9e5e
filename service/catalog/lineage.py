"""The commits that led to a table's current state, and the files that each of them added and removed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile

from service.catalog.files.data_files import is_readable, manifests_of
from service.catalog.files.manifests import DeleteEntry, delete_entries
from service.catalog.tables import Table, leaves_rows, summary_of
from service.catalog.translate import translated
from service.model.names import BATCH_PROPERTY, EDIT_PROPERTY, KEYS_PROPERTY, RESERVED_COLUMN_PREFIX, RESTORED_PROPERTY
from service.model.schema.derived import DerivedColumn


@dataclass(frozen=True)
class Commit:
    """A commit whose snapshot has not expired."""

    snapshot_id: int
    parent_id: int | None
    summary: Mapping[str, str]
    schema_id: int | None = None
    """The table's schema at that time."""

    @property
    def batch(self) -> str | None:
        return self.summary.get(BATCH_PROPERTY)

    @property
    def leaves_rows(self) -> bool:
        """Whether it left all rows as they were."""
        return leaves_rows(self.summary)

    @property
    def rewrites(self) -> bool:
        """Whether it only wrote rows again, into other files."""
        return self.summary.get("operation") == "replace"

    @property
    def removes(self) -> bool:
        """Whether it may have removed files from the table."""
        return self.summary.get("operation") != "append" and self.summary.get("deleted-data-files") != "0"

    @property
    def only_appends(self) -> bool:
        """Whether it only added rows."""
        return self.summary.get("operation") == "append"

    @property
    def is_edit(self) -> bool:
        """Whether it was an edit and not an append, even if it removed nothing."""
        return any(key in self.summary for key in (EDIT_PROPERTY, RESTORED_PROPERTY))

    @property
    def restores(self) -> bool:
        """Whether it restored an earlier state of the table."""
        return RESTORED_PROPERTY in self.summary

    @property
    def adds_deletes(self) -> bool:
        """Whether it deleted rows by delete files."""
        return self.summary.get("added-delete-files", "0") != "0"


@dataclass(frozen=True)
class DeletedRows:
    """The delete files of a data file that a commit added, and those that they replace."""

    added: tuple[str, ...]
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileChanges:
    """The data files that a commit added and removed, with their row counts, and those that it deleted rows of."""

    added: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, DeletedRows] = field(default_factory=dict)
    """Data files that got delete files of their own, and are still there."""

    @property
    def takes_rows(self) -> bool:
        """Whether it removed rows from files, or whole files."""
        return bool(self.removed or self.deleted)

    @property
    def touched(self) -> frozenset[str]:
        """The files that it removed, or removed rows from."""
        return frozenset(self.removed.keys() | self.deleted.keys())


def lineage(table: Table, at: int | None = None) -> list[Commit]:
    """The commits that led to the table's current state, or to another snapshot, oldest first, without those whose
    snapshots have expired."""
    return [*newest_first(table, at)][::-1]


def newest_first(table: Table, at: int | None = None) -> Iterator[Commit]:
    """The same, newest first, for callers that seldom need all of them."""
    start = table.iceberg.metadata.current_snapshot_id if at is None else at
    return (commit for commit, _ in _back(table, start))


def ancestors(table: Table, at: int | None = None) -> frozenset[int]:
    """The current snapshot, or another one, and its ancestors that have not expired."""
    return frozenset(commit.snapshot_id for commit in lineage(table, at))


def row_changes_between(table: Table, since: int, until: int | None = None) -> int | None:
    """How many commits changed rows after a snapshot, up to the current or a later one.

    None if the snapshot is not an ancestor, and if snapshots in between have expired.
    """
    commits = commits_between(table, since, until)
    return None if commits is None else sum(not commit.leaves_rows for commit in commits)


def commits_between(table: Table, since: int | None, until: int | None = None) -> list[Commit] | None:
    """The commits after a snapshot, up to the current or a later one, newest first. Since None, all of them.

    None if the snapshot is not an ancestor, and if snapshots in between have expired.
    """
    found: list[Commit] = []
    for commit, parent_expired in _back(table, table.iceberg.metadata.current_snapshot_id if until is None else until):
        if commit.snapshot_id == since:
            return found
        if parent_expired:
            return None
        found.append(commit)
    return found if since is None else None


def _back(table: Table, at: int | None) -> Iterator[tuple[Commit, bool]]:
    """The commits of a snapshot and its ancestors, newest first, each with whether its parent snapshot has expired.

    After an expired parent follow those of the newest snapshot before it.
    """
    newest_first = sorted(table.iceberg.metadata.snapshots, key=lambda s: s.sequence_number or 0, reverse=True)
    by_id = {s.snapshot_id: s for s in newest_first}
    while at is not None:
        snapshot = by_id[at]
        parent, number = snapshot.parent_snapshot_id, snapshot.sequence_number or 0
        expired = parent is not None and parent not in by_id
        yield Commit(at, parent, summary_of(snapshot), snapshot.schema_id), expired
        before = (s.snapshot_id for s in newest_first if (s.sequence_number or 0) < number)
        at = next(before, None) if expired else parent


def last_change_ms(table: Table) -> int | None:
    """When the rows of the current state last changed, as far as its snapshots show; None before the first write."""
    commits = lineage(table)[::-1]
    if not commits:
        return None
    changed = next((commit for commit in commits if not leaves_rows(commit.summary)), commits[-1])
    found = table.iceberg.snapshot_by_id(changed.snapshot_id)
    return found.timestamp_ms if found else None


def oldest_ancestor(table: Table) -> int | None:
    """The oldest ancestor of the current snapshot that has not expired."""
    commits = lineage(table)
    return commits[0].snapshot_id if commits else None


def file_changes(table: Table, commit: Commit) -> FileChanges:
    """The files that a commit added and removed, and what it deleted in others; its own manifests list all of it."""
    added: dict[str, int] = {}
    removed: dict[str, int] = {}
    came, went = dict[str, list[str]](), dict[str, list[str]]()
    with translated():
        for manifest in _manifests(table, commit.snapshot_id):
            if manifest.added_snapshot_id != commit.snapshot_id:
                continue
            if manifest.content == ManifestContent.DELETES:
                for one in _deletes_of(table, manifest, commit):
                    if one.applies_to is not None and is_readable(one.path):
                        side = went if one.status == ManifestEntryStatus.DELETED else came
                        side.setdefault(one.applies_to, []).append(one.path)
                continue
            for path, rows, status, by in _entries(table, manifest):
                if by == commit.snapshot_id and status != ManifestEntryStatus.EXISTING:
                    (removed if status == ManifestEntryStatus.DELETED else added)[path] = rows
    deleted = {
        path: DeletedRows(tuple(some), tuple(went.get(path, ()))) for path, some in came.items() if path not in removed
    }
    return FileChanges(added, removed, deleted)


def surviving_files(table: Table, snapshot_id: int) -> tuple[int, dict[str, int]] | None:
    """The oldest snapshot that holds files of an expired one, and those files with their row counts."""
    seen: set[str] = set()
    with translated():
        for commit in lineage(table):
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


def files_by_snapshot(table: Table, paths: frozenset[str]) -> dict[str, int]:
    """For each of these files of the current snapshot, the snapshot that added it."""
    with translated():
        return {
            path: by
            for manifest in _data_manifests(table, table.current_snapshot_id)
            for path, _, status, by in _entries(table, manifest)
            if path in paths and status != ManifestEntryStatus.DELETED and by is not None
        }


def current_names(table: Table, schema_id: int) -> dict[str, str | None] | None:
    """The current name of each column of an earlier schema, None for a dropped one; None if the schema is unknown."""
    then = next((s for s in table.iceberg.metadata.schemas if s.schema_id == schema_id), None)
    if then is None:
        return None
    now = {field.field_id: field.name for field in table.iceberg.schema().fields}
    shown = (field for field in then.fields if not field.name.startswith(RESERVED_COLUMN_PREFIX))
    return {field.name: now.get(field.field_id) for field in shown}


def upsert_key_columns(table: Table, commit: Commit) -> tuple[str, ...]:
    """The current names of the key columns of an UPSERT's commit; empty for another commit, or if one was dropped."""
    then = current_names(table, commit.schema_id) if commit.schema_id is not None else None
    keys = json.loads(commit.summary.get(KEYS_PROPERTY, "[]"))
    now = [then.get(key) for key in keys] if then else []
    return tuple(name for name in now if name is not None) if None not in now else ()


def derived_since(table: Table, snapshot_id: int) -> tuple[DerivedColumn, ...]:
    """The derived columns that the table did not have at a snapshot."""
    snapshot = table.iceberg.snapshot_by_id(snapshot_id)
    schema_id = None if snapshot is None else snapshot.schema_id
    then = current_names(table, schema_id) if schema_id is not None else None
    return table.derived if then is None else tuple(d for d in table.derived if d.column not in then.values())


def required_since(table: Table) -> tuple[str, ...]:
    """The required columns that older rows may lack, because they were added later or were nullable."""
    metadata = table.iceberg.metadata
    always = [{field.field_id for field in schema.fields if field.required} for schema in metadata.schemas]
    now = (field for field in table.iceberg.schema().fields if field.required)
    return tuple(field.name for field in now if any(field.field_id not in ids for ids in always))


def edit_states(table: Table, since_ms: int) -> Iterator[int]:
    """The snapshots of edits since a time and the snapshot before each, newest first."""
    by_id = {s.snapshot_id: s for s in table.iceberg.metadata.snapshots}
    for commit in reversed(lineage(table)):
        if by_id[commit.snapshot_id].timestamp_ms < since_ms:
            return
        if commit.removes or commit.adds_deletes or commit.is_edit:
            yield commit.snapshot_id
            if commit.parent_id in by_id:
                yield commit.parent_id


def _manifests(table: Table, snapshot_id: int | None) -> Sequence[ManifestFile]:
    snapshot = None if snapshot_id is None else table.iceberg.snapshot_by_id(snapshot_id)
    return () if snapshot is None else manifests_of(table, snapshot)


def _data_manifests(table: Table, snapshot_id: int | None) -> list[ManifestFile]:
    return [m for m in _manifests(table, snapshot_id) if m.content == ManifestContent.DATA]


def _deletes_of(table: Table, manifest: ManifestFile, commit: Commit) -> list[DeleteEntry]:
    """The delete files that a commit added or removed, of a manifest of its own."""
    listed = delete_entries(table.iceberg.io.new_input(manifest.manifest_path))
    ours = (one for one in listed if one.snapshot_id in (None, commit.snapshot_id))
    return [one for one in ours if one.status != ManifestEntryStatus.EXISTING]


def _entries(table: Table, manifest: ManifestFile) -> Iterator[tuple[str, int, ManifestEntryStatus, int | None]]:
    """Path, row count and status of each data file, and the snapshot that set this status."""
    for entry in manifest.fetch_manifest_entry(table.iceberg.io, discard_deleted=False):
        if entry.data_file.content == DataFileContent.DATA:
            yield entry.data_file.file_path, entry.data_file.record_count, entry.status, entry.snapshot_id
