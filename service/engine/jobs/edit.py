"""Edits in three steps: find the rows and their files; write new versions of the files; replace the files.

`find` takes the first step, and `publish` the others, inside the block of `find`. In between, the caller decides
whether the edit may be made.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.replace import EditedRows, FileReplacement, replace_files
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import StagedFiles, readable, readable_files, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.iceberg.tables import current
from service.engine.session.rows import collect, frame, json_rows
from service.engine.session.scans import read, scans
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import edit_sql as sql
from service.engine.sql.derived import fill
from service.engine.sql.failing import (
    ComputedColumn,
    computed_columns,
    conditions,
    identifying,
    naming_failures,
    naming_new_rows,
)
from service.engine.sql.sql import at_snapshot, named
from service.errors import CommitConflict
from service.model.edits import RECORD_NUMBER, ByFilter, ByKey, Duplicates, Edit
from service.model.expressions import Expression
from service.model.filters.predicates import EVERY_ROW
from service.model.names import EDIT_PROPERTY, KEYS_PROPERTY

# Above this, rows are grouped by partition before they are written, so that many files become few.
SHUFFLED_BYTES = 128 << 20


@dataclass(frozen=True)
class EditBase:
    """The table to edit, and the state that the edit is based on."""

    name: str
    uuid: str
    schema_id: int
    snapshot_id: int | None
    id_shows_current_columns: bool
    """Whether reading the snapshot by its id shows the table's current columns."""
    rows: Mapping[str, int]
    """Of each data file, by the metadata."""
    bytes: Mapping[str, int]
    has_deletes: bool
    """Whether some of those rows are deleted by delete files."""
    only: frozenset[str] | None = None
    """The files to search, if Spark could not choose them."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The sequence number of each data file."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no file to search."""
        return self.snapshot_id is None or (self.only is not None and not self.only)

    def by_age(self) -> list[str]:
        """The data files in the order in which they were written. The names of a commit's files begin with the numbers
        of their tasks, which are in the order of the rows."""
        return sorted(self.numbers, key=lambda path: (self.numbers[path], path.rpartition("/")[2], path))

    def rows_in(self, paths: Iterable[str]) -> int:
        """How many rows some files have, by the metadata."""
        return sum(self.rows.get(path, 0) for path in paths)

    def bytes_of(self, paths: Iterable[str]) -> int:
        """How large some files are, by the metadata."""
        return sum(self.bytes.get(path, 0) for path in paths)

    def whole(self, hits: Mapping[str, int]) -> set[str]:
        """The files of which all rows are deleted, so that they need not be read."""
        return {path for path, count in hits.items() if not self.has_deletes and count == self.rows.get(path)}


@dataclass(frozen=True)
class FoundRows:
    """The rows that an edit affects, by file, and its records that are new."""

    files: Mapping[str, int]
    hits: int
    """Rows that are changed or deleted."""
    unchanged: int = 0
    """Rows that have the key of a record, and already have its values."""
    new: pa.Table | None = None
    changed_records: pa.Table | None = None
    scanned_files: int = 0
    digest: str = ""
    outside: int | None = None
    """The position of the first record that would become a row outside the rows that the edit is limited to."""

    @property
    def changes_rows(self) -> bool:
        return bool(self.files) or self.new is not None


