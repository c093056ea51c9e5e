"""SQL over rows that have no name of their own."""

import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.sql import run


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
    """The result of a statement over the rows; `text` is given their name in it."""
    with named(session, rows) as name:
        plan = run(session, text(name), values)._jdf.queryExecution().analyzed()
    # A writer would resolve the names in the statement's own plan again, and the name is gone.
    return planned(session, plan)
