"""DIFF: the rows in which two states of a table differ."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.catalog.files.data_files import list_files
from service.catalog.lineage import current_names
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.compared import differing_rows, few_rows, rows_to_read
from service.commits.holds import SnapshotHolds
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.diff import Comparison, DiffResult, compare
from service.engine.jobs.restore import apart
from service.engine.queries.engine import QueryEngine
from service.guard.policies import Policies
from service.model.call import Call
from service.model.progress import RowProgress
from service.model.schema.key_columns import key_columns
from service.queries.history import newest_first, same_rows


@dataclass(frozen=True)
class DiffPage:
    """Which of the differing rows to return."""

    limit: int
    offset: int = 0


@dataclass
class DiffProgress(RowProgress):
    """The progress of a DIFF. `records_done` counts the rows that were read to compare them."""

    files_total: int | None = None
    """Data files with rows that may differ."""


@dataclass(frozen=True)
class TableDifference:
    """The differences of two states, and the numbers of files that were read, and that they share."""

    keys: tuple[str, ...]
    """The columns that paired the rows."""
    compared: DiffResult
    files_read: int
    files_shared: int


@dataclass(frozen=True)
class Differences:
    """Compares two states of a table."""

    engine: QueryEngine
    catalog: Catalog
    holds: SnapshotHolds
    policies: Policies

    def between(
        self,
        call: Call,
        table: Table,
        before: Snapshot,
        after: Snapshot,
        key_cols: Sequence[str] | None,
        page: DiffPage,
    ) -> TableDifference:
        """The difference of two snapshots in either order, in the columns of the later one that the sender sees."""
        later = newest_first((before, after))[0]
        schema_id = _schema_id(table, later)
        view = self.policies.view(call.principal, table, later.schema, schema_id)
        schema = later.schema if view is None else view.schema
        if view is None or key_cols is not None:
            keys = _keys(table, replace(later, schema=schema), key_cols)
        else:
            keys = schema.primary_key
        if same_rows(table, before, after):
            return TableDifference(keys, DiffResult(), 0, len(list_files(table, after.snapshot_id).data))
        with self.holds.reading(table.uuid, before.snapshot_id), self.holds.reading(table.uuid, after.snapshot_id):
            try:
                progress = call.progress(DiffProgress)
                progress.phase = "planning"
                removed, added = self._changed_files(call, table, before.snapshot_id, after.snapshot_id)
                result = DiffResult()
                if removed.touched or added.touched:
                    progress.files_total = len(removed.touched) + len(added.touched)
                    few = few_rows(table, schema_id, later.schema, (removed, added), call.check)
                    gone, came = few or (removed, added)
                    comparison = Comparison(
                        table.spark_name, gone, came, schema_id, schema, keys, page.limit, page.offset, view
                    )
                    rows = 0 if few else rows_to_read(table, (removed, added))
                    result = self._compared(call, comparison, rows)
                progress.phase = "done"
            except Exception:
                # If a snapshot has expired in the meantime, that is the error to report.
                current = self.catalog.load(table.name)
                if current.uuid == table.uuid:
                    current.snapshot(before.snapshot_id, "from_snapshot")
                    current.snapshot(after.snapshot_id, "to_snapshot")
                raise
        shared = len(list_files(table, after.snapshot_id).data) - len(added.paths)
        return TableDifference(keys, result, len(removed.touched) + len(added.touched), shared)

    def _compared(self, call: Call, comparison: Comparison, rows: int) -> DiffResult:
        """The differences, with progress by how many of so many rows Spark has read; with 0, it reads none."""
        progress, tag = call.progress(DiffProgress), f"diff-{uuid.uuid4().hex}"
        progress.phase = "comparing"
        if rows:
            progress.expect(rows, partial(self.engine.rows_read, tag))
        found = self.engine.run_for(call, compare, comparison, tag)
        if rows:
            progress.done(rows)
        return found

    def _changed_files(
        self, call: Call, table: Table, before_id: int, after_id: int
    ) -> tuple[SnapshotFiles, SnapshotFiles]:
        """The files of each snapshot that the other one lacks, and rows that the other one has deleted from a file."""
        found = differing_rows(table, before_id, after_id)
        return found or self.engine.run_for(call, apart, table.spark_name, before_id, after_id)


def _keys(table: Table, later: Snapshot, key_cols: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that pair rows: those given, or else the primary key; none if the given list is empty."""
    if key_cols is not None:
        return key_columns(later.schema, key_cols) if key_cols else ()
    # By the names of columns in that snapshot; if it lacks one of them, its own primary key.
    names = current_names(table, _schema_id(table, later)) or {}
    then = {now: name for name, now in names.items()}
    if all(name in then for name in table.schema.primary_key):
        return tuple(then[name] for name in table.schema.primary_key)
    return later.schema.primary_key


def _schema_id(table: Table, snapshot: Snapshot) -> int:
    return table.schema_id if snapshot.schema_id is None else snapshot.schema_id
