"""DIFF: the rows in which two states of a table differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.catalog.files.data_files import has_deletes, list_files
from service.catalog.lineage import current_names
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.holds import SnapshotHolds
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.diff import Comparison, DiffResult, compare
from service.engine.jobs.restore import apart
from service.engine.session.engine import Engine
from service.model.call import Call
from service.model.schema.key_columns import key_columns
from service.queries.history import newest_first, same_rows


@dataclass(frozen=True)
class DiffPage:
    """Which of the differing rows to return."""

    limit: int
    offset: int = 0


@dataclass(frozen=True)
class TableDifference:
    """The differences of two states, and how many files had to be read."""

    keys: tuple[str, ...]
    """The columns that paired the rows."""
    compared: DiffResult
    files_read: int
    files_shared: int


@dataclass(frozen=True)
class Differences:
    """Compares states of tables."""

    engine: Engine
    catalog: Catalog
    holds: SnapshotHolds

    def between(
        self,
        call: Call,
        table: Table,
        before: Snapshot,
        after: Snapshot,
        key_cols: Sequence[str] | None,
        page: DiffPage,
    ) -> TableDifference:
        """The difference of two snapshots in either order, in the columns of the later one."""
        later = newest_first((before, after))[0]
        keys = _keys(table, later, key_cols)
        if same_rows(table, before, after):
            return TableDifference(keys, DiffResult(), 0, len(list_files(table, after.snapshot_id).data))
        with (
            self.holds.reading(table.uuid, before.snapshot_id),
            self.holds.reading(table.uuid, after.snapshot_id),
        ):
            try:
                return self._compared(call, table, before, after, later, keys, page)
            except Exception:
                # If a snapshot has expired in the meantime, that is the error to report.
                current = self.catalog.load(table.name)
                if current.uuid == table.uuid:
                    current.snapshot(before.snapshot_id, "from_snapshot")
                    current.snapshot(after.snapshot_id, "to_snapshot")
                raise

    def _compared(
        self,
        call: Call,
        table: Table,
        before: Snapshot,
        after: Snapshot,
        later: Snapshot,
        keys: tuple[str, ...],
        page: DiffPage,
    ) -> TableDifference:
        had, has = self._states(call, table, before.snapshot_id, after.snapshot_id)
        shared = len(list_files(table, after.snapshot_id).data) - len(has.paths)
        compared = DiffResult()
        if had.paths or has.paths:
            schema_id = table.schema_id if later.schema_id is None else later.schema_id
            asked = Comparison(table.spark_name, had, has, schema_id, later.schema, keys, page.limit, page.offset)
            compared = self.engine.run_for(call, compare, asked)
        return TableDifference(keys, compared, len(had.paths) + len(has.paths), shared)

    def _states(self, call: Call, table: Table, before_id: int, after_id: int) -> tuple[SnapshotFiles, SnapshotFiles]:
        if has_deletes(table, before_id) or has_deletes(table, after_id):
            return self.engine.run_for(call, apart, table.spark_name, before_id, after_id)
        had = {file.path for file in list_files(table, before_id).data}
        has = {file.path for file in list_files(table, after_id).data}
        return SnapshotFiles(before_id, frozenset(had - has)), SnapshotFiles(after_id, frozenset(has - had))


def _keys(table: Table, later: Snapshot, key_cols: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that pair rows: those given, or else the primary key; none if the given list is empty."""
    if key_cols is None:
        return _primary_key(table, later)
    return key_columns(later.schema, key_cols) if key_cols else ()


def _primary_key(table: Table, later: Snapshot) -> tuple[str, ...]:
    """The table's primary key, by the names in a snapshot; the snapshot's own if it lacks one of the columns."""
    names = current_names(table, table.schema_id if later.schema_id is None else later.schema_id) or {}
    then = {now: name for name, now in names.items()}
    if all(name in then for name in table.schema.primary_key):
        return tuple(then[name] for name in table.schema.primary_key)
    return later.schema.primary_key
