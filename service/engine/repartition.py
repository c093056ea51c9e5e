"""The jobs that write a table's rows anew for another layout, batch by batch, and the commit that puts them in place."""

import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from service.engine import checksum
from service.engine.append import STAGING, each
from service.engine.bulk_calls import by_location, files_of, texts, total
from service.engine.checksum import Checksum
from service.engine.compaction import Beaten
from service.engine.jvm import java_class
from service.engine.layout import Built, Layout, evolved, writing_to
from service.engine.sql import identifier, run
from service.engine.swap import Tag, Target, is_a, swap
from service.engine.tables import current
from service.engine.tags import tagged
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
class Source:
    """A table as it is read, at one snapshot. Of use to the JVM that made it."""

    iceberg: Any
    snapshot_id: int | None
    tasks: Any
    """What there is to read, by the files' locations."""
    deletes: Mapping[str, tuple[str, ...]]
    """The delete files of those files that have some."""


@dataclass(frozen=True)
class Goal:
    """A table of the new layout that nothing is committed to yet. Of use to the JVM that made it."""

    table: Any
    built: Built
    spec_id: int
    layout: Layout


@dataclass(frozen=True)
class Recipe:
    """How rows become those of the new layout: the columns there were and those that are worked out from them."""

    source: TableSchema
    schema: TableSchema
    """With the new columns."""
    derived: str = ""
    """The select list of the new columns, each with a comma before it."""
    parameters: Mapping[str, str | int | bool] | None = None
    compression: str | None = None
    validate: bool = True


@dataclass(frozen=True)
class Written:
    """New files that no snapshot holds yet. The checksum is of the columns there were, and there where it was asked for."""

    handle: Any
    files: int
    rows: int
    bytes: int
    read: Checksum | None
    written: Checksum | None


def source_at(session: SparkSession, table: str, snapshot_id: int | None) -> Source:
    """All there is to read in a snapshot of a table; nothing, without one."""
    iceberg = current(session, table)
    if snapshot_id is None:
        return Source(iceberg, None, java_class("java.util.HashMap")(), {})
    tasks = by_location(iceberg.newScan().useSnapshot(snapshot_id).planFiles())
    summary = iceberg.snapshot(snapshot_id).summary()
    deletes: dict[str, tuple[str, ...]] = {}
    if str(summary.get("total-delete-files") or "0") != "0":
        for entry in each(tasks.entrySet()):
            found = tuple(sorted(str(file.location()) for file in each(entry.getValue().deletes())))
            if found:
                deletes[str(entry.getKey())] = found
    return Source(iceberg, snapshot_id, tasks, deletes)


def goal(session: SparkSession, table: str, layout: Layout, folder: str) -> Goal:
    """A table as it would be with a layout, for `rewrite` to write to."""
    iceberg = current(session, table)
    operations = iceberg.operations()
    base = operations.current()
    metadata = evolved(session, base, layout)
    written = writing_to(metadata, operations.io(), folder, str(iceberg.name()))
    return Goal(written, Built.on(base), int(metadata.defaultSpecId()), layout)


def rewrite(
    session: SparkSession, source: Source, goal: Goal, paths: Sequence[str], recipe: Recipe, tag: str
) -> Written:
    """Write the rows of some files into new ones of the new layout. The Spark jobs bear the tag."""
    tasks = java_class("java.util.ArrayList")()
    for path in paths:
        tasks.add(source.tasks.get(path))
    size = sum(int(task.length()) for task in each(tasks))
    with tagged(session, tag), _reading(session, source.iceberg, tasks, size) as rows:
        files = _write(session, goal, rows, size, recipe)
        try:
            read, written = _checked(session, goal, rows, files, recipe)
        except BaseException:
            _delete(goal, files)
            raise
    count = int(files.size())
    return Written(files, count, total(files, "recordCount"), total(files, "fileSizeInBytes"), read, written)


def discard(session: SparkSession, goal: Goal, written: Written) -> None:
    """Delete new files that certainly no snapshot holds."""
    _delete(goal, written.handle)


