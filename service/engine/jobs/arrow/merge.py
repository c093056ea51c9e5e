"""Merges many small local files of plain columns with Arrow, in Spark's Python workers.

Data is copied column by column, without conversion to Spark's rows, in less than half the time. This is done only if
the result is certain to be the same: for files on this machine's disk, without deleted rows, each with exactly the
table's schema. Spark reads and writes all others itself.

Writing takes longer than reading, so all cores write a file each. Their files are then joined, row group by row group,
without reading rows.
"""

import logging
import uuid as uuids
from collections.abc import Sequence
from typing import Any

from service.engine.iceberg.compaction import FileGroup, RewriteOptions
from service.engine.iceberg.scan_tasks import file_of_task, of_file
from service.engine.jobs.arrow import files as arrow_files
from service.engine.jobs.arrow.files import FileShape, MergePart, SchemaDiffers, local_path, merge_beside_changes
from service.engine.jobs.arrow.shape import described, file_shape
from service.engine.session.java import ICEBERG, function, iceberg_class, java_class, lines, method, then, total
from service.engine.session.spark_types import SparkSession
from service.errors import InternalError

log = logging.getLogger("firn.engine")
# Fewer files are merged before a Python worker has started.
_MANY_FILES = 100
# The least number of files, or of bytes, for which each core writes a part, which are then joined.
_PART_FILES, _PART_BYTES = 50, 2 << 20
# Below this size, each core gets the same number of files, whatever their sizes.
_EVEN_BYTES = 32 << 20
_JOIN_BYTES = 8 << 20


def merged(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, as a Java set, with its rows in their old order; None if Spark must write them."""
    if group.files < _MANY_FILES:
        return None
    shape = file_shape(table, how.compression)
    tasks = group.handle.fileScanTasks()
    deletes = then(method(f"{ICEBERG}.FileScanTask", "deletes"), method("java.util.List", "isEmpty"))
    if shape is None or not tasks.stream().allMatch(function(deletes, "Predicate")):
        return None
    first = tasks.get(0).file()
    parts = _parts(session, table, first, group, tasks)
    try:
        found = sum(_run(session, parts, shape))
    except Exception as e:
        if "SPARK_JOB_CANCELLED" in str(e):
            raise
        # If a file is damaged, Spark reports it better.
        why = "their columns differ" if SchemaDiffers.__name__ in str(e) else e
        log.info("files of %s are merged by Spark itself: %s", table.name(), why)
        return None
    expected = total(tasks, file_of_task(), of_file("recordCount"))
    if expected != found:
        raise InternalError(f"merging {expected} rows gave {found}; nothing was changed")
    return joined(session, table, [part.to for part in parts], group.expected_files, like=first, rows=found)


def _parts(session: SparkSession, table: Any, like: Any, group: FileGroup, tasks: Any) -> list[MergePart]:
    """The files divided among the cores, in order."""
    cores = session.sparkContext.defaultParallelism
    wanted = max(group.expected_files, min(cores, max(group.files // _PART_FILES, group.bytes // _PART_BYTES)))
    paths = lines(tasks, file_of_task(), of_file("location"))
    sizes = [1] * len(paths)
    if group.bytes > _EVEN_BYTES:
        sizes = [int(text) for text in lines(tasks, file_of_task(), of_file("fileSizeInBytes"))]
    # The same number of parts for each file that they are joined to.
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
    """Write each part in a task of its own, and return how many rows each has."""
    from pyspark import cloudpickle

    # By value: a worker may be unable to import this code.
    cloudpickle.register_pickle_by_value(arrow_files)  # type: ignore[no-untyped-call]
    try:
        work = session.sparkContext.parallelize(parts, len(parts)).map(lambda part: merge_beside_changes(part, shape))
        return work.collect()
    finally:
        cloudpickle.unregister_pickle_by_value(arrow_files)  # type: ignore[no-untyped-call]


def joined(session: SparkSession, table: Any, parts: Sequence[str], files: int, *, like: Any, rows: int) -> Any:
    """Join parts, in order, to this number of files, and return these as a Java set. The parts are deleted.

    All parts are in the partition of the file `like`, and have `rows` rows in total.
    """
    whole = iceberg_class("util.DataFileSet").create()
    size = -(-len(parts) // files)
    found = 0
    for i in range(0, len(parts), size):
        some = parts[i : i + size]
        file = described(session, table, _join(table, some) if len(some) > 1 else some[0], like)
        found += int(file.recordCount())
        whole.add(file)
    if found != rows:
        raise InternalError(f"joining files with {rows} rows gave {found}; nothing was changed")
    return whole


def joined_files(session: SparkSession, table: Any, parts: Sequence[Any], files: int) -> Any:
    """The same for Iceberg's own data files."""
    if any(part.specId() != parts[0].specId() or part.partition() != parts[0].partition() for part in parts):
        raise InternalError("cannot join files of several partitions; nothing was changed")
    rows = sum(int(part.recordCount()) for part in parts)
    return joined(session, table, [str(part.location()) for part in parts], files, like=parts[0], rows=rows)


def _join(table: Any, parts: Sequence[str]) -> str:
    folder, _, name = parts[0].rpartition("/")
    location = f"{folder}/joined-{name}"
    local = java_class("java.io.File")
    sources = [local(local_path(part)) for part in parts]
    footer = {"iceberg.schema": iceberg_class("SchemaParser").toJson(table.schema())}
    iceberg_class("parquet.Parquet").concat(sources, local(local_path(location)), _JOIN_BYTES, table.schema(), footer)
    for part in parts:
        table.io().deleteFile(part)
    return location
