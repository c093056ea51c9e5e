"""Edits in three steps: which rows, in which files; those files written anew; old ones out and new ones in."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from service.changes import PLACE, ByFilter, ByKey, Edit, Repeats
from service.derived import Derived
from service.engine import edit_sql as sql
from service.engine import pick
from service.engine.append import staging, write_staged
from service.engine.derived import fill
from service.engine.publish import Publication, Sums, publish
from service.engine.rows import collect, frame, json_rows
from service.engine.scans import read, scans
from service.engine.sql import at_snapshot
from service.engine.swap import Staged, Tag, Target
from service.engine.tables import current
from service.errors import CommitConflict
from service.names import EDIT_PROPERTY, KEYS_PROPERTY
from service.predicates import EVERY_ROW

# Above this, rows are put together by partition before they are written, so that few files come of many.
_SHUFFLED_BYTES = 128 << 20


@dataclass(frozen=True)
class Base:
    """The table that an edit is made for, and the state it is made on."""

    name: str
    uuid: str
    schema_id: int
    snapshot_id: int | None
    readable_by_id: bool
    """Whether reading the snapshot by its id shows the table's present columns."""
    rows: Mapping[str, int]
    """Of each data file, as the metadata has them."""
    bytes: Mapping[str, int]
    has_deletes: bool
    """Whether some of those rows are deleted, by files beside."""
    only: frozenset[str] | None = None
    """The files to look into, where Spark could not choose them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no file to look into."""
        return self.snapshot_id is None or (self.only is not None and not self.only)


@dataclass(frozen=True)
class Found:
    """What an edit concerns: rows by file, and records that are new."""

    files: Mapping[str, int]
    hits: int
    """Rows that change or go."""
    unchanged: int = 0
    """Rows that a record has the key of, and that say the same already."""
    new: pa.Table | None = None
    changed_records: pa.Table | None = None
    scanned_files: int = 0
    digest: str = ""
    outside: int | None = None
    """The place of the first record that would lie outside of what the edit is kept to."""


@dataclass(frozen=True)
class Sample:
    """A row before and after; None where it is not there."""

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True)
class Order:
    """How an edit is to be committed."""

    batch: str
    counts: Callable[[Found], Mapping[str, int]]
    """What the snapshot's summary is to say of it."""
    check: Callable[[Found], None]
    """Raises where what was found must not be done."""
    leave: Callable[[], None]
    """Raises where the batch is no longer ours; asked when nothing but the commit is left to do."""
    tag: Tag | None = None
    digest: bool = False


def preview(session: SparkSession, base: Base, edit: Edit, limit: int) -> tuple[Found, list[Sample]]:
    """What an edit would concern, with a digest of it, and some of the rows before and after; nothing is written.

    Every new value is computed: what fails here would fail in the commit.
    """
    with _finding(session, base, edit, sql.Wanted(digest=True, values=True)) as (found, source):
        if found.new is not None and edit.derived:
            with sql.viewed(session, **sql.new_rows(_filled(session, found.new, edit.derived))):
                sql.new_computed(edit).on(session).collect()
        return found, _samples(session, edit, found, source, limit)


def apply(session: SparkSession, base: Base, edit: Edit, order: Order) -> Found:
    """Make an edit in one commit, unless it changes nothing."""
    with _finding(session, base, edit, sql.Wanted(order.digest)) as (found, _):
        order.check(found)
        if found.files or found.new is not None:
            _commit(session, base, edit, found, order)
        return found


