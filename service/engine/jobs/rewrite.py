"""The job that rewrites a group of files into fewer files, without committing them."""

from dataclasses import dataclass
from typing import Any

from service.engine.iceberg.compaction import FileGroup, PlannedGroups, RewriteOptions, RewrittenGroup
from service.engine.iceberg.staging import readable, write_files
from service.engine.iceberg.tables import writing_to
from service.engine.jobs.arrow_merge import can_join, joined_files, merged
from service.engine.session.java import ICEBERG, construct_hidden, each, iceberg_class, java_class
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.tags import tagged

# Opening a file costs about as much as reading this many bytes.
OPEN_COST = 64 * 1024
# The smallest part of a file to be joined: each part has a row group of its own.
_PART_BYTES = 2 << 20


def rewrite(
    session: SparkSession, planned: PlannedGroups, group: FileGroup, how: RewriteOptions, folder: str, tag: str
) -> RewrittenGroup:
    """Write a group's rows into new files below the folder, without committing them. The Spark jobs have the tag."""
    table = writing_to(planned.iceberg, planned.iceberg.operations().current(), folder)
    with tagged(session, tag):
        write = _packed if how.strategy == "binpack" else _sorted
        files = write(session, table, group, how)
    group.handle.setOutputFiles(files)
    return RewrittenGroup(group, tuple(str(file.location()).rpartition("/")[2] for file in each(files)))


def _packed(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, with its rows in their old order."""
    own = group.handle
    local, one_spec = can_join(session, str(table.location())), _of_one_spec(table, own)
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
    with readable(table, own.fileScanTasks()) as source:
        files = write_files(table, _rows(session, source, group, shape), options)
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


def _rows(session: SparkSession, source: str, group: FileGroup, shape: _Shape) -> DataFrame:
    from pyspark.sql.functions import lit, spark_partition_id

    split = -(-(group.bytes + group.files * OPEN_COST) // shape.readers) + 1
    rows = session.read.option("split-size", str(split)).option("file-open-cost", str(OPEN_COST)).table(source)
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
