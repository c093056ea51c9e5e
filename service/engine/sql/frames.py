"""SQL over rows that have no name of their own."""

import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from service.engine.jvm import java_class
from service.engine.sql import run


@contextmanager
def named(session: SparkSession, rows: DataFrame) -> Iterator[str]:
    """A name for the rows in SQL text, for the block."""
    name = f"_firn_{uuids.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        session.catalog.dropTempView(name)


def over(
    session: SparkSession,
    rows: DataFrame,
    text: Callable[[str], str],
    values: Mapping[str, str | int | bool],
) -> DataFrame:
    """What a statement makes of the rows; `text` is given the name that they have in it."""
    with named(session, rows) as name:
        plan = run(session, text(name), values)._jdf.queryExecution().analyzed()
    # A writer would look up the names in a statement's own plan again.
    return DataFrame(java_class("org.apache.spark.sql.classic.Dataset").ofRows(session._jsparkSession, plan), session)