@contextmanager
def _finding(session: SparkSession, base: Base, edit: Edit, want: sql.Wanted) -> Iterator[tuple[Found, str]]:
    """The rows that an edit concerns, and where they were read; what its later steps need is there during the block."""
    which, schema = edit.which, edit.schema
    source = at_snapshot(base.name, base.snapshot_id if base.readable_by_id else None)
    with ExitStack() as stack:
        if base.snapshot_id is not None and base.only:
            iceberg = current(session, base.name)
            source = stack.enter_context(staging(iceberg, pick.tasks(iceberg, base.snapshot_id, base.only)))
        if isinstance(which, ByKey):
            stack.enter_context(sql.viewed(session, **sql.records_of(which.records)))
            found = _met(session, base, edit, which, source, want)
        elif base.is_empty:
            found = Found({}, 0, new=edit.added, digest="0:0")
        elif isinstance(which, Repeats):
            outputs = sql.places_outputs(schema, want.digest)
            places = sql.repeats(which, schema, source, outputs).on(session).persist(StorageLevel.DISK_ONLY)
            stack.callback(places.unpersist)
            stack.enter_context(sql.viewed(session, **sql.places(places)))
            found = _by_file(base, sql.places_by_file(want.digest).on(session), places, None)
        elif which.predicate == EVERY_ROW and not base.has_deletes and not want.digest and which.assignments is None:
            found = Found(base.rows, sum(base.rows.values()), new=edit.added)
        else:
            counted = sql.hits_by_file(edit, which, source, want).on(session)
            found = _by_file(base, counted, counted, edit.added)
        if not base.readable_by_id and base.snapshot_id is not None:
            _must_be_head(session, base)
        yield _with_new_outside(session, edit, found), source


def _by_file(base: Base, counted: DataFrame, reading: DataFrame, added: pa.Table | None) -> Found:
    table = collect(counted)
    files = dict(zip(table["file"].to_pylist(), table["hits"].to_pylist(), strict=True))
    hits, digest = sum(files.values()), ""
    if "digest" in table.column_names:
        digest = f"{hits}:{sum(int(d) for d in table['digest'].to_pylist())}"
    return Found(files, hits, new=added, scanned_files=_scanned(base, reading), digest=digest)


def _scanned(base: Base, reading: DataFrame) -> int:
    if base.only is not None:
        return len(base.only)
    return read(scans(reading._jdf.queryExecution().executedPlan()))[0]


def _met(session: SparkSession, base: Base, edit: Edit, which: ByKey, source: str, want: sql.Wanted) -> Found:
    records = which.records
    if base.is_empty or not records.num_rows:
        return Found({}, 0, new=_some(records), digest="0:0")
    asked = sql.met(edit, which, source, want).on(session)
    table = collect(asked)
    changed = table.filter(table["changed"])
    files = {
        entry["values"]: entry["counts"] for entry in pc.value_counts(changed["file"].combine_chunks()).to_pylist()
    }
    places = records[PLACE]
    is_met = pc.is_in(places, value_set=table["place"].combine_chunks())
    new = _some(records.filter(pc.invert(is_met)))
    outside = pc.min(table.filter(table["outside"])["place"]).as_py() if "outside" in table.column_names else None
    said = f"{table.num_rows}:{sum(int(h) for h in table['hash'].to_pylist())}" if want.digest else ""
    return Found(
        files,
        changed.num_rows,
        unchanged=table.num_rows - changed.num_rows,
        new=new,
        changed_records=_some(records.filter(pc.is_in(places, value_set=changed["place"].combine_chunks()))),
        scanned_files=_scanned(base, asked),
        digest=said,
        outside=outside,
    )


def _with_new_outside(session: SparkSession, edit: Edit, found: Found) -> Found:
    """The same, having looked where the rows lie that are new."""
    new = found.new
    if new is None or edit.within == EVERY_ROW:
        return found
    if PLACE not in new.column_names:
        new = new.append_column(PLACE, pa.array(range(new.num_rows), pa.int32()))
    with sql.viewed(session, **sql.new_rows(_filled(session, new, edit.derived))):
        place = sql.first_outside(edit.within).on(session).collect()[0][0]
    places = [int(p) for p in (found.outside, place) if p is not None]
    return replace(found, outside=min(places, default=None))


def _some(rows: pa.Table) -> pa.Table | None:
    return rows if rows.num_rows else None


