"""An UPSERT of some thousand records in a commit of its own, found and applied in this process: Spark only writes rows.

It holds no lock meanwhile, unlike edits that share a commit, so it may be larger than these.
"""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.key_lookup import find_keys, key_tuples, read_files
from service.catalog.tables import Table
from service.edits.keyed import keyed_change
from service.engine.jobs.edit import EditBase, FoundRows
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.session.rows import arrow_schema
from service.model.edits import Edit
from service.model.keyed.apply import KeyedRows, apply_changes
from service.model.keyed.changes import PutRows, RowPlace

# More records than this are joined by Spark.
_MOST_RECORDS = 20_000


@dataclass(frozen=True)
class AppliedUpsert:
    """What an UPSERT does, and the rows that come."""

    rows: FoundRows
    new: pa.Table


def apply_upsert(table: Table, base: EditBase, edit: Edit) -> AppliedUpsert | None:
    """Apply an UPSERT to the table's current state; None if Spark should, or if files are to be written again."""
    if base.snapshot_id is None or base.only is not None or base.row_level == "copy_on_write":
        return None
    change = keyed_change(table, edit, most=_MOST_RECORDS)
    if not isinstance(change, PutRows):
        return None
    try:
        return _applied(table, base, change)
    except (TooManyRows, UnreadableFile):
        return None


def _applied(table: Table, base: EditBase, change: PutRows) -> AppliedUpsert | None:
    hits = find_keys(table, [change.rows.select(list(change.how.keys)).combine_chunks()])
    positions = hits.positions(hits.files)
    columns = pa.schema([pa.field(c.name, c.type) for c in arrow_schema(table.schema)])
    read = read_files(table, sorted(positions), columns, positions)
    places = [RowPlace(path, position) for path, at in positions.items() for position in at]
    found = KeyedRows(pa.concat_tables([columns.empty_table(), *(read[path] for path in positions)]), places)
    applied = apply_changes(columns, found, [change])
    [done] = applied.changes
    if done.refusal is not None:
        raise done.refusal
    files = Counter(place.file for place in applied.gone)
    if base.whole(files) or base.rewritten(files):
        return None
    [by_key] = hits.by_key.values()
    is_new = [key not in by_key for key in key_tuples(change.rows.select(list(change.how.keys)))]
    new = change.rows.filter(pa.array(is_new, pa.bool_()))
    gone = pa.table(
        {"file": [place.file for place in applied.gone], "pos": [place.position for place in applied.gone]},
        pa.schema({"file": pa.string(), "pos": pa.int64()}),
    )
    rows = FoundRows(
        dict(files),
        done.counts.updated,
        unchanged=done.counts.unchanged,
        new=new if new.num_rows else None,
        scanned_files=hits.scanned_files,
        places=FoundPlaces(rows=gone),
    )
    return AppliedUpsert(rows, applied.new)
