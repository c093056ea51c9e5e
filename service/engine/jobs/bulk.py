"""The job that writes staged rows into a table's own files, without committing them."""

from collections.abc import Sequence
from contextlib import nullcontext

from service.engine.iceberg.staging import StagedFiles
from service.engine.jobs.append import stage
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.tags import marked
from service.engine.sql.derived import fill
from service.engine.sql.failing import computed_columns, identifying, naming_failures
from service.engine.sql.transforms import hashes_uuid
from service.model.schema.derived import DerivedColumn
from service.model.schema.partition import PartitionField
from service.model.schema.types import TableSchema

# Splits end where row groups do; without room for one more, the last few would need another task.
_GROUP_BYTES = 5 << 20


def move(
    session: SparkSession,
    source: str,
    target: str,
    size: int,
    *,
    schema: TableSchema,
    partition: Sequence[PartitionField],
    derived: Sequence[DerivedColumn] = (),
    tag: str = "bulk",
) -> StagedFiles:
    """Write the rows of `source`, which take about `size` bytes there, into files of `target` for a later commit. The
    Spark jobs have the tag.

    Derived columns that are null in a row are computed. If the job is cancelled, it fails and deletes what it wrote.
    """
    rows = read_staged(session, source, size)
    naming = naming_failures(session, computed_columns(derived), identifying(schema), lambda: nullcontext(source))
    with naming, marked(session, tag):
        return stage(session, target, fill(rows, derived), _options(schema, partition))


def read_staged(session: SparkSession, source: str, size: int) -> DataFrame:
    """The rows of an internal table, which take about `size` bytes there."""
    # One task per core: fewer tasks write fewer files. A task closes each file at its target size.
    cores = session.sparkContext.defaultParallelism
    split = -(-size // cores) + _GROUP_BYTES
    return session.read.option("split-size", str(split)).option("file-open-cost", "1").table(source)


def _options(schema: TableSchema, partition: Sequence[PartitionField]) -> dict[str, str]:
    """Group rows by partition and, if possible, write one partition after another: an open file for each partition
    would take too much memory."""
    if not partition:
        return {}
    return {"distribution-mode": "hash", "fanout-enabled": "true" if hashes_uuid(partition, schema) else "false"}