@dataclass(frozen=True)
class RowSample:
    """A row before and after; None if it does not exist."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True)
class FoundEdit:
    """An edit whose rows were found. Valid in the block of `find`."""

    session: SparkSession
    base: EditBase
    edit: Edit
    rows: FoundRows
    source: str
    """The relation, in SQL, that they were read from."""


def preview(session: SparkSession, base: EditBase, edit: Edit, limit: int) -> tuple[FoundRows, list[RowSample]]:
    """The rows that an edit would affect, with their digest, and samples of rows before and after. Writes nothing.

    Every new value is computed, so that errors show before the commit.
    """
    with find(session, base, edit, digest=True, values=True) as found:
        new = found.rows.new
        if new is not None and edit.derived:
            with naming_new_rows(session, new, edit.derived), sql.viewed({sql.NEW: _filled(session, edit, new)}):
                sql.new_computed(edit).on(session).collect()
        return found.rows, _samples(found, limit)


@contextmanager
def find(
    session: SparkSession, base: EditBase, edit: Edit, *, digest: bool = False, values: bool = False
) -> Iterator[FoundEdit]:
    """Find the rows that an edit affects, for the block, in which the edit can be published.

    `digest` adds a digest of the rows, and `values` also computes every new value.
    """
    want = sql.FindOptions(digest, values)
    source = at_snapshot(base.name, base.snapshot_id if base.id_shows_current_columns else None)
    with ExitStack() as stack:
        if base.snapshot_id is not None and base.only:
            files = SnapshotFiles(base.snapshot_id, base.only)
            source = stack.enter_context(readable_files(current(session, base.name), files))
        with _naming_failures(session, edit, source):
            rows = _with_new_outside(session, edit, _found(session, base, edit, source, want, stack))
        if not base.id_shows_current_columns and base.snapshot_id is not None:
            # What was read is the table's newest state, so it must be the state that the edit is based on.
            head = current(session, base.name).currentSnapshot()
            if head is None or int(head.snapshotId()) != base.snapshot_id:
                raise CommitConflict("another writer changed the table in the meantime; try again")
        yield FoundEdit(session, base, edit, rows, source)


def _found(
    session: SparkSession, base: EditBase, edit: Edit, source: str, want: sql.FindOptions, stack: ExitStack
) -> FoundRows:
    """The rows that an edit affects. `stack` keeps what the rest of the edit needs."""
    from pyspark import StorageLevel

    which, schema = edit.which, edit.schema
    if isinstance(which, ByKey):
        stack.enter_context(sql.viewed({sql.RECORDS: frame(session, which.records)}))
        return _matched(session, base, edit, which, source, want)
    if base.is_empty:
        return FoundRows({}, 0, new=edit.added, digest="0:0")
    if isinstance(which, Duplicates):
        outputs = sql.places_outputs(schema, want.digest)
        by_age = base.by_age()
        ages = pa.table({"file": by_age, "age": range(len(by_age))})
        stack.enter_context(sql.viewed({sql.AGES: frame(session, ages)}))
        places = sql.repeats(which, schema, source, outputs).on(session).persist(StorageLevel.DISK_ONLY)
        stack.callback(places.unpersist)
        stack.enter_context(sql.viewed({sql.PLACES: places}))
        return _by_file(base, sql.places_by_file(want.digest).on(session), places, None)
    if which.predicate == EVERY_ROW and not base.has_deletes and not want.digest and which.assignments is None:
        return FoundRows(base.rows, sum(base.rows.values()), new=edit.added)
    counted = sql.hits_by_file(edit, which, source, want).on(session)
    return _by_file(base, counted, counted, edit.added)


def publish(found: FoundEdit, batch: str, counts: Mapping[str, int], gate: Gate, tag: Tag | None = None) -> int:
    """Make an edit in one commit, with the counts in its summary, and return its snapshot's id.

    Raises RowCountMismatch if the numbers of rows do not add up, TableChanged if another writer committed first, and
    what the gate raises; then nothing was changed.
    """
    session, base, edit, rows = found.session, found.base, found.edit, found.rows
    target = CommitTarget(session, base.name, base.uuid, base.schema_id)
    iceberg = target.load()
    updates = isinstance(edit.which, ByKey) or (isinstance(edit.which, ByFilter) and edit.which.assignments is not None)
    whole = set() if updates else base.whole(rows.files)
    old = reading = None
    if rows.files and base.snapshot_id is not None:
        tasks = reading = scan_tasks.tasks(iceberg, base.snapshot_id, rows.files)
        if whole:
            reading = scan_tasks.tasks(iceberg, base.snapshot_id, rows.files.keys() - whole)
        old = scan_tasks.files_of(tasks)
    with _naming_failures(session, edit, found.source):
        staged, live = _staged(found, iceberg, reading)
    listed = base.rows_in(rows.files)
    held = listed if live is None else live + base.rows_in(whole)
    inserted = 0 if rows.new is None else rows.new.num_rows
    summary = {EDIT_PROPERTY: json.dumps(counts)}
    if isinstance(edit.which, ByKey):
        summary[KEYS_PROPERTY] = json.dumps(edit.which.how.keys)
    what = FileReplacement(
        batch,
        base.snapshot_id,
        old,
        staged.files,
        EditedRows(held, listed, 0 if updates else rows.hits, inserted, staged.records).verify,
        summary=summary,
        tag=tag,
    )
    return replace_files(target, iceberg, what, gate, staged.discard)


@contextmanager
def _naming_failures(session: SparkSession, edit: Edit, source: str) -> Iterator[None]:
    """If an expression fails in the block, its error names the column, or the place in the filter, and a row."""
    which, shown = edit.which, identifying(edit.schema)

    def old() -> AbstractContextManager[str]:
        return nullcontext(source)

    @contextmanager
    def changed() -> Iterator[str]:
        assert not isinstance(which, Duplicates)
        views = {sql.RECORDS: frame(session, which.records)} if isinstance(which, ByKey) else {}
        with sql.viewed(views), named(sql.with_set_values(edit, which, source).on(session)) as name:
            yield name

    with ExitStack() as stack:
        stack.enter_context(naming_failures(session, conditions(edit.within), shown, old))
        if isinstance(which, ByFilter) and which.assignments is not None:
            given = ((a.column, a.type, a.value) for a in which.assignments)
            assigned = [ComputedColumn(name, kind, v) for name, kind, v in given if isinstance(v, Expression)]
            stack.enter_context(naming_failures(session, assigned, shown, old, which.predicate))
        if edit.derived and not isinstance(which, Duplicates):
            again = computed_columns(sql.recomputed_columns(edit, which), only_null=False)
            stack.enter_context(naming_failures(session, again, shown, changed))
            new = which.records if isinstance(which, ByKey) else edit.added
            if new is not None:
                stack.enter_context(naming_new_rows(session, new, edit.derived))
        yield


def _by_file(base: EditBase, counted: DataFrame, reading: DataFrame, added: pa.Table | None) -> FoundRows:
    table = collect(counted)
    files = dict(zip(table["file"].to_pylist(), table["hits"].to_pylist(), strict=True))
    hits, digest = sum(files.values()), ""
    if "digest" in table.column_names:
        digest = f"{hits}:{sum(int(d) for d in table['digest'].to_pylist())}"
    return FoundRows(files, hits, new=added, scanned_files=_scanned(base, reading), digest=digest)


def _scanned(base: EditBase, reading: DataFrame) -> int:
    if base.only is not None:
        return len(base.only)
    return read(scans(reading._jdf.queryExecution().executedPlan()))[0]


def _matched(
    session: SparkSession, base: EditBase, edit: Edit, which: ByKey, source: str, want: sql.FindOptions
) -> FoundRows:
    records = which.records
    if base.is_empty or not records.num_rows:
        return FoundRows({}, 0, new=_some(records), digest="0:0")
    joined = sql.matches(edit, which, source, want).on(session)
    table = collect(joined)
    changed = table.filter(table["changed"])
    paths, counts = pc.value_counts(changed["file"].combine_chunks()).flatten()
    places = records[RECORD_NUMBER]
    has_row = pc.is_in(places, value_set=table["place"].combine_chunks())
    outside = pc.min(table.filter(table["outside"])["place"]).as_py() if "outside" in table.column_names else None
    digest = f"{table.num_rows}:{sum(int(h) for h in table['hash'].to_pylist())}" if want.digest else ""
    return FoundRows(
        dict(zip(paths.to_pylist(), counts.to_pylist(), strict=True)),
        changed.num_rows,
        unchanged=table.num_rows - changed.num_rows,
        new=_some(records.filter(pc.invert(has_row))),
        changed_records=_some(records.filter(pc.is_in(places, value_set=changed["place"].combine_chunks()))),
        scanned_files=_scanned(base, joined),
        digest=digest,
        outside=outside,
    )


def _with_new_outside(session: SparkSession, edit: Edit, found: FoundRows) -> FoundRows:
    """The same, with the first new row that is outside the rows that the edit is limited to."""
    new = found.new
    if new is None or edit.within == EVERY_ROW:
        return found
    if RECORD_NUMBER not in new.column_names:
        new = new.append_column(RECORD_NUMBER, pa.array(range(new.num_rows), pa.int32()))
    with sql.viewed({sql.NEW: _filled(session, edit, new)}):
        place = sql.first_outside(edit.within).on(session).collect()[0][0]
    places = [int(p) for p in (found.outside, place) if p is not None]
    return replace(found, outside=min(places, default=None))


def _some(rows: pa.Table) -> pa.Table | None:
    return rows if rows.num_rows else None


def _samples(found: FoundEdit, limit: int) -> list[RowSample]:
    session, edit, new = found.session, found.edit, found.rows.new
    names = edit.schema.names
    samples: list[RowSample] = []
    if found.rows.hits:
        rows = collect(sql.shown(edit, found.source, limit).on(session))
        count = len(names)
        before = json_rows(rows.select(range(count)).rename_columns(list(names)))
        after: list[Any] = [None] * len(before)
        if rows.num_columns > count:
            after = json_rows(rows.select(range(count, 2 * count)).rename_columns(list(names)))
        samples = [RowSample(b, a) for b, a in zip(before, after, strict=True)]
    if new is not None:
        # An edit that deletes rows and adds others shows some of both.
        kept = samples[: max(limit // 2, limit - new.num_rows)]
        added = new.select(list(names)).slice(0, limit - len(kept))
        if edit.derived:
            added = collect(_filled(session, edit, added))
        samples = [*kept, *(RowSample(None, row) for row in json_rows(added))]
    return samples


def _filled(session: SparkSession, edit: Edit, rows: pa.Table) -> DataFrame:
    return fill(frame(session, rows), edit.derived)


def _staged(found: FoundEdit, iceberg: Any, reading: Any) -> tuple[StagedFiles, int | None]:
    """Write the new versions of files. Also returns how many rows they had, if delete files hide that."""
    session, base, edit, new = found.session, found.base, found.edit, found.rows.new
    views: dict[str, DataFrame] = {}
    if new is not None:
        views[sql.NEW] = _filled(session, edit, new)
    if found.rows.changed_records is not None:
        views[sql.RECORDS] = frame(session, found.rows.changed_records)
    live: int | None = None
    with ExitStack() as stack:
        stack.enter_context(sql.viewed(views))
        rows: sql.SqlStatement | None = None
        size = 0
        if reading is not None and reading.size():
            source = stack.enter_context(readable(iceberg, reading))
            rows = sql.rewritten(edit, source)
            if base.has_deletes:
                live = count_rows(session, source)
            size = base.bytes_of(found.rows.files)
        if new is not None:
            rows = sql.with_new(rows, edit.schema)
        if rows is None:
            return StagedFiles(iceberg.io(), ()), live
        options = {"distribution-mode": "hash"} if size > SHUFFLED_BYTES else {}
        return stage_rows(iceberg, rows.on(session), options), live


def count_rows(session: SparkSession, source: str) -> int:
    return int(session.sql(f"SELECT count(*) FROM {source}").collect()[0][0])
