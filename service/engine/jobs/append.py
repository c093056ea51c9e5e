"""Appends in two steps: Spark writes the data files, then Iceberg commits them, stamped with a batch id.

The first step may take long and changes nothing that a reader sees. The second is short and returns the snapshot it
made; its gate is asked before each try, since another writer may be quicker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from service.engine.iceberg.replace import append_files
from service.engine.iceberg.staging import StagedFiles, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, no_gate, swap
from service.engine.iceberg.tables import current
from service.engine.session.java import java_class
from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.derived import fill
from service.model.schema.derived import DerivedColumn

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
    derived: Sequence[DerivedColumn] = (),
    gate: Gate = no_gate,
) -> int:
    """Add rows in one commit, and return its snapshot's id. A derived column that is null in a row is computed.

    TableChanged if the table was replaced, or its schema or the ranges that split it changed.
    """
    from pyspark.sql import DataFrame

    target = CommitTarget(session, table, uuid, schema_id)
    iceberg = target.load()
    jdf = _frame(session, rows)
    if derived:
        jdf = fill(session, DataFrame(jdf, session), derived)._jdf
    staged = stage_rows(session, iceberg, jdf)
    target = replace(target, ranges=staged.ranges)
    return swap(target, iceberg, append_files(iceberg, staged.files, batch), lambda _: gate(), staged.discard)


def stage(session: SparkSession, table: str, df: DataFrame, options: Mapping[str, str] | None = None) -> StagedFiles:
    """Write the rows of a frame, whose columns are the table's, into data files of the table.

    `options` are Iceberg's write options.
    """
    return stage_rows(session, current(session, table), df._jdf, options)


def commit(
    session: SparkSession,
    table: str,
    staged: StagedFiles,
    batch: str,
    *,
    uuid: str,
    schema_id: int | None = None,
    gate: Gate = no_gate,
) -> int:
    """Add staged files in one commit, as `append` does; if it fails, they stay."""
    target = CommitTarget(session, table, uuid, schema_id, staged.ranges)
    iceberg = target.load()
    return swap(target, iceberg, append_files(iceberg, staged.files, batch), lambda _: gate())


def discard(_: SparkSession, staged: StagedFiles) -> None:
    """Delete staged files; only if certainly no snapshot holds them."""
    staged.discard()


def _frame(session: SparkSession, rows: pa.Table) -> Any:
    """The rows as the JVM's DataFrame."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if rows.nbytes > _SMALL_BYTES:
        return frame(session, rows)._jdf
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    messages = java_class("java.util.ArrayList")()
    for batch in rows.combine_chunks().to_batches():
        messages.add(batch.serialize().to_pybytes())
    scala = java_class("scala.jdk.javaapi.CollectionConverters")
    return java_class(_PYTHON).toDataFrame(scala.asScala(messages.iterator()), schema.json(), session._jsparkSession)
