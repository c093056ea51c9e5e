"""The job that rewrites a batch of files for another layout: reads, arranges, writes and verifies their rows."""

import uuid as uuids
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.engine.iceberg import scan_tasks
from service.engine.iceberg.staging import readable, write_files
from service.engine.jobs.repartition import RepartitionSource, RepartitionTarget, WrittenFiles, delete
from service.engine.jobs.rewrite import OPEN_COST
from service.engine.session.java import ICEBERG, array, each, iceberg_class, java_class, total
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.session.tags import jobs_of, tagged
from service.engine.sql import checksum
from service.engine.sql.checksum import Checksum
from service.engine.sql.derived import computed
from service.engine.sql.failing import computed_columns, identifying, naming_failures
from service.engine.sql.sql import Parameters, identifier, named, over
from service.engine.sql.transforms import KEY, keys
from service.model.schema.derived import DerivedColumn, add_derived
from service.model.schema.types import TableSchema

# The smallest share of a batch for a reader, and the approximate share for a writer.
_SPLIT_BYTES, _WRITER_BYTES = 8 << 20, 24 << 20
# Only a larger share of a writer is divided, so that a partition's rows mostly stay in one file.
_SKEW = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_SKEW_BYTES = 512 << 20


@dataclass(frozen=True)
class LayoutRecipe:
    """How to make the rows of the new layout: the original columns, and those derived from them."""

    source: TableSchema
    derived: tuple[DerivedColumn, ...] = ()
    compression: str | None = None
    validate: bool = True

    @property
    def schema(self) -> TableSchema:
        """The columns that the new rows have."""
        return add_derived(self.source, self.derived)


def rewrite(
    session: SparkSession,
    source: RepartitionSource,
    goal: RepartitionTarget,
    paths: Sequence[str],
    recipe: LayoutRecipe,
    tag: str,
    positions: range | None = None,
) -> WrittenFiles:
    """Write the rows of some of the source's files into new files, or the rows of one file at some positions. The Spark
    jobs have the tag."""
    tasks = [source.tasks.get(path) for path in paths]
    size = sum(int(task.length()) for task in tasks)
    own = f"{tag}-{uuids.uuid4().hex}"
    with tagged(session, tag), tagged(session, own), _reading(session, source.iceberg, tasks, size) as rows:
        if positions is not None:
            rows = rows.where(f"_pos >= {positions.start} AND _pos < {positions.stop}")
            size = size * len(positions) // max(1, sum(int(task.file().recordCount()) for task in tasks))
        files = _write(session, goal, rows, size, recipe)
        listed = java_class("java.util.ArrayList")(files)
        new_bytes = total(listed, scan_tasks.of_file("fileSizeInBytes"))
        try:
            read, written = _checksums(session, goal, rows, listed, new_bytes, recipe)
        except BaseException:
            delete(goal, files)
            raise
    new_rows = total(listed, scan_tasks.of_file("recordCount"))
    return WrittenFiles(files, int(files.size()), new_rows, new_bytes, read, written, jobs_of(session, own))


@contextmanager
def _reading(session: SparkSession, table: Any, tasks: Any, size: int) -> Iterator[DataFrame]:
    """The rows of scan tasks; `size` is their approximate size in bytes."""
    split = max(_SPLIT_BYTES, -(-size // session.sparkContext.defaultParallelism))
    with readable(table, tasks) as source:
        yield session.read.option("split-size", str(split)).option("file-open-cost", str(OPEN_COST)).table(source)


def _write(session: SparkSession, goal: RepartitionTarget, rows: DataFrame, size: int, recipe: LayoutRecipe) -> Any:
    """Write rows into new files. Each task gets its rows partition by partition, so it has one file open at a time."""
    # Iceberg's own order of rows is not that of their partitions if a uuid is hashed.
    options = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "false"}
    options["output-spec-id"] = str(goal.spec_id)
    if recipe.compression is not None:
        options["compression-codec"] = recipe.compression
    arranged = _arranged(session, rows, size, recipe, goal)
    derived = computed_columns(recipe.derived, is_stored=False, only_null=False)
    with (
        spark_setting(session, _SKEW, str(_SKEW_BYTES)),
        naming_failures(session, derived, identifying(recipe.source), lambda: named(rows)),
    ):
        return write_files(goal.table, arranged, options)


def _arranged(
    session: SparkSession, rows: DataFrame, size: int, recipe: LayoutRecipe, goal: RepartitionTarget
) -> DataFrame:
    """The rows with their new columns, sorted by partition, for as few writers as is sensible."""
    parameters = Parameters()
    selected = select_list(recipe, parameters)
    given = keys(goal.layout.partition, recipe.schema)
    if not given:
        return over(rows, lambda name: f"SELECT {selected} FROM {name}", parameters.values)
    columns = ", ".join(identifier(name) for name in recipe.schema.names)
    names = ", ".join(f"{KEY}{n}" for n in range(len(given)))
    writers = max(session.sparkContext.defaultParallelism, size // _WRITER_BYTES)

    def text(name: str) -> str:
        return (
            f"SELECT {columns} FROM (SELECT /*+ REBALANCE({writers}, {names}) */ * "
            f"FROM (SELECT *, {', '.join(given)} FROM (SELECT {selected} FROM {name})) SORT BY {names})"
        )

    return over(rows, text, parameters.values)


def select_list(recipe: LayoutRecipe, parameters: Parameters) -> str:
    """The select list of the original columns and the derived ones."""
    new = (f"{computed(one, parameters)} AS {identifier(one.column)}" for one in recipe.derived)
    return ", ".join([*(identifier(name) for name in recipe.source.names), *new])


def _checksums(
    session: SparkSession, goal: RepartitionTarget, rows: DataFrame, files: Any, size: int, recipe: LayoutRecipe
) -> tuple[Checksum | None, Checksum | None]:
    """The checksums of the rows read and of the rows written, which are both read again; None without `validate`."""
    if not recipe.validate:
        return None, None
    metadata = goal.table.operations().current()
    schema = iceberg_class("SchemaParser").toJson(metadata.schema())
    spec = iceberg_class("PartitionSpecParser").toJson(metadata.spec())
    every = iceberg_class("expressions.Expressions").alwaysTrue()
    all_rows = iceberg_class("expressions.ResidualEvaluator").unpartitioned(every)
    task, no_deletes = iceberg_class("BaseFileScanTask"), array(f"{ICEBERG}.DeleteFile")
    tasks = [task(file, no_deletes, schema, spec, all_rows) for file in each(files)]
    counted = checksum.aggregates(recipe.source.fields)
    with (
        _reading(session, goal.table, tasks, size) as written,
        named(rows) as before,
        named(written) as after,
    ):
        text = f"SELECT 0, {counted} FROM {before} UNION ALL SELECT 1, {counted} FROM {after}"
        found = {row[0]: checksum.of(row[1:]) for row in session.sql(text).collect()}
    return found[0], found[1]
