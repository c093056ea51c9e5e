"""Many small local files of plain columns, merged by Arrow in Spark's Python workers.

Data goes from file to file by columns, without becoming Spark's rows in between, in less than half the time. This is
done only if the result is certain to be the same: files on this machine's disk, without deleted rows, each with
exactly the table's schema. Spark reads and writes all others itself.
"""

import json
import logging
import re
import uuid as uuids
from typing import Any

import pyarrow as pa

from service.engine.iceberg.compaction import FileGroup, RewriteOptions
from service.engine.iceberg.join import joined
from service.engine.iceberg.scan_tasks import file_of_task, of_file
from service.engine.jobs import arrow_files
from service.engine.jobs.arrow_files import FileShape, MergePart, SchemaDiffers, field, merge
from service.engine.session.java import ICEBERG, function, iceberg_class, java_class, lines, method, then, total
from service.engine.session.spark_types import SparkSession
from service.errors import InternalError

log = logging.getLogger("firn.engine")
# Fewer files than that are merged before a Python worker has started.
_MANY_FILES = 100
# Each core writes a part, and the parts are joined, from so many files or bytes a part on.
_PART_FILES, _PART_BYTES = 50, 2 << 20
# Below this, each core gets as many files, whatever their sizes.
_EVEN_BYTES = 32 << 20
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_CODEC, _GROUP_BYTES = "write.parquet.compression-codec", "write.parquet.row-group-size-bytes"
_BLOOM = "write.parquet.bloom-filter-enabled.column."


def merged(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, its rows in the order they had, as a Java set; None if Spark must write them."""
    if group.files < _MANY_FILES:
        return None
    shape = _shape(table, how)
    tasks = group.handle.fileScanTasks()
    if shape is None or not _whole(tasks):
        return None
    first = tasks.get(0).file()
    parts = _parts(session, table, first, group, tasks)
    try:
        found = sum(_run(session, parts, shape))
    except Exception as e:
        if "cancelled" in str(e):
            raise
        # If something is wrong with a file, Spark reports it better.
        log.info("files of %s are merged by Spark itself: %s", table.name(), SchemaDiffers.__name__ in str(e) or e)
        return None
    expected = total(tasks, file_of_task(), of_file("recordCount"))
    if expected != found:
        raise InternalError(f"merging {expected} rows made {found}; nothing was changed")
    return joined(session, table, [part.to for part in parts], group.expected_files, like=first, rows=found)


def _shape(table: Any, how: RewriteOptions) -> FileShape | None:
    """What the table's files are like, if its columns and properties are all plain; else None."""
    # As one text: reading a map entry by entry takes longer than reading a small table's files.
    mapper = java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    properties = json.loads(mapper.writeValueAsString(table.properties()))
    codec = _CODECS.get(how.compression or properties.get(_CODEC, "zstd"))
    fields = []
    for column in json.loads(iceberg_class("SchemaParser").toJson(table.schema()))["fields"]:
        kind = _plain(column["type"])
        if kind is None:
            return None
        fields.append(field(column["name"], kind, column["required"], column["id"]))
    if codec is None or any(key.startswith(_BLOOM) for key in properties):
        return None
    return FileShape(pa.schema(fields), codec, int(properties.get(_GROUP_BYTES, 128 << 20)))


def _plain(kind: Any) -> pa.DataType | None:
    """The Arrow type of a column that is not nested; None for the others."""
    if not isinstance(kind, str):
        return None
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(kind)


def _whole(tasks: Any) -> bool:
    """Whether no row of the files that the tasks read is deleted."""
    empty = then(method(f"{ICEBERG}.FileScanTask", "deletes"), method("java.util.List", "isEmpty"))
    return bool(tasks.stream().allMatch(function(empty, "Predicate")))


def _parts(session: SparkSession, table: Any, like: Any, group: FileGroup, tasks: Any) -> list[MergePart]:
    """The files, divided among the cores in order."""
    cores = session.sparkContext.defaultParallelism
    wanted = max(group.expected_files, min(cores, max(group.files // _PART_FILES, group.bytes // _PART_BYTES)))
    paths = lines(tasks, file_of_task(), of_file("location"))
    sizes = [1] * len(paths)
    if group.bytes > _EVEN_BYTES:
        sizes = [int(text) for text in lines(tasks, file_of_task(), of_file("fileSizeInBytes"))]
    # So many parts for each file that they are joined to.
    count = -(-wanted // group.expected_files) * group.expected_files
    share, done = sum(sizes) / count, 0
    taken: list[list[str]] = [[] for _ in range(count)]
    for path, size in zip(paths, sizes, strict=True):
        taken[min(count - 1, int(done / share))].append(path)
        done += size
    spec, name = table.specs().get(like.specId()), uuids.uuid4().hex
    places = table.locationProvider()
    locations = [str(places.newDataLocation(spec, like.partition(), f"{i:05d}-{name}.parquet")) for i in range(count)]
    return [MergePart(some, to) for some, to in zip(taken, locations, strict=True) if some]


def _run(session: SparkSession, parts: list[MergePart], shape: FileShape) -> list[int]:
    """Have a task write each part; how many rows each has."""
    from pyspark import cloudpickle

    # By value: a worker need not find this code where it starts.
    cloudpickle.register_pickle_by_value(arrow_files)  # type: ignore[no-untyped-call]
    try:
        work = session.sparkContext.parallelize(parts, len(parts)).map(lambda part: merge(part, shape))
        return work.collect()
    finally:
        cloudpickle.unregister_pickle_by_value(arrow_files)  # type: ignore[no-untyped-call]
