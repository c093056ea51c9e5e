"""SQL over rows that are in no table."""

import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from service.engine.session.rows import planned
from service.engine.session.spark_types import DataFrame
from service.engine.sql.sql import run


@contextmanager
def named(rows: DataFrame) -> Iterator[str]:
    """A name for the rows in SQL, for the block."""
    name = f"_firn_{uuids.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


def over(rows: DataFrame, text: Callable[[str], str], values: Mapping[str, str | int | bool]) -> DataFrame:
    """The result of a statement over the rows; `text` is given their name in it."""
    with named(rows) as name:
        plan = run(rows.sparkSession, text(name), values)._jdf.queryExecution().analyzed()
    # A writer would resolve the names in the statement's own plan again, and the name no longer exists.
    return planned(rows.sparkSession, plan)
