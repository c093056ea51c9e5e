"""Ingest several small files by one Spark job for all good rows and two for all rejects.

Each file is split into records already. One task reads it, and writes data files with the rows of its date only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.engine.iceberg.staging import StagedFiles, stage_rows
from service.engine.iceberg.swap import CommitTarget
from service.engine.jobs.ingest.files import IngestTarget, compiled_for
from service.engine.jobs.ingest.restate import only_date
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import ingest_sql as sql
from service.engine.sql.sql import Parameters, over
from service.errors import InternalError
from service.model.ingest.reading import Cleaning, ReadableFile, Rule
from service.model.ingest.reserved import DATE_FIELD
from service.model.schema.types import Field

# A file costs as much as a task may read, so that each has a task of its own.
_COST = 1 << 30
_ONE_TASK_PER_FILE = ("spark.sql.files.openCostInBytes", "spark.sql.files.maxPartitionBytes")
_OPTIONS = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "false"}


@dataclass(frozen=True)
class FilePart:
    """One of the files, and the columns that have the same value in all of its rows."""

    path: str
    constants: tuple[tuple[Field, Any], ...]

    @property
    def name(self) -> str:
        return Path(self.path).name


def stage_all_good_rows(
    session: SparkSession,
    target: IngestTarget,
    like: ReadableFile,
    cleaning: Cleaning,
    parts: Sequence[FilePart],
) -> list[StagedFiles]:
    """Write the rows that break no rule into data files of the table; those of each file, in the same order."""
    iceberg = CommitTarget(session, target.name, target.uuid, target.schema_id).load()
    with _cleaned(session, like, cleaning, parts, (sql.FILE_NAME,)) as rows:
        parameters = Parameters()
        constants = _constants(parts)
        good = over(rows, lambda name: sql.rows_of_table(cleaning, name, constants, parameters), parameters.values)
        staged = stage_rows(iceberg, good, _OPTIONS)
    return _by_part(staged, parts, iceberg)


def count_all_rejects(
    session: SparkSession, like: ReadableFile, cleaning: Cleaning, parts: Sequence[FilePart], rules: Sequence[Rule]
) -> list[tuple[int, ...]]:
    """For each file, how many rows broke each rule first."""
    from pyspark.sql.functions import expr

    with _cleaned(session, like, cleaning, parts, (sql.FILE_NAME,)) as rows:
        counts = [expr(text).alias(f"r{i}") for i, text in enumerate(sql.counted_rules(tuple(rules)))]
        found = rows.where(sql.IS_REJECTED).groupBy(sql.FILE_NAME).agg(*counts).collect()
    by_name = {row[0]: tuple(int(count) for count in row[1:]) for row in found}
    return [by_name.get(part.name, (0,) * len(rules)) for part in parts]


def stage_all_rejects(
    session: SparkSession,
    like: ReadableFile,
    cleaning: Cleaning,
    parts: Sequence[FilePart],
    rules: Sequence[Rule],
    quarantine: IngestTarget,
) -> StagedFiles:
    """Write the rows that break a rule as rows of the quarantine table."""
    iceberg = CommitTarget(session, quarantine.name, quarantine.uuid, quarantine.schema_id).load()
    with _cleaned(session, like, cleaning, parts, (sql.RAW, sql.LINE, sql.FILE_NAME)) as rows:
        parameters = Parameters()
        constants = _constants(parts)
        rejected = over(
            rows.where(sql.IS_REJECTED),
            lambda name: sql.quarantined(name, rules, sql.LINE, constants, parameters),
            parameters.values,
        )
        return stage_rows(iceberg, rejected.coalesce(1))


@contextmanager
def _cleaned(
    session: SparkSession, like: ReadableFile, cleaning: Cleaning, parts: Sequence[FilePart], kept: tuple[str, ...]
) -> Iterator[DataFrame]:
    first, second = (spark_setting(session, name, str(_COST)) for name in _ONE_TASK_PER_FILE)
    with first, second, compiled_for(session, len(like.fields)):
        records = session.read.parquet(*(part.path for part in parts))
        records = records.selectExpr("*", f"_metadata.file_name AS {sql.FILE_NAME}")
        parameters = Parameters()

        def text(name: str) -> str:
            source = sql.parsed(like, name, parameters)
            fields = sql.field_sources(like)
            return sql.cleaned(cleaning, like, fields, source, sql.record_problem(like), kept, parameters)

        yield over(records, text, parameters.values)


def _constants(parts: Sequence[FilePart]) -> sql.Constants:
    """Each constant column with its value in each file, by the file's name."""
    fields = [field for field, _ in parts[0].constants]
    return [(field, {part.name: part.constants[i][1] for part in parts}) for i, field in enumerate(fields)]


def _by_part(staged: StagedFiles, parts: Sequence[FilePart], iceberg: Any) -> list[StagedFiles]:
    """The data files of each part, by their only date."""
    field = iceberg.schema().findField(DATE_FIELD.name)
    files: dict[Any, list[Any]] = {}
    for file in staged.files:
        files.setdefault(only_date(file, field), []).append(file)
    dates = [next(value for f, value in part.constants if f == DATE_FIELD) for part in parts]
    found = [StagedFiles(staged.io, tuple(files.pop(day, ())), staged.ranges) for day in dates]
    if files:
        staged.discard()
        raise InternalError("a data file of an ingest has rows of several dates; nothing was committed")
    return found
