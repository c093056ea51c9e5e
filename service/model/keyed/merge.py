"""Merge many records into the rows with their keys, column by column. It means the same as `apply_changes` for one
request, which applies few records of many requests row by row."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from service.model.edits import SENT_PREFIX, MergeRule


def merge_records(
    schema: pa.Schema, old: pa.Table, records: pa.Table, numbers: Sequence[int], how: MergeRule
) -> tuple[pa.ChunkedArray, pa.Table]:
    """Which of some rows their records change, and all of the rows with the records' values.

    `numbers` has the number of the record for each row.
    """
    sent = records.take(pa.array(numbers, pa.int64()))
    changed = pa.chunked_array([pa.repeat(pa.scalar(False), old.num_rows)])
    columns = []
    for column in schema:
        was = old[column.name]
        new = was
        if column.name in how.update:
            new = sent[column.name].cast(column.type)
            if column.name in how.partly_sent:
                new = pc.if_else(sent[SENT_PREFIX + column.name], new, was)
            changed = pc.or_(changed, pc.invert(_same(was, new)))
        columns.append(new)
    return changed, pa.Table.from_arrays(columns, schema=schema)


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether values are the same to Spark: nulls are, and so is NaN; -0.0 is 0.0."""
    equal = pc.fill_null(pc.equal(one, other), False)
    if kinds.is_floating(one.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(other)))
