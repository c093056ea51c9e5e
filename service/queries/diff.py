"""DIFF: which rows tell one state of a table from another."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.catalog.files import has_deletes, list_files
from service.catalog.lineage import columns_then
from service.catalog.tables import Catalog, Snapshot, Table
from service.commits.holds import Holds
from service.edits.upsert import keys_of
from service.engine.diff import Compared, Comparison, compare
from service.engine.engine import Engine
from service.engine.pick import Files
from service.engine.restore import apart
from service.history.snapshots import newest_first, same_rows


@dataclass(frozen=True)
class Page:
    """Which of the differing rows are wanted."""

    limit: int
    offset: int = 0


@dataclass(frozen=True)
class Difference:
    """What tells the one state from the other, and how much had to be read to know it."""

    keys: tuple[str, ...]
    """What rows were paired by."""
    compared: Compared
    files_read: int
    files_shared: int


@dataclass(frozen=True)
class Differences:
    """Compares states of tables."""

    engine: Engine
    catalog: Catalog
    holds: Holds

    def between(
        self, table: Table, before: Snapshot, after: Snapshot, key_cols: Sequence[str] | None, page: Page
    ) -> Difference:
        """The difference of two snapshots, whichever is older, under the columns of the later one."""
        later = newest_first((before, after))[0]
        keys = _keys(table, later, key_cols)
        if same_rows(table, before, after):
            return Difference(keys, Compared(), 0, len(list_files(table, after.snapshot_id).data))
        with (
            self.holds.reading(table.uuid, before.snapshot_id),
            self.holds.reading(table.uuid, after.snapshot_id),
        ):
            try:
                return self._compared(table, before, after, later, keys, page)
            except Exception:
                # Expired meanwhile, and its files with it? That is what the caller should hear.
                current = self.catalog.load(table.name)
                if current.uuid == table.uuid:
                    current.snapshot(before.snapshot_id, "from_snapshot")
                    current.snapshot(after.snapshot_id, "to_snapshot")
                raise

    def _compared(
        self, table: Table, before: Snapshot, after: Snapshot, later: Snapshot, keys: tuple[str, ...], page: Page
    ) -> Difference:
        had, has = self._states(table, before.snapshot_id, after.snapshot_id)
        shared = len(list_files(table, after.snapshot_id).data) - len(has.paths)
        compared = Compared()
        if had.paths or has.paths:
            schema_id = table.schema_id if later.schema_id is None else later.schema_id
            asked = Comparison(table.spark_name, had, has, schema_id, later.schema, keys, page.limit, page.offset)
            compared = self.engine.run(compare, asked)
        return Difference(keys, compared, len(had.paths) + len(has.paths), shared)

    def _states(self, table: Table, before_id: int, after_id: int) -> tuple[Files, Files]:
        if has_deletes(table, before_id) or has_deletes(table, after_id):
            return self.engine.run(apart, table.spark_name, before_id, after_id)
        had = {file.path for file in list_files(table, before_id).data}
        has = {file.path for file in list_files(table, after_id).data}
        return Files(before_id, frozenset(had - has)), Files(after_id, frozenset(has - had))


def _keys(table: Table, later: Snapshot, key_cols: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that rows are paired by: those asked for, else the primary key; where they are none, none are."""
    if key_cols is None:
        return _primary_key(table, later)
    return keys_of(later.schema, key_cols) if key_cols else ()


def _primary_key(table: Table, later: Snapshot) -> tuple[str, ...]:
    """The table's key by what its columns were called in a snapshot; the snapshot's own where it lacks one of them."""
    names = columns_then(table, table.schema_id if later.schema_id is None else later.schema_id) or {}
    then = {now: name for name, now in names.items()}
    if all(name in then for name in table.schema.primary_key):
        return tuple(then[name] for name in table.schema.primary_key)
    return later.schema.primary_key
