"""Appends, and edits of few rows, in two steps: Spark, or for many rows Arrow, writes the data files, then Iceberg
commits them, stamped with a batch id.

The first step may take long and changes nothing that a reader sees. The second is short; its gate is checked before
each attempt, because another writer may commit first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.engine.iceberg.replace import append_files
from service.engine.iceberg.row_replacement import RowReplacement, commit_rows
from service.engine.iceberg.staging import StagedFiles, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, no_gate, swap
from service.engine.iceberg.tables import current
from service.engine.jobs.arrow.stage import stage_here
from service.engine.session.java import java_class
from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.derived import fill
from service.engine.sql.failing import naming_new_rows
from service.model.schema.derived import DerivedColumn

_PYTHON = "org.apache.spark.sql.api.python.PythonSQLUtils"
# Py4J carries bytes as base64 text; larger tables go through a file, as createDataFrame sends them.
_SMALL_BYTES = 256 * 1024
# For fewer rows than this, most of the time of a Spark job does not depend on their number.
_MANY_ROWS = 1000


@dataclass(frozen=True)
class SharedReplacement:
    """Rows of a snapshot that go, and rows that come. `rows` are the latter, and the other rows of `removed` files."""

    snapshot_id: int | None
    removed: Mapping[str, int]
    """The files that are removed, with the number of rows that the metadata counts in each."""
    deleted: Mapping[str, Sequence[int]]
    """The positions of rows that go in files that stay."""
    rows: pa.Table
    expected: int
    """How many rows there must be, by the metadata and what the edits counted."""
    summary: Mapping[str, str] = field(default_factory=dict)


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
    """Add rows in one commit, and return its snapshot's id. Derived columns that are null in a row are computed.

    Raises TableChanged if the table was replaced, or if its schema or the ranges that split it changed.
    """
    iceberg = CommitTarget(session, table, uuid, schema_id).load()
    staged = _staged(session, iceberg, rows, derived)
    target = CommitTarget(session, table, uuid, schema_id, staged.ranges)
    return swap(target, iceberg, append_files(iceberg, staged.files, batch), lambda _: gate(), staged.discard)


def replace_rows(
    session: SparkSession,
    table: str,
    what: SharedReplacement,
    batch: str,
    *,
    uuid: str,
    schema_id: int,
    gate: Gate = no_gate,
) -> int:
    """Replace rows in one commit, and return its snapshot's id. Raises what `commit_rows` raises."""
    target = CommitTarget(session, table, uuid, schema_id)
    iceberg = target.load()
    staged = StagedFiles(iceberg.io(), ())
    if what.rows.num_rows:
        staged = stage_rows(iceberg, small_frame(session, what.rows))
    places = {path: pa.array(positions, pa.int64()) for path, positions in what.deleted.items()}
    change = RowReplacement(batch, what.snapshot_id, staged, what.expected, places, what.removed, what.summary)
    return commit_rows(target, change, gate, iceberg=iceberg)


def stage(session: SparkSession, table: str, df: DataFrame, options: Mapping[str, str] | None = None) -> StagedFiles:
    """Write rows with the table's columns into data files of the table. `options` are Iceberg's write options."""
    return stage_rows(current(session, table), df, options)


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
    """Add staged files in one commit, as `append` does. If it fails, the files stay."""
    target = CommitTarget(session, table, uuid, schema_id, staged.ranges)
    iceberg = target.load()
    return swap(target, iceberg, append_files(iceberg, staged.files, batch), lambda _: gate())


def discard(_: SparkSession, staged: StagedFiles) -> None:
    """Delete staged files; only if it is certain that no snapshot has them."""
    staged.discard()


def _staged(session: SparkSession, iceberg: Any, rows: pa.Table, derived: Sequence[DerivedColumn]) -> StagedFiles:
    """Files with the rows. If these are many, Arrow writes them, if it can for this table."""
    if rows.num_rows >= _MANY_ROWS and not derived and (staged := stage_here(session, iceberg, [rows])) is not None:
        return staged
    with naming_new_rows(session, rows, derived):
        return stage_rows(iceberg, fill(small_frame(session, rows), derived))


def small_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a DataFrame, fast if they are few."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    if rows.nbytes > _SMALL_BYTES:
        return frame(session, rows)
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True).json()
    messages = java_class("java.util.ArrayList")()
    for batch in rows.combine_chunks().to_batches():
        messages.add(batch.serialize().to_pybytes())
    batches = java_class("scala.jdk.javaapi.CollectionConverters").asScala(messages.iterator())
    return DataFrame(java_class(_PYTHON).toDataFrame(batches, schema, session._jsparkSession), session)
