"""An UPSERT of some thousand records in a commit of its own, found and applied in this process: Spark only writes rows.

It holds no lock meanwhile, unlike edits that share a commit, so it may be larger than these.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.key_lookup import KeyHits, find_keys, key_tuples, read_files
from service.catalog.tables import Table
from service.edits.keyed import keyed_change
from service.engine.jobs.edit import EditBase, FoundRows
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.jobs.edits.publish import AppliedRows
from service.engine.session.rows import plain_columns
from service.model.edits import Edit
from service.model.keyed.changes import PutRows
from service.model.keyed.merge import merge_records
from service.model.keyed.pool import with_columns, without

# More records than this are joined by Spark, and the rows of more files are read by it: by several tasks.
_MOST_RECORDS = 20_000
_MOST_FILES = 500
# So much of the files that are written again is read here; more is left to Spark.
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class AppliedUpsert:
    """What an UPSERT does, and the rows that come."""

    rows: FoundRows
    come: AppliedRows


def apply_upsert(table: Table, base: EditBase, edit: Edit) -> AppliedUpsert | None:
    """Apply an UPSERT to the table's current state; None if Spark should."""
    if base.snapshot_id is None or base.only is not None or base.row_level == "copy_on_write":
        return None
    if len(base.rows) > _MOST_FILES:
        return None
    change = keyed_change(table, edit, most=_MOST_RECORDS)
    if not isinstance(change, PutRows):
        return None
    try:
        return _applied(table, base, change)
    except (TooManyRows, UnreadableFile):
        return None


def _applied(table: Table, base: EditBase, change: PutRows) -> AppliedUpsert | None:
    records = change.rows.combine_chunks()
    keys = records.select(list(change.how.keys))
    hits = find_keys(table, [keys])
    [by_key] = hits.by_key.values()
    numbered = list(enumerate(key_tuples(keys)))
    places = sorted(
        (path, position, number)
        for number, key in numbered
        for path, positions in by_key.get(key, {}).items()
        for position in positions
    )
    schema = plain_columns(table.schema)
    paths, at, numbers = zip(*places, strict=True) if places else ((), (), ())
    found = pa.table({"file": pa.array(paths, pa.string()), "pos": pa.array(at, pa.int64())})
    positions = {path: [position for _, position, _ in some] for path, some in groupby(places, itemgetter(0))}
    read = read_files(table, positions, schema, positions)
    old = pa.concat_tables([schema.empty_table(), *(read[path] for path in positions)])
    changed, rows = merge_records(schema, old, records, numbers, change.how)
    gone = found.filter(changed)
    files = Counter(gone["file"].to_pylist())
    again = base.rewritten(files) | base.whole(files)
    if base.bytes_of(again) > _MOST_BYTES:
        return None
    new = records.filter(pa.array([key not in by_key for _, key in numbered], pa.bool_()))
    done = FoundRows(
        dict(files),
        gone.num_rows,
        unchanged=len(places) - gone.num_rows,
        new=new if new.num_rows else None,
        scanned_files=hits.scanned_files,
        places=FoundPlaces(rows=gone),
    )
    others = _other_rows(table, schema, done.places.in_files(again), hits)
    come = pa.concat_tables([others, rows.filter(changed), with_columns(schema, new)])
    return AppliedUpsert(done, AppliedRows(come, others.num_rows, again))


def _other_rows(table: Table, schema: pa.Schema, gone: Mapping[str, pa.Array], hits: KeyHits) -> pa.Table:
    """The rows that stay of files that are written again, given the positions of those that go."""
    parts = [schema.empty_table()]
    for path, rows in read_files(table, sorted(gone), schema).items():
        parts.append(without(rows, [*gone[path].to_pylist(), *hits.deleted.get(path, ())]))
    return pa.concat_tables(parts)