def commit(
    target: Target,
    source: Source,
    goal: Goal,
    kept: Sequence[str],
    done: Sequence[Written],
    summary: Mapping[str, str],
    tag: Tag | None,
    before_commit: Callable[[Any], object],
) -> int:
    """Put the new files in the place of all that the source has but those `kept`, and the layout with them; the
    snapshot it made, which says of itself what `summary` does.

    Beaten when the table is at another snapshot than the source's by now.
    """
    iceberg = target.load()
    name, operations = str(iceberg.name()), iceberg.operations()
    transaction = java_class(f"{_ICEBERG}.Transactions").newTransaction(name, operations)
    base = operations.current()
    target.check(base)
    goal.built.check(base)
    head = base.currentSnapshot()
    if (None if head is None else int(head.snapshotId())) != source.snapshot_id:
        raise Beaten("others committed to the table")
    metadata = evolved(target.session, base, goal.layout)
    # A transaction's own: they know the new layout, and what is done to them is seen by nobody.
    inside = transaction.table().operations()
    inside.commit(inside.current(), metadata)
    update = _replacing(java_class(f"{_ICEBERG}.BaseTable")(inside, name), source, kept, done)
    for key, value in summary.items():
        update = update.set(key, value)
    try:
        return swap(target, iceberg, update, before_commit, tag=tag, on=metadata)
    except Py4JJavaError as e:
        if is_a(e, f"{_ICEBERG}.exceptions.ValidationException"):
            raise Beaten("files to be replaced were changed meanwhile") from e
        raise


def _replacing(table: Any, source: Source, kept: Sequence[str], done: Sequence[Written]) -> Any:
    """The commit that takes out what was rewritten; of a table without files, one that changes none."""
    tasks = java_class("java.util.HashMap")(source.tasks)
    if kept:
        tasks.keySet().removeAll(texts(kept))
    if tasks.isEmpty():
        return table.newFastAppend()
    old, new = java_class(f"{_ICEBERG}.util.DataFileSet").create(), java_class(f"{_ICEBERG}.util.DataFileSet").create()
    old.addAll(files_of(tasks.values()))
    for one in done:
        new.addAll(one.handle)
    none = java_class(f"{_ICEBERG}.util.DeleteFileSet").create
    return table.newRewrite().validateFromSnapshot(source.snapshot_id).rewriteFiles(old, none(), new, none())


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
    columns = ", ".join(identifier(name) for name in recipe.schema.names)
    own = ", ".join(identifier(name) for name in recipe.source.names)
    given = keys(goal.layout.partition, recipe.schema)
    with _view(session, rows) as view:
        text = f"SELECT {own}{recipe.derived} FROM {view}"
        if given:
            names = ", ".join(f"{KEY}{n}" for n in range(len(given)))
            writers = max(session.sparkContext.defaultParallelism, size // _WRITER_BYTES)
            text = (
                f"SELECT {columns} FROM (SELECT /*+ REBALANCE({writers}, {names}) */ * "
                f"FROM (SELECT *, {', '.join(given)} FROM ({text})) SORT BY {names})"
            )
        return run(session, text, recipe.parameters or {})


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
    with _reading(session, goal.table, new, total(files, "fileSizeInBytes")) as written:
        with _view(session, rows) as before, _view(session, written) as after:
            text = f"SELECT 0, {counted} FROM {before} UNION ALL SELECT 1, {counted} FROM {after}"
            found = {row[0]: checksum.of(row[1:]) for row in session.sql(text).collect()}
    return found[0], found[1]


def _delete(goal: Goal, files: Any) -> None:
    io = goal.table.io()
    for file in each(files):
        io.deleteFile(str(file.location()))


@contextmanager
def _view(session: SparkSession, rows: DataFrame) -> Iterator[str]:
    """A name for rows in SQL text, as long as the text is being read."""
    name = f"_firn_{uuids.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        session.catalog.dropTempView(name)


@contextmanager
def _confs(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    for key, value in values.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            session.conf.unset(key)
