"""Files that Arrow writes instead of Spark: for which tables, of which shape, and how Iceberg knows them."""

import json
import re
from typing import Any

import pyarrow as pa

from service.engine.jobs.arrow.files import FileShape, field
from service.engine.session.java import ICEBERG, iceberg_class, java_class, strings
from service.engine.session.rows import PRIMITIVES
from service.engine.session.spark_types import SparkSession

_PLAIN = {name.replace("integer", "int"): kind for name, kind in PRIMITIVES.items() if name != "uuid"}
_READER = f"{ICEBERG}.shaded.org.apache.parquet.hadoop.ParquetFileReader"
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
# Iceberg's names of codecs, and Arrow's.
CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
CODEC, _GROUP_BYTES = "write.parquet.compression-codec", "write.parquet.row-group-size-bytes"
_FORMAT, _BLOOM = "write.format.default", "write.parquet.bloom-filter-enabled.column."


def can_write(session: SparkSession, location: str) -> bool:
    """Whether a table's files are on local disk, and Spark runs only in this process's JVM."""
    return location.startswith("file:") and str(session.sparkContext.master).startswith("local")


def shape_of(table: Any, compression: str | None = None) -> FileShape | None:
    """The shape of the files of Iceberg's table, if Arrow can write them by its columns and properties; else None."""
    properties = table.properties()
    codec = CODECS.get(compression or str(properties.getOrDefault(CODEC, "zstd")))
    # As one text: reading a Java collection item by item takes longer than reading a small table's files.
    has_blooms = any(name.startswith(_BLOOM) for name in strings(properties.keySet()))
    if codec is None or has_blooms or str(properties.getOrDefault(_FORMAT, "parquet")) != "parquet":
        return None
    fields = []
    for column in json.loads(iceberg_class("SchemaParser").toJson(table.schema()))["fields"]:
        decimal = _DECIMAL.fullmatch(str(column["type"]))
        kind = pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(str(column["type"]))
        if kind is None:
            return None
        fields.append(field(column["name"], kind, column["required"], column["id"]))
    return FileShape(pa.schema(fields), codec, int(properties.getOrDefault(_GROUP_BYTES, str(128 << 20))))


def plain_shape(session: SparkSession, table: Any) -> FileShape | None:
    """The shape of a file that Arrow can write for any rows of Iceberg's table; None if only Spark can, because it is
    partitioned or sorted, or has other columns or files."""
    if not can_write(session, str(table.location())) or table.spec().isPartitioned() or table.sortOrder().isSorted():
        return None
    return shape_of(table)


def described(session: SparkSession, table: Any, location: str, *, like: Any = None, one_group: bool = False) -> Any:
    """Iceberg's data file, with the metrics of the file's footer. It is in the partition of the file `like`; without
    one, in a table that has no partitions now. With `one_group` it has one row group, so that it cannot be split."""
    source = table.io().newInputFile(location)
    config = iceberg_class("MetricsConfig").forTable(table)
    metrics = iceberg_class("parquet.ParquetUtil").fileMetrics(source, config)
    spec = table.spec() if like is None else table.specs().get(like.specId())
    builder = iceberg_class("DataFiles").builder(spec).withPath(location).withFormat("parquet")
    builder = builder.withFileSizeInBytes(source.getLength()).withMetrics(metrics)
    if not one_group:
        builder = builder.withSplitOffsets(_split_offsets(session, location))
    if like is not None and spec.isPartitioned():
        builder = builder.withPartition(like.partition())
    return builder.build()


def _split_offsets(session: SparkSession, location: str) -> Any:
    path = java_class("org.apache.hadoop.fs.Path")(location)
    footer = java_class(_READER).readFooter(session.sparkContext._jsc.hadoopConfiguration(), path)
    return iceberg_class("parquet.ParquetUtil").getSplitOffsets(footer)
