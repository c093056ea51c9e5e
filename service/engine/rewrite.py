"""The jobs that write a group of files anew, into fewer, without committing anything."""

import uuid as uuids
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, spark_partition_id

from service.engine.append import STAGING, each
from service.engine.arrow_merge import merged
from service.engine.compaction import Group, Planned, Rewrite, Rewritten
from service.engine.join import can_join, joined_files
from service.engine.jvm import java_class
from service.engine.tags import tagged

_ICEBERG = "org.apache.iceberg"
_SPARK = f"{_ICEBERG}.spark"
# Opening a file costs about as much as reading so many bytes of one.
_OPEN_COST = 64 * 1024
# Parts of one file are no smaller: each has a row group of its own.
_PART_BYTES = 2 << 20


def rewrite(
    session: SparkSession, planned: Planned, group: Group, how: Rewrite, folder: str, tag: str, alone: int
) -> Rewritten:
    """Write a group's rows into new files below the folder, which no snapshot holds yet. Its Spark jobs bear the tag.

    `alone` is how many groups are worked on at the same time as this one, with it.
    """
    table = _writing_to(planned.iceberg, folder)
    with tagged(session, tag):
        files = (
            _packed(session, table, group, how, alone)
            if how.strategy == "binpack"
            else _sorted(session, table, group, how)
        )
    group.handle.setOutputFiles(files)
    return Rewritten(group, tuple(str(file.location()).rpartition("/")[2] for file in each(files)))


def _writing_to(iceberg: Any, folder: str) -> Any:
    """The table, as one whose new data files lie in a folder of their own: they can be found should all else fail."""
    operations = iceberg.operations()
    metadata = operations.current()
    properties = java_class("java.util.HashMap")(metadata.properties())
    properties.put("write.data.path", folder)
    places = java_class(f"{_ICEBERG}.LocationProviders").locationsFor(str(metadata.location()), properties)
    fixed = java_class(f"{_ICEBERG}.StaticTableOperations")(metadata, operations.io(), places)
    return java_class(f"{_ICEBERG}.BaseTable")(fixed, iceberg.name())


def _packed(session: SparkSession, table: Any, group: Group, how: Rewrite, alone: int) -> Any:
    """The new files of a group, its rows in the order they had."""
    name = uuids.uuid4().hex
    tables = java_class(f"{_SPARK}.SparkTableCache").get()
    tasks = java_class(f"{_SPARK}.ScanTaskSetManager").get()
    staging = java_class(f"{_SPARK}.FileRewriteCoordinator").get()
    own = group.handle
    tables.add(name, table)
    tasks.stageTasks(table, name, own.fileScanTasks())
    try:
        local, one_spec = can_join(session, str(table.location())), _of_one_spec(table, own)
        files = merged(session, table, group, how) if local and one_spec else None
        if files is not None:
            return files
        shape = _shape(session, group, local, alone)
        rows = _rows(session, name, group, shape)
        writer = rows.writeTo(f"{STAGING}.`{name}`").option("target-file-size-bytes", str(own.maxOutputFileSize()))
        writer = writer.option("output-spec-id", str(own.outputSpecId()))
        writer = writer.option("distribution-mode", "none" if one_spec else "hash")
        writer = writer.option(
            "fanout-enabled", "true" if one_spec or _hashes_uuid(table, own.outputSpecId()) else "false"
        )
        if how.compression is not None:
            writer = writer.option("compression-codec", how.compression)
        writer.append()
        files = staging.fetchNewFiles(table, name)
        return (
            joined_files(session, table, _in_order(files), group.expected_files) if shape.join and one_spec else files
        )
    finally:
        tables.remove(name)
        tasks.removeTasks(table, name)
        staging.clearRewrite(table, name)


def _hashes_uuid(table: Any, spec_id: int) -> bool:
    """Whether rows lie by the hash of a uuid, as in `transforms.hashes_uuid`."""
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
    """How the work on a group is shared out: so many tasks read, so many write; what they write is joined, perhaps."""

    readers: int
    writers: int
    join: bool = False


def _shape(session: SparkSession, group: Group, local: bool, alone: int) -> _Shape:
    """Use all cores, also where fewer files than there are cores are right."""
    cores = session.sparkContext.defaultParallelism
    outputs = max(1, group.expected_files)
    if outputs * alone >= cores:
        return _Shape(outputs, outputs)
    writers = min(cores, group.bytes // _PART_BYTES)
    if local and writers > outputs:
        return _Shape(writers, writers, join=True)
    # The rows go to those who write in the order of the tasks that read them.
    return _Shape(2 * cores, outputs) if group.files >= cores else _Shape(outputs, outputs)


def _rows(session: SparkSession, name: str, group: Group, shape: _Shape) -> DataFrame:
    rows = _scan(session, name, group, shape.readers)
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


def _scan(session: SparkSession, name: str, group: Group, tasks: int) -> DataFrame:
    split = -(-(group.bytes + group.files * _OPEN_COST) // tasks) + 1
    reader = session.read.option("split-size", str(split)).option("file-open-cost", str(_OPEN_COST))
    return reader.format("iceberg").load(name)


def _sorted(session: SparkSession, table: Any, group: Group, how: Rewrite) -> Any:
    """The new files of a group, its rows sorted by columns, or along a curve through all of them."""
    gateway: Any = session.sparkContext._gateway
    if how.strategy == "zorder":
        kind, order = "SparkZOrderFileRewriteRunner", java_class("java.util.ArrayList")()
        for column in how.sort_by:
            order.add(column)
        types = ("java.util.List",)
    else:
        kind, builder = "SparkSortFileRewriteRunner", java_class(f"{_ICEBERG}.SortOrder").builderFor(table.schema())
        for column in how.sort_by:
            builder = builder.asc(column)
        order = builder.build()
        types = (f"{_ICEBERG}.SortOrder",)
    find = java_class("java.lang.Class").forName
    names = ("org.apache.spark.sql.SparkSession", f"{_ICEBERG}.Table", *types)
    wanted = gateway.new_array(java_class("java.lang.Class"), 3)
    given = gateway.new_array(java_class("java.lang.Object"), 3)
    for i, (class_name, value) in enumerate(zip(names, (session._jsparkSession, table, order), strict=True)):
        wanted[i], given[i] = find(class_name), value
    # Not public classes: only through their whole action, which commits by itself.
    constructor = find(f"{_SPARK}.actions.{kind}").getDeclaredConstructor(wanted)
    constructor.setAccessible(True)
    runner = constructor.newInstance(given)
    runner.init({})
    with _codec(session, how.compression):
        return runner.rewrite(group.handle)


@contextmanager
def _codec(session: SparkSession, codec: str | None) -> Iterator[None]:
    key = "spark.sql.iceberg.compression-codec"
    if codec is not None:
        session.conf.set(key, codec)
    try:
        yield
    finally:
        session.conf.unset(key)
