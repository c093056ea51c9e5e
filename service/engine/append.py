"""Appends in two steps: Spark writes the data files, then Iceberg commits them, stamped with a batch id.

The first step may take long and changes nothing that a reader sees; the second is short and says which snapshot it
made. Whoever asks for the second has the last word, once more each time that another writer was quicker.
"""

import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from service.derived import Derived
from service.engine.derived import fill
from service.engine.jvm import java_class
from service.engine.ranges import ranged
from service.engine.rows import frame
from service.engine.swap import Staged, Target, append_files, swap
from service.engine.tables import current
from service.ranges import RANGES

# Where Iceberg's compaction finds the tables it rewrites: a write there leaves its files for someone else to commit.
STAGING = "default_rewrite_catalog"
_ICEBERG = "org.apache.iceberg"
_SPARK = f"{_ICEBERG}.spark"
_PYTHON = "org.apache.spark.sql.api.python.PythonSQLUtils"
# Py4J carries bytes as base64 text; more go through a file, as createDataFrame sends them.
_SMALL_BYTES = 256 * 1024


def append(
    session: SparkSession,
    table: str,
    rows: pa.Table,
    batch: str,
    *,
    uuid: str,
    schema_id: int,
    derived: Sequence[Derived] = (),
    before_commit: Callable[[], object] = lambda: None,
) -> int:
    """Add rows in one commit; the snapshot it made. Moved when the table is another one, or its schema is, or the
    ranges that it is split by, by now.

    Where a derived column of a row is null, it is worked out.

    `before_commit` runs when everything is written and what the commit builds on is settled: once more each time that
    another writer was quicker. What it raises keeps the rows from being committed.
    """
    target = Target(session, table, uuid, schema_id)
    iceberg = target.load()
    jdf = _frame(session, rows)
    if derived:
        jdf = fill(session, DataFrame(jdf, session), derived)._jdf
    staged = write_staged(session, iceberg, jdf)
    target = replace(target, ranges=staged.ranges)
    update = append_files(iceberg, staged, batch)
    return swap(target, iceberg, update, lambda _: before_commit(), lambda: discard(session, table, staged))


def stage(session: SparkSession, table: str, df: DataFrame, options: Mapping[str, str] | None = None) -> Staged:
    """Write the rows of a frame, whose columns are the table's, into data files of the table.

    `options` are Iceberg's write options.
    """
    return write_staged(session, current(session, table), df._jdf, options)


def commit(
    session: SparkSession,
    table: str,
    staged: Staged,
    batch: str,
    *,
    uuid: str,
    schema_id: int | None = None,
    before_commit: Callable[[], object] = lambda: None,
) -> int:
    """Add staged files in one commit, as `append` does; if it fails, they stay. Moved when the table is another one by
    now, or is split by other points.
    """
    target = Target(session, table, uuid, schema_id, staged.ranges)
    iceberg = target.load()
    return swap(target, iceberg, append_files(iceberg, staged, batch), lambda _: before_commit())


def discard(session: SparkSession, table: str, staged: Staged) -> None:
    """Delete staged files; only those that certainly no snapshot holds."""
    for path in staged.paths:
        staged.io.deleteFile(path)


def _frame(session: SparkSession, rows: pa.Table) -> Any:
    """The rows as the JVM's DataFrame."""
    if rows.nbytes > _SMALL_BYTES:
        return frame(session, rows)._jdf
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    batches = rows.combine_chunks().to_batches()
    messages = java_class("java.util.ArrayList")()
    for batch in batches:
        messages.add(batch.serialize().to_pybytes())
    scala = java_class("scala.jdk.javaapi.CollectionConverters")
    return java_class(_PYTHON).toDataFrame(scala.asScala(messages.iterator()), schema.json(), session._jsparkSession)


@contextmanager
def staging(iceberg: Any, tasks: Any) -> Iterator[str]:
    """What reads the rows of scan tasks, and nothing else, in SQL during the block."""
    name = uuids.uuid4().hex
    tables = java_class(f"{_SPARK}.SparkTableCache").get()
    sets = java_class(f"{_SPARK}.ScanTaskSetManager").get()
    tables.add(name, iceberg)
    sets.stageTasks(iceberg, name, tasks)
    try:
        yield f"{STAGING}.`{name}`"
    finally:
        tables.remove(name)
        sets.removeTasks(iceberg, name)


def write_staged(session: SparkSession, iceberg: Any, jdf: Any, options: Mapping[str, str] | None = None) -> Staged:
    """Write the rows of the JVM's frame, whose columns are the table's, into data files that no snapshot holds."""
    ranges = str(iceberg.properties().get(RANGES) or "")
    jdf = ranged(session, iceberg, ranges, jdf)
    name = uuids.uuid4().hex
    tables = java_class(f"{_SPARK}.SparkTableCache").get()
    staging = java_class(f"{_SPARK}.FileRewriteCoordinator").get()
    tables.add(name, iceberg)
    try:
        writer = jdf.writeTo(f"{STAGING}.`{name}`")
        for option, value in (options or {}).items():
            writer = writer.option(option, value)
        writer.append()
        return Staged(iceberg.io(), tuple(each(staging.fetchNewFiles(iceberg, name))), ranges)
    finally:
        tables.remove(name)
        staging.clearRewrite(iceberg, name)


def each(items: Any) -> Iterator[Any]:
    """Py4J's own loop ends with an exception, whose translation takes longer than a commit."""
    iterator = items.iterator()
    while iterator.hasNext():
        yield iterator.next()
