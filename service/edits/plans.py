"""What an UNDO must look at, from metadata and the ledger: files, keys, and later changes with their requests."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from service.catalog.files.data_files import list_files
from service.catalog.files.positions import rows_deleted
from service.catalog.lineage import (
    Commit,
    FileChanges,
    current_names,
    derived_since,
    file_changes,
    files_by_snapshot,
    lineage,
    required_since,
    surviving_files,
    upsert_key_columns,
)
from service.catalog.tables import Table
from service.commits.compared import differing_rows
from service.commits.edit_base import base_of
from service.edits.request_changes import RequestChange, SharedChanges, expanded, shared_changes
from service.edits.trace import Traced, TracedCommit, UndoneChange, read_undone, standing, trace, without_effect
from service.engine.iceberg.scan_tasks import NO_FILES, SnapshotFiles
from service.engine.jobs.edits.reversal import AddedAndRemoved, UndoReversal
from service.engine.jobs.undo import changes_that_added, read_files
from service.engine.session.engine import Session
from service.errors import UndoTooLate
from service.ledger.ledger import Batch
from service.ledger.undo_records import UndoRecords
from service.model.row_marks import RowShares, assign_rows, row_marks
from service.settings.kinds import RowLevel

# With more derived columns, a row is read with all of them as they are, or with none.
_MOST_COMBINED = 4
_DEDUPLICATE = "DEDUPLICATE"


@dataclass(frozen=True)
class UndoTarget:
    """The change to undo: one request of a batch."""

    batch: Batch
    request_id: str

    @property
    def operation(self) -> str:
        """The operation of the request, which need not be that of the others in its batch."""
        parts = zip(self.batch.request_ids, self.batch.parts, strict=False)
        return next((part.operation for name, part in parts if name == self.request_id), self.batch.operation)


@dataclass(frozen=True)
class UndoPlan:
    """What Spark is to do, and the commits that it concerns."""

    reversal: UndoReversal
    suspects: tuple[Commit | RequestChange, ...]
    """The commits, and requests that share one, of `reversal.suspects`."""
    later: tuple[Commit, ...]
    """All commits after the change that changed rows and were not undone."""


@dataclass(frozen=True)
class UndoPlanner:
    """Plans the UNDO of changes of one table, given as it is now, on a lent session."""

    table: Table
    notes: UndoRecords
    session: Session
    row_level: RowLevel = "copy_on_write"
    _moves: dict[int, FileChanges] = field(default_factory=dict)

    @cached_property
    def commits(self) -> list[Commit]:
        return lineage(self.table)

    def plan(self, target: UndoTarget) -> UndoPlan:
        """What to read and compare to undo a change; raises UndoTooLate if some of it is gone."""
        files, moves, after = self._files_of_change(target)
        effective = self._later_changes(target, after)
        traced = trace(files.paths, self._traced_commits(target, after))
        shared = self._shared(target)
        later = [] if shared is None else shared.each(shared.after(target.request_id), self._undone)
        found = self._suspects(moves, traced, effective)
        suspects = (*later, *expanded(self.table, self.notes, found, self._undone))
        base = base_of(self.table, row_level=self.row_level)
        if not traced.files <= base.rows.keys():
            raise self._too_late(target, "a later state of the table")
        own = None if shared is None else shared.change(shared.own(target.request_id))
        came = own.came if own else self._rows_that_came(target, files)
        untouched = (came is files and traced.files == files.paths) and not (
            moves.takes_rows or suspects or any(base.live(path) != base.rows[path] for path in traced.files)
        )
        changes = [c for c in self.commits if c.snapshot_id == target.batch.snapshot_id]  # none if it has expired
        went = own.went if own else None
        if changes and own is None:
            went = self._removed_files(target, changes[0], "the state before it")
        keys = self._keys([*changes, *effective]) if went is not None else ()
        fresh, stale = self._differing_files(files.snapshot_id) if keys else (NO_FILES, NO_FILES)
        reversal = UndoReversal(
            base,
            self.table.kept_schema,
            AddedAndRemoved(None if isinstance(came, SnapshotFiles) and not came.paths else came, went),
            traced.files,
            untouched,
            tuple(self._changed_rows(target, commit) for commit in suspects),
            keys,
            fresh,
            stale,
            derived_since(self.table, files.snapshot_id),
            required_since(self.table),
            AddedAndRemoved(None, None) if shared is None else shared.change(shared.after(target.request_id)),
        )
        return UndoPlan(reversal, suspects, effective)

    @cached_property
    def _undone(self) -> frozenset[UndoneChange]:
        """The requests whose changes are undone."""
        return frozenset(standing_undos(self.table, self.notes).values())

    def _shared(self, target: UndoTarget) -> SharedChanges | None:
        """The changes of the requests in the batch of the change; None if no edits share it."""
        batch = target.batch
        found = shared_changes(self.table, self.notes, batch)
        if found is None and batch.parts and len(batch.request_ids) > 1:
            raise self._too_late(target, "the record of which rows of its batch were its own")
        return found

    def _suspects(self, moves: FileChanges, traced: Traced, later: Sequence[Commit]) -> tuple[Commit, ...]:
        """The later commits to compare with the change, because they removed files that its rows were in, or concern
        equal rows in any file."""
        met = {step.snapshot_id for step in traced.suspects}
        # It is chance which of equal rows a DEDUPLICATE leaves; what a restore brings back lies in files of its own.
        removing = [c.batch for c in later if c.batch and c.removes] if moves.added else []
        once = self.notes.among(_DEDUPLICATE, removing)
        return tuple(c for c in later if c.snapshot_id in met or c.batch in once or (c.restores and moves.takes_rows))

    def names(self, commit: Commit | RequestChange) -> list[str]:
        """The ids of the requests that made a commit."""
        if isinstance(commit, RequestChange):
            return [commit.request_id]
        return (self.notes.ids_of(commit.batch) if commit.batch else []) or [f"snapshot {commit.snapshot_id}"]

    def adding_requests(self, target: UndoTarget, plan: UndoPlan, met: pa.Table) -> list[str]:
        """The ids of the requests that added rows, as far as they are known."""
        rows, paths = met.drop_columns([met.column_names[-1]]), frozenset(met.column(met.num_columns - 1).to_pylist())
        expired = set(files_by_snapshot(self.table, paths).values()) - {commit.snapshot_id for commit in self.commits}
        batches = self.notes.by_snapshots(self.table.uuid, expired).values()
        found = [request_id for batch in batches for request_id in batch.request_ids]
        shared = self._shared(target)
        beside = [] if shared is None else shared.each(shared.after(target.request_id), self._undone)
        laters = [*beside, *expanded(self.table, self.notes, plan.later, self._undone)]
        changed = [self._changed_rows(target, commit) for commit in laters]
        for n in changes_that_added(self.session, plan.reversal, rows, changed):
            found += self._adding_requests_of(laters[n], changed[n], rows)
        return found

    def _adding_requests_of(
        self, commit: Commit | RequestChange, changes: AddedAndRemoved, rows: pa.Table
    ) -> list[str]:
        """The requests of a commit that added some of the rows."""
        names = self.names(commit)
        if isinstance(commit, RequestChange):
            return names
        shared = self.notes.shares(commit.batch) if commit.batch and len(names) > 1 else None
        columns = current_names(self.table, shared.schema_id) if shared else None
        if shared is None or columns is None or not isinstance(changes.came, SnapshotFiles):
            return names
        # A column that was added since may be computed in some of them and null in others.
        both = [name for name in columns.values() if name is not None]
        owner = self._requests_of_rows(shared, changes.came, columns)
        if owner is None or not both:
            return names
        brought, wanted = row_marks(self._read(changes.came).select(both)), set(row_marks(rows.select(both)))
        return [names[n] for n in sorted({o for o, mark in zip(owner, brought, strict=True) if mark in wanted})]

    def _files_of_change(self, target: UndoTarget) -> tuple[SnapshotFiles, FileChanges, list[Commit]]:
        """The files that the change added, in a state that has them; all it added or removed; the later commits."""
        snapshot_id = target.batch.snapshot_id
        assert snapshot_id is not None
        at = next((i for i, c in enumerate(self.commits) if c.snapshot_id == snapshot_id), None)
        if at is not None:
            moves = self._moved(self.commits[at])
            return SnapshotFiles(snapshot_id, frozenset(moves.added)), moves, self.commits[at + 1 :]
        found = surviving_files(self.table, snapshot_id) if target.batch.records else None
        if found is None or sum(found[1].values()) != target.batch.records:
            raise self._too_late(target, "the state that it made")
        reader, added = found
        at = next(i for i, c in enumerate(self.commits) if c.snapshot_id == reader)
        return SnapshotFiles(reader, frozenset(added)), FileChanges(added), self.commits[at:]

    def _rows_that_came(self, target: UndoTarget, files: SnapshotFiles) -> SnapshotFiles | pa.Table:
        """The rows that the change added: all those of its files, or its own rows of a shared batch."""
        batch = target.batch
        if len(batch.request_ids) == 1:
            return files
        shared = self.notes.shares(batch.batch)
        columns = current_names(self.table, shared.schema_id) if shared else None
        if shared is None or columns is None:
            raise self._too_late(target, "the record of which rows of its batch were its own")
        owner = self._requests_of_rows(shared, files, columns)
        if owner is None:
            raise self._too_late(target, "the rows of its batch as they were written")
        mine = [request_id == target.request_id for request_id in batch.request_ids]
        return self._read(files).filter(pa.array([mine[n] for n in owner]))

    def _read(self, files: SnapshotFiles) -> pa.Table:
        """The rows of some files, with the columns that the table has now."""
        schema_id, names = self.table.schema_id, list(self.table.schema.names)
        return read_files(self.session, self.table.spark_name, files, schema_id, names)

    def _requests_of_rows(
        self, shared: RowShares, files: SnapshotFiles, columns: Mapping[str, str | None]
    ) -> list[int] | None:
        """For each row of a shared batch, which request added it. Derived columns may have been null.

        `columns` maps the names that the batch's columns had, from which its marks were made, to their names now.
        """
        written = read_files(self.session, self.table.spark_name, files, shared.schema_id, list(columns))
        now = {d.column for d in self.table.derived}
        derived = [name for name, called in columns.items() if called in now]
        empty: Iterable[tuple[str, ...]] = [(), tuple(derived)]
        if len(derived) <= _MOST_COMBINED:
            empty = itertools.chain.from_iterable(itertools.combinations(derived, n) for n in range(len(derived) + 1))
        return assign_rows(shared, (row_marks(_without(written, names)) for names in empty))

    def _later_changes(self, target: UndoTarget, after: Sequence[Commit]) -> tuple[Commit, ...]:
        """The later commits that changed rows and were not undone."""
        batches = [commit.batch for commit in after if commit.batch]
        undos = standing_undos(self.table, self.notes)
        taken_back = {undone.batch for undone in undos.values()}
        requests = {b: len(self.notes.ids_of(b)) for b in taken_back if b in batches}
        idle = without_effect([*batches, target.batch.batch], undos, requests)
        return tuple(c for c in after if not c.leaves_rows and c.batch not in idle)

    def _keys(self, commits: Sequence[Commit]) -> tuple[tuple[str, ...], ...]:
        """The keys that must stay unique when rows come back: the primary key, and the keys of UPSERTs."""
        found = [self.table.schema.primary_key, *(upsert_key_columns(self.table, commit) for commit in commits)]
        names = set(self.table.schema.names)
        return tuple(dict.fromkeys(keys for keys in found if keys and names.issuperset(keys)))

    def _differing_files(self, snapshot_id: int) -> tuple[SnapshotFiles, SnapshotFiles]:
        """The rows that only the table has, and those that only an earlier state had, and perhaps some of both."""
        now_id = self.table.current_snapshot_id or 0
        found = differing_rows(self.table, now_id, snapshot_id)
        if found is None:
            now, then = (frozenset(f.path for f in list_files(self.table, at).data) for at in (now_id, snapshot_id))
            return SnapshotFiles(now_id, now), SnapshotFiles(snapshot_id, then)
        return found

    def _changed_rows(self, target: UndoTarget, commit: Commit | RequestChange) -> AddedAndRemoved:
        """What a later commit changed, to be read; raises UndoTooLate if the state before it is gone."""
        if isinstance(commit, RequestChange):
            return commit.rows
        added = frozenset(self._moved(commit).added)
        came = SnapshotFiles(commit.snapshot_id, added) if added else None
        went = self._removed_files(target, commit, "the state before a later change")
        return AddedAndRemoved(came, went, commit.restores)

    def _removed_files(self, target: UndoTarget, commit: Commit, before: str) -> SnapshotFiles | None:
        """The rows that a commit removed, in the state before it, and all others of the files that it removed;
        UndoTooLate if that is gone."""
        moves, parent = self._moved(commit), commit.parent_id
        if not moves.takes_rows:
            return None
        if parent is None or all(c.snapshot_id != parent for c in self.commits):
            raise self._too_late(target, before)
        return SnapshotFiles(parent, frozenset(moves.removed), rows_deleted(self.table, moves))

    def _traced_commits(self, target: UndoTarget, after: Sequence[Commit]) -> Iterator[TracedCommit]:
        """The commits that may have moved rows, or have brought back what another of them deleted."""
        batches = {target.batch.batch, *(commit.batch for commit in after)}
        undos = {batch for batch, undone in standing_undos(self.table, self.notes).items() if undone.batch in batches}
        for commit in after:
            brings_back = commit.restores or commit.batch in undos
            if commit.removes or brings_back:
                moves = self._moved(commit)
                added, removed = frozenset(moves.added), frozenset(moves.removed)
                deleted_from = frozenset(moves.deleted)
                yield TracedCommit(commit.snapshot_id, added, removed, commit.leaves_rows, brings_back, deleted_from)

    def _moved(self, commit: Commit) -> FileChanges:
        if commit.snapshot_id not in self._moves:
            self._moves[commit.snapshot_id] = file_changes(self.table, commit)
        return self._moves[commit.snapshot_id]

    def _too_late(self, target: UndoTarget, what: str) -> UndoTooLate:
        return UndoTooLate(
            f"request {target.request_id!r} can no longer be undone: {what} is gone, because of a requested expiry, of "
            "more changes than are kept for UNDO, or of another program. Restore a backup, or change the rows again",
            field="request_id",
        )


def standing_undos(table: Table, notes: UndoRecords) -> dict[str, UndoneChange]:
    """A table's UNDOs that were not undone themselves, by batch, with what each undid."""
    return standing([(b.batch, read_undone(b.undoes)) for b in notes.undone(table.uuid) if b.undoes])


def _without(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """The rows, with nulls in some columns."""
    for name in columns:
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.nulls(rows.num_rows, rows.schema.field(at).type))
    return rows
