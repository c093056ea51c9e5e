"""Several local Parquet files joined to one, row group by row group, without reading a row.

Each task writes a file of its own, and writing takes longer than reading. So all cores write, and their files are
joined.
"""

from collections.abc import Sequence
from typing import Any

from service.engine.jobs.arrow_files import local_path
from service.engine.session.java import ICEBERG, iceberg_class, java_class
from service.engine.session.spark_types import SparkSession
from service.errors import InternalError

_READER = f"{ICEBERG}.shaded.org.apache.parquet.hadoop.ParquetFileReader"
_SCHEMA = "iceberg.schema"
_GROUP_BYTES = 8 << 20


def can_join(session: SparkSession, location: str) -> bool:
    """Whether a table's files are on local disk, and this process's JVM is all of Spark."""
    return location.startswith("file:") and str(session.sparkContext.master).startswith("local")


def joined(session: SparkSession, table: Any, parts: Sequence[str], files: int, *, like: Any, rows: int) -> Any:
    """So many files, as a Java set, joined of parts that are in the order of their rows; the parts are deleted.

    All parts are in the partition of the file `like`, and have `rows` rows together.
    """
    whole = iceberg_class("util.DataFileSet").create()
    size = -(-len(parts) // files)
    found = 0
    for i in range(0, len(parts), size):
        some = parts[i : i + size]
        file = _described(session, table, _join(table, some) if len(some) > 1 else some[0], like)
        found += int(file.recordCount())
        whole.add(file)
    if found != rows:
        raise InternalError(f"joining files made {found} rows of {rows}; nothing was changed")
    return whole


def joined_files(session: SparkSession, table: Any, parts: Sequence[Any], files: int) -> Any:
    """The same of parts that Iceberg has described."""
    if any(part.specId() != parts[0].specId() or part.partition() != parts[0].partition() for part in parts):
        raise InternalError("files of several partitions were to be joined; nothing was changed")
    rows = sum(int(part.recordCount()) for part in parts)
    return joined(session, table, [str(part.location()) for part in parts], files, like=parts[0], rows=rows)


def _join(table: Any, parts: Sequence[str]) -> str:
    folder, _, name = parts[0].rpartition("/")
    location = f"{folder}/joined-{name}"
    local = java_class("java.io.File")
    sources = [local(local_path(part)) for part in parts]
    footer = {_SCHEMA: iceberg_class("SchemaParser").toJson(table.schema())}
    iceberg_class("parquet.Parquet").concat(sources, local(local_path(location)), _GROUP_BYTES, table.schema(), footer)
    for part in parts:
        table.io().deleteFile(part)
    return location


def _described(session: SparkSession, table: Any, location: str, like: Any) -> Any:
    """A file as Iceberg describes it, with the figures of its footer."""
    source = table.io().newInputFile(location)
    config = iceberg_class("MetricsConfig").forTable(table)
    metrics = iceberg_class("parquet.ParquetUtil").fileMetrics(source, config)
    path = java_class("org.apache.hadoop.fs.Path")(location)
    footer = java_class(_READER).readFooter(session.sparkContext._jsc.hadoopConfiguration(), path)
    offsets = iceberg_class("parquet.ParquetUtil").getSplitOffsets(footer)
    spec = table.specs().get(like.specId())
    builder = iceberg_class("DataFiles").builder(spec)
    builder = builder.withPath(location).withFormat("parquet").withFileSizeInBytes(source.getLength())
    builder = builder.withMetrics(metrics).withSplitOffsets(offsets)
    if spec.isPartitioned():
        builder = builder.withPartition(like.partition())
    return builder.build()
