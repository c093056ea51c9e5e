"""The job that writes rows anew for another layout: one batch of files, read, arranged, written and read again."""

import uuid as uuids
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from service.derived import Derived, with_derived
from service.engine import checksum
from service.engine.append import STAGING, each
from service.engine.bulk_calls import total
from service.engine.checksum import Checksum
from service.engine.derived import computed
from service.engine.frames import named, over
from service.engine.jvm import java_class
from service.engine.repartition import Goal, Source, Written, delete
from service.engine.sql import Parameters, identifier
from service.engine.tags import jobs_of, tagged
from service.engine.transforms import KEY, keys
from service.schema import TableSchema

_ICEBERG = "org.apache.iceberg"
_SPARK = f"{_ICEBERG}.spark"
_OPEN_COST = 64 * 1024
# A reader's share of a batch is no smaller; what goes to one writer is about so large.
_SPLIT_BYTES, _WRITER_BYTES = 8 << 20, 24 << 20
# A writer's share is cut in two only beyond this, so that a partition's rows mostly stay in one file.
_SKEW = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_SKEW_BYTES = 512 << 20


@dataclass(frozen=True)
class Recipe:
    """How rows become those of the new layout: the columns there are, and those that are worked out from them."""

    source: TableSchema
    derived: tuple[Derived, ...] = ()
    compression: str | None = None
    validate: bool = True

    @property
    def schema(self) -> TableSchema:
        """The columns that the new rows have."""
        return with_derived(self.source, self.derived)


def rewrite(
    session: SparkSession, source: Source, goal: Goal, paths: Sequence[str], recipe: Recipe, tag: str
) -> Written:
    """Write the rows of some of the source's files into new files. The Spark jobs bear the tag."""
    tasks = java_class("java.util.ArrayList")()
    for path in paths:
        tasks.add(source.tasks.get(path))
    size = sum(int(task.length()) for task in each(tasks))
    own = f"{tag}-{uuids.uuid4().hex}"
    with tagged(session, tag), tagged(session, own), _reading(session, source.iceberg, tasks, size) as rows:
        files = _write(session, goal, rows, size, recipe)
        try:
            read, written = _checked(session, goal, rows, files, recipe)
        except BaseException:
            delete(goal, files)
            raise
    return Written(
        files,
        int(files.size()),
        total(files, "recordCount"),
        total(files, "fileSizeInBytes"),
        read,
        written,
        jobs_of(session, own),
    )


@contextmanager
def _reading(session: SparkSession, table: Any, tasks: Any, size: int) -> Iterator[DataFrame]:
    """The rows of scan tasks, of about so many bytes."""
    name = uuids.uuid4().hex
    tables = java_class(f"{_SPARK}.SparkTableCache").get()
    staged = java_class(f"{_SPARK}.ScanTaskSetManager").get()
    cores = session.sparkContext.defaultParallelism
    split = max(_SPLIT_BYTES, -(-size // cores))
    tables.add(name, table)
    staged.stageTasks(table, name, tasks)
    try:
        reader = session.read.option("split-size", str(split)).option("file-open-cost", str(_OPEN_COST))
        yield reader.format("iceberg").load(name)
    finally:
        tables.remove(name)
        staged.removeTasks(table, name)


def _write(session: SparkSession, goal: Goal, rows: DataFrame, size: int, recipe: Recipe) -> Any:
    """New files of rows: each task has a partition's rows together and one file open at a time, however many there
    are of them."""
    name = uuids.uuid4().hex
    tables = java_class(f"{_SPARK}.SparkTableCache").get()
    staging = java_class(f"{_SPARK}.FileRewriteCoordinator").get()
    tables.add(name, goal.table)
    try:
        writer = _arranged(session, rows, size, recipe, goal).writeTo(f"{STAGING}.`{name}`")
        # Iceberg's own order of rows is not that of their partitions where a uuid is hashed.
        writer = writer.option("use-table-distribution-and-ordering", "false").option("fanout-enabled", "false")
        writer = writer.option("output-spec-id", str(goal.spec_id))
        if recipe.compression is not None:
            writer = writer.option("compression-codec", recipe.compression)
        with _confs(session, {_SKEW: str(_SKEW_BYTES)}):
            writer.append()
        return staging.fetchNewFiles(goal.table, name)
    finally:
        tables.remove(name)
        staging.clearRewrite(goal.table, name)


def _arranged(session: SparkSession, rows: DataFrame, size: int, recipe: Recipe, goal: Goal) -> DataFrame:
    """The rows with their new columns, those of one partition one after another, on as few writers as is good."""
    parameters = Parameters()
    selected = widened(recipe, parameters)
    given = keys(goal.layout.partition, recipe.schema)
    if not given:
        return over(session, rows, lambda name: f"SELECT {selected} FROM {name}", parameters.values)
    columns = ", ".join(identifier(name) for name in recipe.schema.names)
    names = ", ".join(f"{KEY}{n}" for n in range(len(given)))
    writers = max(session.sparkContext.defaultParallelism, size // _WRITER_BYTES)

    def text(name: str) -> str:
        return (
            f"SELECT {columns} FROM (SELECT /*+ REBALANCE({writers}, {names}) */ * "
            f"FROM (SELECT *, {', '.join(given)} FROM (SELECT {selected} FROM {name})) SORT BY {names})"
        )

    return over(session, rows, text, parameters.values)


def widened(recipe: Recipe, parameters: Parameters) -> str:
    """The select list of the columns there are, and of those that are worked out."""
    new = (f"{computed(one, parameters)} AS {identifier(one.column)}" for one in recipe.derived)
    return ", ".join([*(identifier(name) for name in recipe.source.names), *new])


def _checked(
    session: SparkSession, goal: Goal, rows: DataFrame, files: Any, recipe: Recipe
) -> tuple[Checksum | None, Checksum | None]:
    """The checksums of what was read and of what was written, each read anew; none where nobody asked for them."""
    if not recipe.validate:
        return None, None
    new = java_class("java.util.ArrayList")()
    metadata = goal.table.operations().current()
    schema = java_class(f"{_ICEBERG}.SchemaParser").toJson(metadata.schema())
    spec = java_class(f"{_ICEBERG}.PartitionSpecParser").toJson(metadata.spec())
    every = java_class(f"{_ICEBERG}.expressions.Expressions").alwaysTrue()
    all_rows = java_class(f"{_ICEBERG}.expressions.ResidualEvaluator").unpartitioned(every)
    gateway: Any = session.sparkContext._gateway
    no_deletes = gateway.new_array(java_class(f"{_ICEBERG}.DeleteFile"), 0)
    for file in each(files):
        new.add(java_class(f"{_ICEBERG}.BaseFileScanTask")(file, no_deletes, schema, spec, all_rows))
    counted = checksum.aggregates(recipe.source.fields)
    with (
        _reading(session, goal.table, new, total(files, "fileSizeInBytes")) as written,
        named(session, rows) as before,
        named(session, written) as after,
    ):
        text = f"SELECT 0, {counted} FROM {before} UNION ALL SELECT 1, {counted} FROM {after}"
        found = {row[0]: checksum.of(row[1:]) for row in session.sql(text).collect()}
    return found[0], found[1]


@contextmanager
def _confs(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    for key, value in values.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            session.conf.unset(key)
