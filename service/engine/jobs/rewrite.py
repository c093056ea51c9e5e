"""The job that rewrites a group of files into fewer files, without committing them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from service.engine.iceberg.compaction import FileGroup, PlannedGroups, RewriteOptions, RewrittenGroup, in_written_order
from service.engine.iceberg.staging import readable, write_files
from service.engine.iceberg.tables import writing_to
from service.engine.jobs.arrow.merge import joined_files, merged
from service.engine.jobs.arrow.shape import is_local
from service.engine.session.java import ICEBERG, construct_hidden, each, iceberg_class, java_class, lines, method
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.tags import tagged

# Opening a file costs about as much as reading this many bytes.
OPEN_COST = 64 * 1024
# The smallest part of a file to be joined: each part has a row group of its own.
_PART_BYTES = 2 << 20
# Larger than all files that one task reads.
_WHOLE = 1 << 50


def rewrite(
    session: SparkSession, planned: PlannedGroups, group: FileGroup, how: RewriteOptions, folder: str, tag: str
) -> RewrittenGroup:
    """Write a group's rows into new files below the folder, without committing them. The Spark jobs have the tag."""
    table = writing_to(planned.iceberg, planned.iceberg.operations().current(), folder)
    if how.strategy == "binpack":
        group = in_written_order(group)
    with tagged(session, tag):
        write = _packed if how.strategy == "binpack" else _sorted
        files = write(session, table, group, how)
    group.handle.setOutputFiles(files)
    return RewrittenGroup(group, tuple(str(file.location()).rpartition("/")[2] for file in each(files)))


def _packed(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, with its rows in their old order, those of the oldest files first."""
    own = group.handle
    local, one_spec = is_local(session, str(table.location())), _of_one_spec(table, own)
    if local and one_spec and (files := merged(session, table, group, how)) is not None:
        return files
    shape = _shape(session, group, local)
    options = {
        "target-file-size-bytes": str(own.maxOutputFileSize()),
        "output-spec-id": str(own.outputSpecId()),
        "distribution-mode": "none" if one_spec else "hash",
        "fanout-enabled": "true" if one_spec or _hashes_uuid(table, own.outputSpecId()) else "false",
    }
    if how.compression is not None:
        options["compression-codec"] = how.compression
    with _reading(session, table, group, shape.readers) as rows:
        files = write_files(table, _for_writers(rows, shape), options)
    if not (shape.join and one_spec):
        return files
    # The files' names begin with the numbers of the tasks that wrote them.
    in_order = sorted(each(files), key=lambda file: str(file.location()).rpartition("/")[2])
    return joined_files(session, table, in_order, group.expected_files)


def _hashes_uuid(table: Any, spec_id: int) -> bool:
    """Whether rows are partitioned by the hash of a uuid, as in `transforms.hashes_uuid`."""
    spec = table.specs().get(spec_id)
    types = {str(spec.schema().findType(f.sourceId())) for f in each(spec.fields()) if "bucket" in str(f.transform())}
    return "uuid" in types


def _of_one_spec(table: Any, group: Any) -> bool:
    """Whether all files of a group have the partitioning that it is written with.

    The planner groups files of an older partitioning with files of the current one whose partition values are null.
    """
    output = int(group.outputSpecId())
    return len(table.specs()) == 1 or all(int(task.spec().specId()) == output for task in each(group.fileScanTasks()))


@dataclass(frozen=True)
class _Shape:
    """How many tasks read a group and how many write it, and whether the written files are then joined."""

    readers: int
    writers: int
    join: bool = False


def _shape(session: SparkSession, group: FileGroup, local: bool) -> _Shape:
    """Use all cores, even to write fewer files than there are cores."""
    cores = session.sparkContext.defaultParallelism
    outputs = max(1, group.expected_files)
    if outputs * group.beside >= cores:
        return _Shape(outputs, outputs)
    writers = min(cores, group.bytes // _PART_BYTES)
    if local and writers > outputs:
        return _Shape(writers, writers, join=True)
    # Writers get the rows in the order of the tasks that read them.
    return _Shape(2 * cores, outputs) if group.files >= cores else _Shape(outputs, outputs)


@dataclass(frozen=True)
class Share:
    """Consecutive files that a task reads. If it is one large file, several tasks read parts of it."""

    start: int
    end: int
    parts: int = 1


def shares(sizes: Sequence[int], readers: int) -> Iterator[Share]:
    """Divide files of these sizes, in order, among about equally busy readers."""
    each_reads = sum(sizes) / readers
    start = done = 0
    for i, size in enumerate(sizes):
        reader, done = int(done / each_reads), done + size
        begun = min(int(done / each_reads), readers) - reader
        if begun > 1 and start < i:
            yield Share(start, i)
            start, begun = i, begun - 1
        if begun or i == len(sizes) - 1:
            yield Share(start, i + 1, max(1, begun) if start == i else 1)
            start = i + 1


@contextmanager
def _reading(session: SparkSession, table: Any, group: FileGroup, readers: int) -> Iterator[DataFrame]:
    """The rows of a group, read by about this number of tasks, in the order of the group's files.

    Spark would give a task whichever files fit together. So each share of the files is a relation of its own.
    """
    tasks = group.handle.fileScanTasks()
    sizes = [int(text) for text in lines(tasks, method(f"{ICEBERG}.ContentScanTask", "length"))]
    with ExitStack() as stack:
        found: list[DataFrame] = []
        for share in shares([size + OPEN_COST for size in sizes], readers):
            split = _WHOLE if share.parts == 1 else -(-sizes[share.start] // share.parts) + 1
            source = stack.enter_context(readable(table, tasks.subList(share.start, share.end)))
            options = {"split-size": str(split), "file-open-cost": str(OPEN_COST)}
            found.append(session.read.options(**options).table(source))
        yield reduce(lambda rows, more: rows.unionAll(more), found)


def _for_writers(rows: DataFrame, shape: _Shape) -> DataFrame:
    from pyspark.sql.functions import lit, spark_partition_id

    if shape.writers == shape.readers:
        return rows
    if shape.writers == 1:
        return rows.repartition(1)
    to = (spark_partition_id() * lit(shape.writers) / lit(shape.readers)).cast("int")
    return rows.withColumn("_firn_task", to).repartitionById(shape.writers, "_firn_task").drop("_firn_task")


def _sorted(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, with its rows sorted by columns or by their Z-order."""
    if how.strategy == "zorder":
        runner, order = "SparkZOrderFileRewriteRunner", java_class("java.util.ArrayList")(list(how.sort_by))
    else:
        runner, builder = "SparkSortFileRewriteRunner", iceberg_class("SortOrder").builderFor(table.schema())
        for column in how.sort_by:
            builder = builder.asc(column)
        order = builder.build()
    # This class is not public. The public action also commits.
    made = construct_hidden(f"{ICEBERG}.spark.actions.{runner}", session._jsparkSession, table, order)
    made.init({})
    with spark_setting(session, "spark.sql.iceberg.compression-codec", how.compression):
        return made.rewrite(group.handle)