def _samples(session: SparkSession, edit: Edit, found: Found, source: str, limit: int) -> list[Sample]:
    names = edit.schema.names
    samples: list[Sample] = []
    if found.hits:
        rows = collect(sql.shown(edit, source, limit).on(session))
        count = len(names)
        before = json_rows(rows.select(range(count)).rename_columns(list(names)))
        after: list[Any] = [None] * len(before)
        if rows.num_columns > count:
            after = json_rows(rows.select(range(count, 2 * count)).rename_columns(list(names)))
        samples = [Sample(b, a) for b, a in zip(before, after, strict=True)]
    if found.new is not None:
        # Of an edit that takes rows away and brings others, some of both.
        kept = samples[: max(limit // 2, limit - found.new.num_rows)]
        added = found.new.select(list(names)).slice(0, limit - len(kept))
        if edit.derived:
            added = collect(fill(session, frame(session, added), edit.derived))
        samples = [*kept, *(Sample(None, row) for row in json_rows(added))]
    return samples


def _filled(session: SparkSession, rows: pa.Table, derived: Sequence[Derived]) -> pa.Table | DataFrame:
    return fill(session, frame(session, rows), derived) if derived else rows


def _commit(session: SparkSession, base: Base, edit: Edit, found: Found, order: Order) -> None:
    target = Target(session, base.name, base.uuid, base.schema_id)
    iceberg = target.load()
    goes = not isinstance(edit.which, ByKey) and not (
        isinstance(edit.which, ByFilter) and edit.which.assignments is not None
    )
    # A file all of whose rows go need not be read.
    whole = {p for p, hits in found.files.items() if goes and not base.has_deletes and hits == base.rows.get(p)}
    tasks = reading = None
    if found.files and base.snapshot_id is not None:
        tasks = reading = pick.tasks(iceberg, base.snapshot_id, found.files)
        if whole:
            reading = pick.tasks(iceberg, base.snapshot_id, found.files.keys() - whole)
    staged, live = _staged(session, iceberg, base, edit, found, reading)
    inserted = 0 if found.new is None else found.new.num_rows
    deleted = found.hits if goes else 0
    listed = sum(base.rows.get(path, 0) for path in found.files)
    held = listed if live is None else live + sum(base.rows[path] for path in whole)
    said = {EDIT_PROPERTY: json.dumps(order.counts(found))}
    if isinstance(edit.which, ByKey):
        said[KEYS_PROPERTY] = json.dumps(edit.which.how.keys)
    sums = Sums(held, listed, deleted, inserted)
    what = Publication(order.batch, base.snapshot_id, tasks, staged, sums, said, order.leave, order.tag)
    publish(target, iceberg, what)


def _staged(
    session: SparkSession, iceberg: Any, base: Base, edit: Edit, found: Found, reading: Any
) -> tuple[Staged, int | None]:
    """What the files become, written; and how many rows they held, where metadata does not tell."""
    views: dict[str, Any] = {}
    if found.new is not None:
        views |= sql.new_rows(_filled(session, found.new, edit.derived))
    if found.changed_records is not None:
        views |= sql.records_of(found.changed_records)
    live: int | None = None
    with ExitStack() as stack:
        stack.enter_context(sql.viewed(session, **views))
        rows: sql.Statement | None = None
        size = 0
        if reading is not None and reading.size():
            source = stack.enter_context(staging(iceberg, reading))
            rows = sql.rewritten(edit, source)
            if base.has_deletes:
                live = int(session.sql(f"SELECT count(*) FROM {source}").collect()[0][0])
            size = sum(base.bytes[path] for path in found.files)
        if found.new is not None:
            rows = sql.with_new(rows, edit.schema)
        if rows is None:
            return Staged(iceberg.io(), ()), live
        options = {"distribution-mode": "hash"} if size > _SHUFFLED_BYTES else {}
        return write_staged(session, iceberg, rows.on(session)._jdf, options), live


def _must_be_head(session: SparkSession, base: Base) -> None:
    """What was read was the table's head: it must have been the state that the edit is made on."""
    head = current(session, base.name).currentSnapshot()
    if head is None or int(head.snapshotId()) != base.snapshot_id:
        raise CommitConflict("another writer changed the table meanwhile; try again")
