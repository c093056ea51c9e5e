"""Read chosen rows of a small table in this process, without a Spark job."""

from collections.abc import Iterator
from datetime import date
from typing import Any, cast

import pyarrow as pa
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThanOrEqual

from service.catalog.tables import Table
from service.catalog.translate import translated


def dated_rows(
    table: Table, column: str, first: date | None, last: date | None, **equal: str | None
) -> Iterator[pa.RecordBatch]:
    """The rows whose date is in a range, open if an end is None, and that have these values in other columns."""
    # PyIceberg declares only terms, but takes names and plain values.
    equals, from_, until = cast(Any, EqualTo), cast(Any, GreaterThanOrEqual), cast(Any, LessThanOrEqual)
    conditions = [equals(name, value) for name, value in equal.items() if value is not None]
    if first is not None:
        conditions.append(from_(column, first))
    if last is not None:
        conditions.append(until(column, last))
    with translated():
        scan = table.iceberg.scan(selected_fields=table.schema.names)
        for condition in conditions:
            scan = scan.filter(condition)
        with scan.to_arrow_batch_reader() as batches:
            yield from batches
