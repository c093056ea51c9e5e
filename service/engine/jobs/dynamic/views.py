"""The views of a refresh, in a session that is lent for it alone, and the rows that it keeps for several steps."""

from contextlib import ExitStack

import pyarrow as pa

from service.engine.jobs.append import small_frame
from service.engine.session.spark_types import DataFrame, SparkSession


class RefreshViews:
    """Temporary views and kept rows, until the stack unwinds."""

    def __init__(self, session: SparkSession, stack: ExitStack) -> None:
        self.session = session
        self.stack = stack

    def make(self, name: str, rows: DataFrame | str) -> str:
        """Call rows by a name in SQL; returns the name."""
        found = self.session.sql(rows) if isinstance(rows, str) else rows
        found.createOrReplaceTempView(name)
        self.stack.callback(self.session.catalog.dropTempView, name)
        return name

    def give(self, name: str, rows: pa.Table) -> str:
        """Call rows of this process by a name in SQL."""
        return self.make(name, small_frame(self.session, rows))

    def keep(self, name: str, rows: DataFrame | str) -> str:
        """The same, and the rows are computed only once: kept in memory, or on disk if there are many."""
        from pyspark import StorageLevel

        found = self.session.sql(rows) if isinstance(rows, str) else rows
        found.persist(StorageLevel.MEMORY_AND_DISK)
        self.stack.callback(found.unpersist)
        return self.make(name, found)

    def count(self, name: str) -> int:
        """How many rows a view has. If they are kept, Spark then knows how large they are when it plans joins."""
        return int(self.session.sql(f"SELECT count(*) FROM {name}").collect()[0][0])
