"""Jobs that put rows into a table: one Iceberg commit each, stamped with its batch id."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from service.derived import Derived
from service.engine.derived import fill
from service.engine.rows import frame
from service.names import BATCH_PROPERTY

STAMP = f"snapshot-property.{BATCH_PROPERTY}"


def overwrite(session: SparkSession, table: str, rows: pa.Table, batch: str, derived: Sequence[Derived] = ()) -> None:
    """Replace every row, in one commit: readers see the old table or the new one.

    Where a derived column of a row is null, it is worked out.
    """
    df = frame(session, rows)
    if derived:
        df = fill(session, df, derived)
    df.writeTo(table).option(STAMP, batch).overwrite(lit(True))


@contextmanager
def stamped(session: SparkSession, batch: str) -> Iterator[None]:
    """Stamp what SQL statements commit on this session meanwhile; they take no options of their own."""
    key = f"spark.sql.iceberg.{STAMP}"
    session.conf.set(key, batch)
    try:
        yield
    finally:
        session.conf.unset(key)
