"""Many small local files of plain columns, merged by Arrow in Spark's Python workers.

Rows go from file to file by columns, without becoming rows of Spark's in between: half of the time and less. Only where
that is certain to come to the same: on this machine's disk, whole files, none of whose rows is deleted, each of the
table's very schema. All else Spark reads and writes itself.
"""

import json
import logging
import re
import uuid as uuids
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from service.engine import arrow_files
from service.engine.arrow_files import Odd, Part, Shape, field, merge
from service.engine.compaction import Group, Rewrite
from service.engine.handles import lines, method, predicate, then, total
from service.engine.join import joined
from service.engine.jvm import java_class
from service.errors import InternalError

log = logging.getLogger("firn.engine")
_ICEBERG = "org.apache.iceberg"
# Fewer files than that are merged before a Python worker has started.
_MANY_FILES = 100
# Where each core writes a part, which are joined then, a part is worth it from so many files or bytes on.
_PART_FILES, _PART_BYTES = 50, 2 << 20
# Of less, the cores have as many files each, whatever their sizes.
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


def merged(session: SparkSession, table: Any, group: Group, how: Rewrite) -> Any:
    """The new files of a group, its rows in the order they had, as a set of Iceberg's; None where Spark has to."""
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
        # What is wrong with a file, if anything is, Spark says better.
        log.info("files of %s are merged by Spark itself: %s", table.name(), Odd.__name__ in str(e) or e)
        return None
    expected = total(tasks, _file(), _of_file("recordCount"))
    if expected != found:
        raise InternalError(f"merging {expected} rows made {found}; nothing was changed")
    return joined(session, table, [part.to for part in parts], group.expected_files, like=first, rows=found)


def _file() -> Any:
    return method(f"{_ICEBERG}.ContentScanTask", "file")


def _of_file(name: str) -> Any:
    return method(f"{_ICEBERG}.ContentFile", name)


def _shape(table: Any, how: Rewrite) -> Shape | None:
    """What the table's files are like, where its columns and properties are all plain."""
    # As one text: entry by entry a map takes longer than the files of a small table.
    mapper = java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    properties = json.loads(mapper.writeValueAsString(table.properties()))
    codec = _CODECS.get(how.compression or properties.get(_CODEC, "zstd"))
    fields = []
    for column in json.loads(java_class(f"{_ICEBERG}.SchemaParser").toJson(table.schema()))["fields"]:
        kind = _plain(column["type"])
        if kind is None:
            return None
        fields.append(field(column["name"], kind, column["required"], column["id"]))
    if codec is None or any(key.startswith(_BLOOM) for key in properties):
        return None
    return Shape(pa.schema(fields), codec, int(properties.get(_GROUP_BYTES, 128 << 20)))


def _plain(kind: Any) -> pa.DataType | None:
    """The type of a column of values that are not nested, as Arrow has it; none for the others."""
    if not isinstance(kind, str):
        return None
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(kind)


def _whole(tasks: Any) -> bool:
    """Whether nothing of the files that the tasks read is deleted."""
    empty = then(method(f"{_ICEBERG}.FileScanTask", "deletes"), method("java.util.List", "isEmpty"))
    return bool(tasks.stream().allMatch(predicate(empty)))


def _parts(session: SparkSession, table: Any, like: Any, group: Group, tasks: Any) -> list[Part]:
    """The files, shared out among the cores in their order."""
    cores = session.sparkContext.defaultParallelism
    wished = max(group.expected_files, min(cores, max(group.files // _PART_FILES, group.bytes // _PART_BYTES)))
    paths = lines(tasks, _file(), _of_file("location"))
    sizes = [1] * len(paths)
    if group.bytes > _EVEN_BYTES:
        sizes = [int(text) for text in lines(tasks, _file(), _of_file("fileSizeInBytes"))]
    # So many parts for each file that they are joined to.
    count = -(-wished // group.expected_files) * group.expected_files
    share, done = sum(sizes) / count, 0
    taken: list[list[str]] = [[] for _ in range(count)]
    for path, size in zip(paths, sizes, strict=True):
        taken[min(count - 1, int(done / share))].append(path)
        done += size
    spec, name = table.specs().get(like.specId()), uuids.uuid4().hex
    places = table.locationProvider()
    locations = [str(places.newDataLocation(spec, like.partition(), f"{i:05d}-{name}.parquet")) for i in range(count)]
    return [Part(some, to) for some, to in zip(taken, locations, strict=True) if some]


def _run(session: SparkSession, parts: list[Part], shape: Shape) -> list[int]:
    """Have each part made by a task; how many rows each has."""
    # By value: a worker need not find this code where it starts.
    cloudpickle.register_pickle_by_value(arrow_files)  # type: ignore[no-untyped-call]
    try:
        work = session.sparkContext.parallelize(parts, len(parts)).map(lambda part: merge(part, shape))
        return work.collect()
    finally:
        cloudpickle.unregister_pickle_by_value(arrow_files)  # type: ignore[no-untyped-call]
