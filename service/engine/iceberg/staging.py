"""Have Spark read chosen files of a table, or write files without committing them.

Both use the catalog of Iceberg's own compaction. A name in it stands for the scan tasks to read, or for a write that
leaves the commit to its caller.
"""

import uuid as uuids
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.engine.iceberg.scan_tasks import SnapshotFiles, tasks
from service.engine.session.java import each, iceberg_class
from service.engine.session.rows import frame
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql.ranges import ranged
from service.engine.sql.sql import identifier, named
from service.model.names import PLACE_COLUMNS
from service.model.schema.ranges import RANGES_PROPERTY

_CATALOG = "default_rewrite_catalog"


@dataclass(frozen=True)
class StagedFiles:
    """Data files that were written and belong to no snapshot yet."""

    io: Any
    files: tuple[Any, ...]
    ranges: str = ""
    """The table's property with the ranges that split it, as it was when they were written."""

    @property
    def paths(self) -> list[str]:
        return [str(file.location()) for file in self.files]

    @property
    def records(self) -> int:
        return sum(int(file.recordCount()) for file in self.files)

    def discard(self) -> None:
        """Delete the files; only if it is certain that no snapshot has them."""
        for path in self.paths:
            self.io.deleteFile(path)


@contextmanager
def readable(iceberg: Any, scan_tasks: Any) -> Iterator[str]:
    """A name in SQL, for the block, for the rows that the scan tasks read."""
    task_sets = iceberg_class("spark.ScanTaskSetManager").get()
    with _named(iceberg) as name:
        task_sets.stageTasks(iceberg, name, scan_tasks)
        try:
            yield f"{_CATALOG}.`{name}`"
        finally:
            task_sets.removeTasks(iceberg, name)


@contextmanager
def readable_files(session: SparkSession, iceberg: Any, files: SnapshotFiles) -> Iterator[str]:
    """A name in SQL, for the block, for the rows of some files of a snapshot, and for rows at some places."""
    with ExitStack() as stack:
        parts = []
        if files.paths or not files.places:
            parts.append(stack.enter_context(readable(iceberg, tasks(iceberg, files.snapshot_id, files.paths))))
        if not files.places:
            yield parts[0]
            return
        source = stack.enter_context(readable(iceberg, tasks(iceberg, files.snapshot_id, files.places)))
        wanted = stack.enter_context(named(frame(session, _place_rows(files.places))))
        names = ", ".join(identifier(str(column.name())) for column in each(iceberg.schema().columns()))
        (file, pos), columns = PLACE_COLUMNS, f"{names}, _file, _pos"
        at = f"_firn_t.{file} = _firn_w.file AND _firn_t.{pos} = _firn_w.pos"
        placed = f"(SELECT {columns}, _file AS {file}, _pos AS {pos} FROM {source}) AS _firn_t"
        some = f"SELECT /*+ BROADCAST(_firn_w) */ {columns} FROM {placed} LEFT SEMI JOIN {wanted} AS _firn_w ON {at}"
        whole = [f"SELECT {columns} FROM {part}" for part in parts]
        yield stack.enter_context(named(session.sql(" UNION ALL ".join([*whole, some]))))


def _place_rows(places: Mapping[str, pa.Array]) -> pa.Table:
    paths = [pa.repeat(pa.scalar(path), len(some)) for path, some in places.items()]
    return pa.table({"file": pa.concat_arrays(paths), "pos": pa.concat_arrays(list(places.values()))})


def write_files(iceberg: Any, rows: DataFrame, options: Mapping[str, str]) -> Any:
    """Write rows with the table's columns into data files, a Java set. `options` are Iceberg's write options."""
    writes = iceberg_class("spark.FileRewriteCoordinator").get()
    with _named(iceberg) as name:
        try:
            writer = rows._jdf.writeTo(f"{_CATALOG}.`{name}`")
            for option, value in options.items():
                writer = writer.option(option, value)
            writer.append()
            return writes.fetchNewFiles(iceberg, name)
        finally:
            writes.clearRewrite(iceberg, name)


def stage_rows(iceberg: Any, rows: DataFrame, options: Mapping[str, str] | None = None) -> StagedFiles:
    """Write rows as `write_files` does, with each row's range if the table is split by ranges."""
    ranges = str(iceberg.properties().get(RANGES_PROPERTY) or "")
    files = write_files(iceberg, ranged(iceberg, ranges, rows), options or {})
    return StagedFiles(iceberg.io(), tuple(each(files)), ranges)


@contextmanager
def _named(iceberg: Any) -> Iterator[str]:
    """A name for the table in the catalog, for the block."""
    name = uuids.uuid4().hex
    tables = iceberg_class("spark.SparkTableCache").get()
    tables.add(name, iceberg)
    try:
        yield name
    finally:
        tables.remove(name)
