"""Data files that Arrow writes instead of Spark: for which tables, of which shape, and what Iceberg records of them."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from service.engine.jobs.arrow.files import FileShape, field, local_path
from service.engine.jobs.arrow.statistics import ColumnStatistics, missing_statistics
from service.engine.session.java import iceberg_class, java_class, json_mapper, reflected, texts
from service.engine.session.rows import PRIMITIVES
from service.engine.session.spark_types import SparkSession

_PLAIN = {name.replace("integer", "int"): kind for name, kind in PRIMITIVES.items() if name != "uuid"}
_READER = "org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader"
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_FORMAT, _FILE_BYTES, _PARQUET = "write.format.default", "write.target-file-size-bytes", "write.parquet."
_CODEC, _LEVEL = f"{_PARQUET}compression-codec", f"{_PARQUET}compression-level"
_GROUP_BYTES = f"{_PARQUET}row-group-size-bytes"
# Arrow's writer has no match for other properties of Parquet files, such as Bloom filters.
_KNOWN = {_CODEC, _LEVEL, _GROUP_BYTES}
# Nor does it have to look at how large a group has become: it makes groups of rows of a known size.
_KNOWN |= {f"{_PARQUET}row-group-size-track-uncompressed", f"{_PARQUET}row-group-check-min-record-count"}


def is_local(session: SparkSession, location: str) -> bool:
    """Whether a location is on local disk, and Spark runs only in this process's JVM."""
    return location.startswith("file:") and str(session.sparkContext.master).startswith("local")


def file_shape(table: Any, compression: str | None = None) -> FileShape | None:
    """The shape of the table's files, if its columns and properties allow Arrow to write them; else None."""
    fields = []
    for column in json.loads(iceberg_class("SchemaParser").toJson(table.schema()))["fields"]:
        decimal = _DECIMAL.fullmatch(str(column["type"]))
        kind = pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(str(column["type"]))
        if kind is None:
            return None
        fields.append(field(column["name"], kind, column["required"], column["id"]))
    return shaped(pa.schema(fields), texts(table.properties()), compression)


def shaped(schema: pa.Schema, properties: Mapping[str, str], compression: str | None = None) -> FileShape | None:
    """Files with this schema, of a table with these properties; None if Arrow cannot write them so."""
    codec = _CODECS.get(compression or properties.get(_CODEC, "zstd"))
    level = properties.get(_LEVEL) if compression is None else None
    if codec is None or (level is not None and not (codec == "zstd" and level.isdecimal())):
        return None
    if properties.get(_FORMAT, "parquet") != "parquet":
        return None
    if any(key.startswith(_PARQUET) and key not in _KNOWN for key in properties):
        return None
    group_bytes, file_bytes = int(properties.get(_GROUP_BYTES, 128 << 20)), int(properties.get(_FILE_BYTES, 512 << 20))
    return FileShape(schema, codec, group_bytes, file_bytes, None if level is None else int(level))


def plain_shape(session: SparkSession, table: Any, location: str) -> FileShape | None:
    """The shape of a new file of the table at this location, if Arrow can write any of its rows there; else None.

    The file must be on local disk, and the table without partitions and without an order.
    """
    if not is_local(session, location) or table.spec().isPartitioned() or not table.sortOrder().isUnsorted():
        return None
    return file_shape(table)


def described(session: SparkSession, table: Any, location: str, like: Any = None, *, nans: bool = False) -> Any:
    """Iceberg's data file, with the metrics of the file's footer, in the partition of the file `like`; without one, in
    a table without partitions. With `nans`, the metrics say how many values are NaN, as those of Spark's files do."""
    parquet, path = iceberg_class("parquet.ParquetUtil"), local_path(location)
    footer = java_class(_READER).readFooter(
        session.sparkContext._jsc.hadoopConfiguration(), java_class("org.apache.hadoop.fs.Path")(location)
    )
    missing = missing_statistics(path, floats=nans)
    own = java_class("java.util.ArrayList")()
    for one in missing:
        if one.nans is None:
            own.add(_field_metrics(one))
    metrics = parquet.footerMetrics(footer, own.stream(), iceberg_class("MetricsConfig").forTable(table))
    metrics = _with_nans(metrics, {one.field_id: one.nans for one in missing if one.nans is not None})
    spec = table.spec() if like is None else table.specs().get(like.specId())
    builder = iceberg_class("DataFiles").builder(spec).withPath(location).withFormat("parquet")
    builder = builder.withFileSizeInBytes(os.path.getsize(path)).withMetrics(metrics)
    builder = builder.withSplitOffsets(parquet.getSplitOffsets(footer))
    if like is not None and spec.isPartitioned():
        builder = builder.withPartition(like.partition())
    return builder.build()


def _field_metrics(one: ColumnStatistics) -> Any:
    counts = (one.field_id, one.values, one.nulls)
    if one.low is None or one.high is None:
        return iceberg_class("FieldMetrics")(*counts)
    ends: list[Any] = [one.low, one.high]
    if isinstance(one.low, bytes):
        ends = [java_class("java.nio.ByteBuffer").wrap(end) for end in ends]
    return iceberg_class("FieldMetrics")(*counts, *ends)


def _with_nans(metrics: Any, counts: Mapping[int, int]) -> Any:
    """The metrics with the number of NaN of columns. Columns without counts of values are left out."""
    if not counts:
        return metrics
    counted = {key: number for key, number in counts.items() if metrics.valueCounts().containsKey(key)}
    # As text, because Py4J would make them numbers of another Java class.
    mapper = json_mapper()
    kinds = (reflected(f"java.{name}") for name in ("util.HashMap", "lang.Integer", "lang.Long"))
    by_id = mapper.readValue(json.dumps(counted), mapper.getTypeFactory().constructMapType(*kinds))
    rest = (metrics.columnSizes(), metrics.valueCounts(), metrics.nullValueCounts(), by_id)
    return iceberg_class("Metrics")(metrics.recordCount(), *rest, metrics.lowerBounds(), metrics.upperBounds())
