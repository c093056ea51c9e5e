"""The first step of an edit: find the rows that it affects, their files and, for delete files, their places.

`edits/publish.py` has the other steps, inside the block of `find`. In between, the caller decides whether the edit may
be made.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable_files
from service.engine.iceberg.tables import current
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.jobs.edits.row_level import TouchedFile, files_to_rewrite
from service.engine.jobs.edits.staged_records import (
    changed_by_file,
    count_matches,
    gone_places,
    no_matches,
    records_frame,
)
from service.engine.session.rows import collect, frame
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
from service.engine.sql.policies.rows import visible_rows
from service.engine.sql.sql import Parameters, at_snapshot, named, run
from service.errors import CommitConflict
from service.model.edits import RECORD_NUMBER, ByFilter, ByKey, Duplicates, Edit, StagedRecords
from service.model.expressions import Expression
from service.model.filters.predicates import EVERY_ROW
from service.model.policy.view import RowView
from service.settings.kinds import RowLevel

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
    deleted: Mapping[str, int] | None = None
    """How many rows are deleted, of files with such rows; None if only reading the files shows that."""
    row_level: RowLevel = "copy_on_write"
    keeps_files: bool = False
    """Whether files that lose all their rows stay, with a delete file, because they are being merged."""

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

    def live(self, path: str) -> int | None:
        """How many rows of a file are not deleted, if the metadata says so."""
        if not self.has_deletes:
            return self.rows.get(path)
        return None if self.deleted is None else self.rows.get(path, 0) - self.deleted.get(path, 0)

    def bytes_of(self, paths: Iterable[str]) -> int:
        """How large some files are, by the metadata."""
        return sum(self.bytes.get(path, 0) for path in paths)

    def whole(self, hits: Mapping[str, int]) -> set[str]:
        """The files of which all rows are deleted, so that they need not be read."""
        return {path for path, count in hits.items() if count == self.live(path) and not self.keeps_files}

    def rewritten(self, hits: Mapping[str, int]) -> frozenset[str]:
        """The files to write again, of those that lose or change some rows; the others get delete files."""
        touched = {
            path: TouchedFile(self.bytes.get(path, 0), self.live(path) or self.rows.get(path, 0), count)
            for path, count in hits.items()
        }
        return files_to_rewrite(self.row_level, touched)


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
    places: FoundPlaces = field(default_factory=FoundPlaces)
    """Of the same rows, if the edit may delete them by their places."""
    outside: int | None = None
    """The position of the first record that would become a row outside the rows that the edit is limited to."""
    replaced: int = 0
    """Those of the hits that go because a newer row has their key. The view `GONE` has their places."""
    staged_new: int = 0
    """How many staged records are new."""
    lacking: int | None = None
    """The first new one of staged records that lacks a column which a new row needs."""

    @property
    def inserted(self) -> int:
        """How many rows are new."""
        return self.staged_new if self.new is None else self.new.num_rows

    @property
    def changes_rows(self) -> bool:
        return bool(self.files or self.staged_new) or self.new is not None


@dataclass(frozen=True)
class FoundEdit:
    """An edit whose rows were found. Valid in the block of `find`."""

    session: SparkSession
    base: EditBase
    edit: Edit
    rows: FoundRows
    source: str
    """The relation, in SQL, that they were read from."""


@contextmanager
def find(
    session: SparkSession,
    base: EditBase,
    edit: Edit,
    *,
    digest: bool = False,
    values: bool = False,
    view: RowView | None = None,
) -> Iterator[FoundEdit]:
    """Find the rows that an edit affects, for the block, in which the edit can be published.

    `digest` adds a digest of the rows, and `values` also computes every new value. With a view, only what it shows is
    found, and the edit cannot be published.
    """
    want = sql.FindOptions(digest, values, places=base.row_level != "copy_on_write")
    source = at_snapshot(base.name, base.snapshot_id if base.id_shows_current_columns else None)
    with ExitStack() as stack:
        if base.snapshot_id is not None and base.only:
            files = SnapshotFiles(base.snapshot_id, base.only)
            source = stack.enter_context(readable_files(session, current(session, base.name), files))
        if view is not None:
            source = stack.enter_context(_visible(session, view, source))
        with failures_named(session, edit, source):
            rows = _with_new_outside(session, edit, _found(session, base, edit, source, want, stack))
        if not base.id_shows_current_columns and base.snapshot_id is not None:
            # What was read is the table's newest state, so it must be the state that the edit is based on.
            head = current(session, base.name).currentSnapshot()
            if head is None or int(head.snapshotId()) != base.snapshot_id:
                raise CommitConflict("another writer changed the table in the meantime; try again")
        yield FoundEdit(session, base, edit, rows, source)


def _visible(session: SparkSession, view: RowView, source: str) -> AbstractContextManager[str]:
    """What a view shows of the rows, with their places."""
    parameters = Parameters()
    text = f"SELECT * FROM {visible_rows(view, source, parameters, ('_file', '_pos'))}"
    return named(run(session, text, parameters.values))


def _found(
    session: SparkSession, base: EditBase, edit: Edit, source: str, want: sql.FindOptions, stack: ExitStack
) -> FoundRows:
    """The rows that an edit affects. `stack` keeps what the rest of the edit needs."""
    which, schema = edit.which, edit.schema
    if isinstance(which, ByKey):
        stack.enter_context(sql.viewed({sql.RECORDS: _records(session, edit, which)}))
        if which.how.replaces:
            stack.enter_context(sql.viewed({sql.AGES: _ages(session, base)}))
        if isinstance(which.records, StagedRecords):
            return _matched_staged(session, base, edit, which, source, want, stack)
        return _matched(session, base, edit, which, which.records, source, want, stack)
    if base.is_empty:
        return FoundRows({}, 0, new=edit.added, digest="0:0")
    if isinstance(which, Duplicates):
        outputs = sql.places_outputs(schema, want.digest)
        stack.enter_context(sql.viewed({sql.AGES: _ages(session, base)}))
        places = _places(sql.repeats(edit, which, source, outputs).on(session), stack)
        return _by_file(base, sql.places_by_file(want).on(session), places, None)
    if which.predicate == EVERY_ROW and not want.digest and which.assignments is None and not base.keeps_files:
        live = {path: base.live(path) for path in base.rows}
        if None not in live.values():
            files = {path: count or 0 for path, count in live.items()}
            return FoundRows(files, sum(files.values()), new=edit.added)
    counted = sql.hits_by_file(edit, which, source, want).on(session)
    return _by_file(base, counted, counted, edit.added)


def _records(session: SparkSession, edit: Edit, which: ByKey) -> DataFrame:
    if isinstance(which.records, StagedRecords):
        return records_frame(session, which.records, edit.schema, which.how)
    return frame(session, which.records)


def _ages(session: SparkSession, base: EditBase) -> DataFrame:
    by_age = base.by_age()
    schema = pa.schema({"file": pa.string(), "age": pa.int64()})
    return frame(session, pa.table({"file": by_age, "age": list(range(len(by_age)))}, schema))


def _places(found: DataFrame, stack: ExitStack) -> DataFrame:
    """Places that were found, kept on disk and as a view for the rest of the edit."""
    from pyspark import StorageLevel

    places = found.persist(StorageLevel.DISK_ONLY)
    stack.callback(places.unpersist)
    stack.enter_context(sql.viewed({sql.PLACES: places}))
    return places


@contextmanager
def failures_named(session: SparkSession, edit: Edit, source: str) -> Iterator[None]:
    """If an expression fails in the block, its error names the column, or the place in the filter, and a row."""
    which, shown = edit.which, identifying(edit.schema)

    def old() -> AbstractContextManager[str]:
        return nullcontext(source)

    @contextmanager
    def changed() -> Iterator[str]:
        assert not isinstance(which, Duplicates)
        views = {sql.RECORDS: _records(session, edit, which)} if isinstance(which, ByKey) else {}
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
            if isinstance(new, StagedRecords):
                columns = computed_columns(edit.derived)
                stack.enter_context(naming_failures(session, columns, shown, lambda: nullcontext(sql.RECORDS)))
            elif new is not None:
                stack.enter_context(naming_new_rows(session, new, edit.derived))
        yield


def _by_file(base: EditBase, counted: DataFrame, reading: DataFrame, added: pa.Table | None) -> FoundRows:
    table = collect(counted)
    files = Counter[str]()
    for path, count in zip(table["file"].to_pylist(), table["hits"].to_pylist(), strict=True):
        files[path] += count
    hits, digest = sum(files.values()), ""
    if "digest" in table.column_names:
        digest = f"{hits}:{sum(int(d) for d in table['digest'].to_pylist())}"
    places = FoundPlaces(table if "bits" in table.column_names else None)
    return FoundRows(files, hits, new=added, scanned_files=_scanned(base, reading), digest=digest, places=places)


def _scanned(base: EditBase, reading: DataFrame) -> int:
    if base.only is not None:
        return len(base.only)
    return read(scans(reading._jdf.queryExecution().executedPlan()))[0]


def _matched(
    session: SparkSession,
    base: EditBase,
    edit: Edit,
    which: ByKey,
    records: pa.Table,
    source: str,
    want: sql.FindOptions,
    stack: ExitStack,
) -> FoundRows:
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
    gone = table.filter(table["gone"]).select(["file", "pos"]) if which.how.replaces else None
    if gone is not None and gone.num_rows:
        stack.enter_context(sql.viewed({sql.GONE: frame(session, gone)}))
    return FoundRows(
        dict(zip(paths.to_pylist(), counts.to_pylist(), strict=True)),
        changed.num_rows,
        unchanged=table.num_rows - changed.num_rows,
        new=_some(records.filter(pc.invert(has_row))),
        changed_records=_some(records.filter(pc.is_in(places, value_set=changed["place"].combine_chunks()))),
        scanned_files=_scanned(base, joined),
        digest=digest,
        places=FoundPlaces(rows=changed.select(["file", "pos"])) if want.places else FoundPlaces(),
        outside=outside,
        replaced=0 if gone is None else gone.num_rows,
    )


def _matched_staged(
    session: SparkSession,
    base: EditBase,
    edit: Edit,
    which: ByKey,
    source: str,
    want: sql.FindOptions,
    stack: ExitStack,
) -> FoundRows:
    """The same for staged records. Only counts and places, as bitmaps, come to this process."""
    found = no_matches(session) if base.is_empty else sql.matches(edit, which, source, want).on(session)
    places = _places(found, stack)
    by_file = _by_file(base, changed_by_file(session, want), places, None)
    counted = count_matches(session, which.how)
    if counted.replaced:
        stack.enter_context(sql.viewed({sql.GONE: gone_places(session)}))
    return replace(
        by_file,
        unchanged=counted.unchanged,
        replaced=counted.replaced,
        staged_new=counted.new,
        lacking=counted.lacking,
    )


def _with_new_outside(session: SparkSession, edit: Edit, found: FoundRows) -> FoundRows:
    """The same, with the first new row that is outside the rows that the edit is limited to."""
    new = found.new
    if new is None or edit.within == EVERY_ROW:
        return found
    if RECORD_NUMBER not in new.column_names:
        new = new.append_column(RECORD_NUMBER, pa.array(range(new.num_rows), pa.int32()))
    with sql.viewed({sql.NEW: filled(session, edit, new)}):
        place = sql.first_outside(edit.within).on(session).collect()[0][0]
    places = [int(p) for p in (found.outside, place) if p is not None]
    return replace(found, outside=min(places, default=None))


def _some(rows: pa.Table) -> pa.Table | None:
    return rows if rows.num_rows else None


def filled(session: SparkSession, edit: Edit, rows: pa.Table) -> DataFrame:
    return fill(frame(session, rows), edit.derived)


def count_rows(session: SparkSession, source: str) -> int:
    return int(session.sql(f"SELECT count(*) FROM {source}").collect()[0][0])
