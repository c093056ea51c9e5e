"""Ingest a file: its good rows become data files of the table, which are committed later, and its bad ones rejects.

The second job, for the rejects, runs only if there are any: it numbers the lines of the file.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

from service.engine.iceberg.staging import StagedFiles, stage_rows
from service.engine.iceberg.swap import CommitTarget
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import ingest_sql as sql
from service.engine.sql.sql import Parameters, at_snapshot, identifier, over, run, where
from service.model.filters.predicates import Predicate
from service.model.ingest.reading import Cleaning, ReadableFile, Rule
from service.model.schema.types import Field

_SPLIT_SETTING = "spark.sql.files.maxPartitionBytes"
_JOINED_SETTING = "spark.sql.codegen.wholeStage"
_MIN_SPLIT, _MAX_SPLIT = 16 << 20, 128 << 20
# The number of a row in its task, without the task's own number.
_IN_TASK = (1 << 33) - 1

LineCounts = Callable[[str, int], list[int]]
"""The number of lines before the first one that starts in each part of a file, given the size of the parts."""


@dataclass(frozen=True)
class IngestTarget:
    """The table, as it was when the columns of the file were compared with its own."""

    name: str
    uuid: str
    schema_id: int


@dataclass(frozen=True)
class Rejects:
    """The rows of a file that broke a rule, as staged rows of the quarantine table."""

    by_rule: tuple[int, ...] = ()
    """How many rows broke each rule first."""
    staged: StagedFiles | None = None

    @property
    def count(self) -> int:
        return sum(self.by_rule)


def stage_good_rows(session: SparkSession, target: IngestTarget, file: ReadableFile, cleaning: Cleaning) -> StagedFiles:
    """Write the rows of a file that break no rule into data files of the table, without committing them."""
    iceberg = CommitTarget(session, target.name, target.uuid, target.schema_id).load()
    with _records(session, file, numbered=False) as (records, _):
        return stage_rows(iceberg, _good(_cleaned(records, file, cleaning, ()), cleaning))


def count_good_rows(session: SparkSession, file: ReadableFile, cleaning: Cleaning) -> int:
    """How many rows of a file break no rule. Every value is computed, as it would be to write them."""
    with _records(session, file, numbered=False) as (records, _):
        rows = _cleaned(records, file, cleaning, ())
        hashed = f"count(xxhash64({', '.join(identifier(c.name) for c in cleaning.columns)}))"
        return int(rows.where(sql.IS_GOOD).selectExpr(hashed).collect()[0][0])


def all_pass(
    session: SparkSession, table: str, snapshot_id: int | None, column: str, day: date, filters: Sequence[Predicate]
) -> bool:
    """Whether all rows of a table with a date in a column pass these filters."""
    parameters = Parameters()
    passed = " AND ".join(["TRUE", *(f"coalesce({where(one, parameters)}, FALSE)" for one in filters)])
    condition = f"{identifier(column)} = DATE({parameters.add(str(day))}) AND NOT ({passed})"
    text = f"SELECT 1 FROM {at_snapshot(table, snapshot_id)} WHERE {condition} LIMIT 1"
    return not run(session, text, parameters.values).collect()


def field_types(session: SparkSession, file: ReadableFile, *, guess: bool) -> dict[str, str]:
    """The types of a file's fields, as dataset files name them. Those of a text file are guessed from all of its
    values, which takes a job, or left out."""
    with _records(session, file, numbered=False) as (records, _):
        if file.is_typed:
            types = dict(records.dtypes)
            return {name: sql.dataset_type(types[name]) for name in file.fields}
        if not guess or not file.fields:
            return {}
        parameters = Parameters()

        def text(name: str) -> str:
            listed = ", ".join(sql.guesses(sql.field_sources(file), file, parameters))
            kept = f"{sql.COMPUTED_ONCE} AND NOT ({sql.record_problem(file)})"
            return f"SELECT {listed} FROM {sql.parsed(file, name, parameters)} WHERE {kept}"

        counts = over(records, text, parameters.values).collect()[0]
        return sql.guessed([int(count) for count in counts], file.fields)


def find_rejects(
    session: SparkSession,
    file: ReadableFile,
    cleaning: Cleaning,
    lines_before: LineCounts,
    quarantine: IngestTarget | None,
    values: Sequence[tuple[Field, Any]],
    *,
    good: bool = False,
) -> Rejects:
    """Count the rows of a file that break a rule, and stage them as rows of the quarantine table, if it is given; with
    `good` those that break none.

    `values` are the columns of that table that have the same value in all of these rows.
    """
    from pyspark.sql import Observation
    from pyspark.sql.functions import expr

    rules = cleaning.rules(file)
    with _records(session, file, numbered=True) as (records, split):
        starts = lines_before(file.path, split) if split else []
        rows = _cleaned(records, file, cleaning, (sql.RAW, *_place_columns(file)))
        rejected = rows.where(sql.IS_GOOD if good else sql.IS_REJECTED)
        counts = [expr(text).alias(f"r{i}") for i, text in enumerate(sql.counted_rules(rules))]
        if quarantine is None:
            return Rejects(tuple(int(n) for n in rejected.agg(*counts).collect()[0]))
        counted = Observation()
        rejected = rejected.observe(counted, *counts)
        iceberg = CommitTarget(session, quarantine.name, quarantine.uuid, quarantine.schema_id).load()
        line = sql.line_number(file, starts, split)
        staged = stage_rows(iceberg, _quarantined(rejected, rules, line, values))
        by_rule = counted.get
        return Rejects(tuple(int(by_rule[f"r{i}"]) for i in range(len(rules))), staged)


def _place_columns(file: ReadableFile) -> tuple[str, ...]:
    if file.is_split or file.is_typed:
        return (sql.LINE,)
    return (sql.START, sql.NUMBER)


@contextmanager
def _records(session: SparkSession, file: ReadableFile, *, numbered: bool) -> Iterator[tuple[DataFrame, int]]:
    """The records of a file; and for a text file that is not split yet, the size of its splits."""
    cores = session.sparkContext.defaultParallelism
    split = min(max(-(-file.size // cores), _MIN_SPLIT), _MAX_SPLIT)
    with spark_setting(session, _SPLIT_SETTING, str(split)), compiled_for(session, len(file.fields)):
        if file.is_split:
            yield session.read.parquet(file.path), 0
        elif file.is_typed:
            yield _parquet(session, file, numbered), 0
        else:
            yield _lines(session, file), split


def compiled_for(session: SparkSession, columns: int) -> AbstractContextManager[None]:
    """Have Spark compile the jobs of a block in the way that is faster for files with so many columns."""
    return spark_setting(session, _JOINED_SETTING, "false" if columns > sql.MOST_JOINED else None)


def _parquet(session: SparkSession, file: ReadableFile, numbered: bool) -> DataFrame:
    rows = session.read.parquet(file.path)
    if not numbered:
        return rows
    names = ", ".join(identifier(name) for name in file.fields)
    raw = f"to_json(struct({names}), map('ignoreNullFields', 'false')) AS {sql.RAW}"
    return rows.selectExpr("*", raw, f"_metadata.row_index + 1 AS {sql.LINE}")


def _lines(session: SparkSession, file: ReadableFile) -> DataFrame:
    """The records of a text file, each with the start of its split and its number in it."""
    raw = "value"
    if file.has_cr:
        raw = r"CASE WHEN endswith(value, '\r') THEN left(value, length(value) - 1) ELSE value END"
    number = f"monotonically_increasing_id() & {_IN_TASK}"
    # The only file is split into tasks of one split each, so a row's number in its task is that in its split.
    lines = session.read.option("lineSep", "\n").text(file.path)
    lines = lines.selectExpr(
        f"{raw} AS {sql.RAW}", f"_metadata.file_block_start AS {sql.START}", f"{number} AS {sql.NUMBER}"
    )
    if file.has_bom:
        first = f"{sql.START} = 0 AND {sql.NUMBER} = 0"
        raw = f"CASE WHEN {first} THEN ltrim('\ufeff', {sql.RAW}) ELSE {sql.RAW} END AS {sql.RAW}"
        lines = lines.selectExpr(raw, sql.START, sql.NUMBER)
    kept = f"{sql.RAW} <> ''"
    if file.skipped_lines:
        kept += f" AND NOT ({sql.START} = 0 AND {sql.NUMBER} < {file.skipped_lines})"
    return lines.where(kept)


def _cleaned(records: DataFrame, file: ReadableFile, cleaning: Cleaning, kept: tuple[str, ...]) -> DataFrame:
    """The rows of the table, each with the number of the first rule that it breaks, and the columns `kept`."""
    parameters = Parameters()
    if file.is_typed:
        types = dict(records.dtypes)
        fields = {name: sql.FieldSource(identifier(name), types[name]) for name in file.fields}
        return over(
            records,
            lambda name: sql.cleaned(cleaning, file, fields, name, "FALSE", kept, parameters),
            parameters.values,
        )

    def text(name: str) -> str:
        source = sql.parsed(file, name, parameters)
        problem = sql.record_problem(file)
        return sql.cleaned(cleaning, file, sql.field_sources(file), source, problem, kept, parameters)

    return over(records, text, parameters.values)


def _good(rows: DataFrame, cleaning: Cleaning) -> DataFrame:
    """The rows that break no rule, with the table's internal columns."""
    parameters, constants = Parameters(), sql.of_one_file(cleaning.constants)
    return over(rows, lambda name: sql.rows_of_table(cleaning, name, constants, parameters), parameters.values)


def _quarantined(
    rejected: DataFrame, rules: Sequence[Rule], line: str, values: Sequence[tuple[Field, Any]]
) -> DataFrame:
    """The rejects as rows of the quarantine table."""
    parameters, constants = Parameters(), sql.of_one_file(values)
    return over(rejected, lambda name: sql.quarantined(name, rules, line, constants, parameters), parameters.values)
