"""Files of a table that Spark reads by their scan tasks, or writes without committing them.

Both go through the catalog that Iceberg's own compaction uses: names in it stand for tasks to read, or for a write
that leaves its files for someone else to commit.
"""

import uuid as uuids
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.engine.session.java import each, iceberg_class
from service.engine.session.spark_types import SparkSession
from service.engine.sql.ranges import ranged
from service.model.schema.ranges import RANGES_PROPERTY

_CATALOG = "default_rewrite_catalog"


@dataclass(frozen=True)
class StagedFiles:
    """Data files that are written and that no snapshot holds yet."""

    io: Any
    files: tuple[Any, ...]
    ranges: str = ""
    """The ranges that the table was split by when they were written, as its property has them."""

    @property
    def paths(self) -> list[str]:
        return [str(file.location()) for file in self.files]

    @property
    def records(self) -> int:
        return sum(int(file.recordCount()) for file in self.files)

    def discard(self) -> None:
        """Delete the files; only if certainly no snapshot holds them."""
        for path in self.paths:
            self.io.deleteFile(path)


@contextmanager
def readable(iceberg: Any, tasks: Any) -> Iterator[str]:
    """A table in SQL during the block: the rows of some scan tasks, and nothing else."""
    task_sets = iceberg_class("spark.ScanTaskSetManager").get()
    with _named(iceberg) as name:
        task_sets.stageTasks(iceberg, name, tasks)
        try:
            yield f"{_CATALOG}.`{name}`"
        finally:
            task_sets.removeTasks(iceberg, name)


def write_files(iceberg: Any, rows: Any, options: Mapping[str, str]) -> Any:
    """Write the rows of the JVM's frame, whose columns are the table's, into data files: a Java set of them.

    `options` are Iceberg's write options.
    """
    writes = iceberg_class("spark.FileRewriteCoordinator").get()
    with _named(iceberg) as name:
        try:
            writer = rows.writeTo(f"{_CATALOG}.`{name}`")
            for option, value in options.items():
                writer = writer.option(option, value)
            writer.append()
            return writes.fetchNewFiles(iceberg, name)
        finally:
            writes.clearRewrite(iceberg, name)


def stage_rows(session: SparkSession, iceberg: Any, rows: Any, options: Mapping[str, str] | None = None) -> StagedFiles:
    """The same, with each row's range if the table is split by ranges."""
    ranges = str(iceberg.properties().get(RANGES_PROPERTY) or "")
    files = write_files(iceberg, ranged(session, iceberg, ranges, rows), options or {})
    return StagedFiles(iceberg.io(), tuple(each(files)), ranges)


@contextmanager
def _named(iceberg: Any) -> Iterator[str]:
    """A name for the table in that catalog."""
    name = uuids.uuid4().hex
    tables = iceberg_class("spark.SparkTableCache").get()
    tables.add(name, iceberg)
    try:
        yield name
    finally:
        tables.remove(name)
