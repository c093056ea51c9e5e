"""The job that writes a group of files again, into fewer, without committing anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.engine.iceberg.compaction import FileGroup, PlannedGroups, RewriteOptions, RewrittenGroup
from service.engine.iceberg.join import can_join, joined_files
from service.engine.iceberg.staging import readable, write_files
from service.engine.iceberg.tables import writing_to
from service.engine.jobs.arrow_merge import merged
from service.engine.session.java import ICEBERG, construct_hidden, each, iceberg_class, java_class
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.tags import tagged

# Opening a file costs about as much as reading so many bytes of one.
OPEN_COST = 64 * 1024
# Parts of one file are no smaller: each has a row group of its own.
_PART_BYTES = 2 << 20


def rewrite(
    session: SparkSession, planned: PlannedGroups, group: FileGroup, how: RewriteOptions, folder: str, tag: str
) -> RewrittenGroup:
    """Write a group's rows into new files below the folder, not yet in any snapshot. Its Spark jobs bear the tag."""
    table = writing_to(planned.iceberg, planned.iceberg.operations().current(), folder)
    with tagged(session, tag):
        files = (
            _packed(session, table, group, how) if how.strategy == "binpack" else _sorted(session, table, group, how)
        )
    group.handle.setOutputFiles(files)
    return RewrittenGroup(group, tuple(str(file.location()).rpartition("/")[2] for file in each(files)))


def _packed(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, its rows in the order they had."""
    own = group.handle
    local, one_spec = can_join(session, str(table.location())), _of_one_spec(table, own)
    files = merged(session, table, group, how) if local and one_spec else None
    if files is not None:
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
        files = write_files(table, _rows(session, source, group, shape)._jdf, options)
    return joined_files(session, table, _in_order(files), group.expected_files) if shape.join and one_spec else files


def _hashes_uuid(table: Any, spec_id: int) -> bool:
    """Whether rows are partitioned by the hash of a uuid, as in `transforms.hashes_uuid`."""
    spec = table.specs().get(spec_id)
    types = {str(spec.schema().findType(f.sourceId())) for f in each(spec.fields()) if "bucket" in str(f.transform())}
    return "uuid" in types


def _of_one_spec(table: Any, group: Any) -> bool:
    """Whether a group's rows all belong where its files lie.

    The planner puts files of an older partitioning together with those of the present one's nulls.
    """
    output = int(group.outputSpecId())
    return len(table.specs()) == 1 or all(int(task.spec().specId()) == output for task in each(group.fileScanTasks()))


@dataclass(frozen=True)
class _Shape:
    """How many tasks read a group and how many write it; `join` says that the written files are joined then."""

    readers: int
    writers: int
    join: bool = False


def _shape(session: SparkSession, group: FileGroup, local: bool) -> _Shape:
    """Use all cores, even if fewer files than there are cores are right."""
    cores = session.sparkContext.defaultParallelism
    outputs = max(1, group.expected_files)
    if outputs * group.beside >= cores:
        return _Shape(outputs, outputs)
    writers = min(cores, group.bytes // _PART_BYTES)
    if local and writers > outputs:
        return _Shape(writers, writers, join=True)
    # The rows go to those who write in the order of the tasks that read them.
    return _Shape(2 * cores, outputs) if group.files >= cores else _Shape(outputs, outputs)


def _rows(session: SparkSession, source: str, group: FileGroup, shape: _Shape) -> DataFrame:
    from pyspark.sql.functions import lit, spark_partition_id

    rows = _scan(session, source, group, shape.readers)
    if shape.writers == shape.readers:
        return rows
    if shape.writers == 1:
        return rows.repartition(1)
    to = (spark_partition_id() * lit(shape.writers) / lit(shape.readers)).cast("int")
    columns = [f"`{column.replace('`', '``')}`" for column in rows.columns]
    return rows.withColumn("_firn_file", to).repartitionById(shape.writers, "_firn_file").select(*columns)


def _in_order(files: Any) -> list[Any]:
    """A write's files in the order of its tasks, which their names begin with."""
    return sorted(each(files), key=lambda file: str(file.location()).rpartition("/")[2])


def _scan(session: SparkSession, source: str, group: FileGroup, tasks: int) -> DataFrame:
    split = -(-(group.bytes + group.files * OPEN_COST) // tasks) + 1
    return session.read.option("split-size", str(split)).option("file-open-cost", str(OPEN_COST)).table(source)


def _sorted(session: SparkSession, table: Any, group: FileGroup, how: RewriteOptions) -> Any:
    """The new files of a group, its rows sorted by columns, or along a curve through all of them."""
    if how.strategy == "zorder":
        runner, order = "SparkZOrderFileRewriteRunner", java_class("java.util.ArrayList")(list(how.sort_by))
    else:
        runner, builder = "SparkSortFileRewriteRunner", iceberg_class("SortOrder").builderFor(table.schema())
        for column in how.sort_by:
            builder = builder.asc(column)
        order = builder.build()
    # Not public: only a whole action is, which commits by itself.
    made = construct_hidden(f"{ICEBERG}.spark.actions.{runner}", session._jsparkSession, table, order)
    made.init({})
    with _codec(session, how.compression):
        return made.rewrite(group.handle)


@contextmanager
def _codec(session: SparkSession, codec: str | None) -> Iterator[None]:
    key = "spark.sql.iceberg.compression-codec"
    if codec is not None:
        session.conf.set(key, codec)
    try:
        yield
    finally:
        session.conf.unset(key)
