"""The views of a refresh, in a session that is lent for it alone, and the rows that it keeps for several steps."""

from contextlib import ExitStack

import pyarrow as pa

from service.engine.jobs.append import small_frame
from service.engine.session.java import java_class
from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame, SparkSession

_KEPT = "org.apache.spark.sql.execution.columnar.InMemoryRelation$"


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
        """The same, and the rows are computed only once: kept in memory, or on disk if there are many.

        What reads them has them as one leaf of its plan. Spark's own `persist` would leave the whole plan below it,
        which is analysed again wherever it is read: a plan of forty steps has as many leaves as they have paths. It
        would also share equal plans with other refreshes, whose end removes the rows.
        """
        found = self.session.sql(rows) if isinstance(rows, str) else rows
        level = java_class("org.apache.spark.storage.StorageLevel").MEMORY_AND_DISK()
        none = java_class("scala.Option").empty()
        kept = getattr(java_class(_KEPT), "MODULE$").apply(level, found._jdf.queryExecution(), none)
        self.stack.callback(kept.cacheBuilder().clearCache, False)
        return self.make(name, planned(self.session, kept))

    def count(self, name: str) -> int:
        """How many rows a view has. If they are kept, Spark then knows how large they are when it plans joins."""
        return int(self.session.sql(f"SELECT count(*) FROM {name}").collect()[0][0])
