"""Runs a query as Spark SQL: its rows, whether there are more, and what was read for them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from service.engine.iceberg.tables import PinnedTable, Place, pinned_reads
from service.engine.session.java import java_class
from service.engine.session.rows import collect, json_rows
from service.engine.session.scans import Scan, read, scans
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import sql
from service.engine.sql.failing import conditions, identifying, naming_failures
from service.engine.sql.sql import Parameters, identifier, reference
from service.model.filters.predicates import And, Compare, In, Predicate
from service.model.query.model import (
    Computed,
    Grouping,
    Query,
    Sort,
    TableSource,
    aggregate_column,
    group_column,
)
from service.model.schema.columns import Column
from service.model.schema.types import Primitive, has_uuid

# Aggregates that Spark calls by another name.
_AGGREGATES = {"count_distinct": "count", "stddev": "stddev_samp", "variance": "var_samp"}
_COMPILED_IN = ("integer", "long", "date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Selected:
    """The rows of a response, ready for JSON; or only `plan`, if the query was to be explained."""

    rows: list[dict[str, Any]]
    has_more: bool = False
    scanned_files: int = 0
    scanned_bytes: int = 0
    plan: str | None = None
    scans: tuple[Scan, ...] = ()


def select(session: SparkSession, query: Query, explain: bool, measured: bool = False) -> Selected:
    """Run the query, or explain it. With `measured`, its scans report how long planning took."""
    with pinned_reads(session, [(source.spark_name, source.snapshot_id) for source in query.sources]) as pinned:
        df = framed(session, query, pinned)
        names = [output.name for output in query.outputs]
        if explain:
            return explained(df)
        with _naming_failures(session, query, pinned):
            return selected(df, names, query.limit, measured)


def _naming_failures(
    session: SparkSession, query: Query, pinned: Mapping[Place, PinnedTable]
) -> AbstractContextManager[None]:
    """If a condition that is an expression fails in the block, its error says which one, and for which row if the query
    reads one table."""
    found = conditions(query.where)
    grouped = conditions(query.grouping.having) if query.grouping else []
    if query.joins or grouped:
        return naming_failures(session, [*found, *grouped], (), None)
    source = _source(query.source, pinned)
    return naming_failures(session, found, identifying(query.source.schema), lambda: nullcontext(source))


def framed(
    session: SparkSession, query: Query, pinned: Mapping[Place, PinnedTable] | None = None, *, paged: bool = True
) -> DataFrame:
    """The query as a frame, without its limit and offset if it is not `paged`."""
    parameters = Parameters()
    text = statement(query, parameters, pinned or {}, paged=paged)
    aggregate_from_metadata(session, allowed=not any(has_uuid(source.schema) for source in query.sources))
    return sql.run(session, text, parameters.values)


def aggregate_from_metadata(session: SparkSession, allowed: bool) -> None:
    """Set whether Iceberg may compute min, max and count from file statistics. With uuid columns it would fail."""
    session.conf.set("spark.sql.iceberg.aggregate-push-down.enabled", str(allowed).lower())


def selected(df: DataFrame, names: list[str], limit: int, measured: bool) -> Selected:
    """The first `limit` rows of a frame that returns at most one more; `names` are its columns."""
    table = collect(df).rename_columns(names)
    found = scans(df._jdf.queryExecution().executedPlan(), measured=measured)
    return Selected(json_rows(table.slice(0, limit)), table.num_rows > limit, *read(found), scans=found)


def explained(df: DataFrame) -> Selected:
    formatted = java_class("org.apache.spark.sql.execution.ExplainMode").fromString("formatted")
    return Selected([], plan=df._jdf.queryExecution().explainString(formatted))


def statement(query: Query, parameters: Parameters, pinned: Mapping[Place, PinnedTable], *, paged: bool = True) -> str:
    """The query's text. Its outputs are called c0, c1, …, so that no name from the request has a meaning for Spark."""
    source = _source(query.source, pinned)
    for join in query.joins:
        conditions = (
            f"{reference(c.left, parameters)} {sql.COMPARE[c.operator]} {reference(c.right, parameters)}"
            for c in join.on
        )
        source += f" {join.kind.upper()} JOIN {_source(join.source, pinned)} ON {' AND '.join(conditions)}"
    condition = _selection(query.where)
    if query.grouping:
        source, condition = _grouped(query, query.grouping, source, parameters), query.grouping.having
    outputs = ", ".join(f"{_value(o.value, parameters)} AS c{i}" for i, o in enumerate(query.outputs))
    text = f"SELECT {'DISTINCT ' if query.distinct else ''}{outputs} FROM {source}"
    text += f" WHERE {sql.where(condition, parameters)}"
    if query.sorts:
        text += f" ORDER BY {', '.join(_sort(s, parameters) for s in query.sorts)}"
    # One more row than requested shows whether there are more.
    return f"{text} LIMIT {query.limit + 1} OFFSET {query.offset}" if paged else text


def _selection(where: Predicate) -> Predicate:
    """A predicate that matches the same rows, but that Spark need not compile again for another value.

    If a column is compared with a number, Spark generates code that contains it, and compiling that takes longer than a
    point query takes to run. The values of a set are not in the code, and the null makes a single value a set.
    """
    match where:
        case And(children):
            return And(tuple(_selection(child) for child in children))
        case Compare(Column(type=Primitive(kind)) as column, "eq", operand) if kind in _COMPILED_IN:
            return where if isinstance(operand, Column) else In(column, (operand,), or_null=True)
    return where


def _source(source: TableSource, pinned: Mapping[Place, PinnedTable]) -> str:
    found = pinned.get((source.spark_name, source.snapshot_id))
    if found is not None:
        return f"{identifier(found.view)} AS {identifier(source.alias)}"
    return f"{sql.at_snapshot(source.spark_name, source.snapshot_id)} AS {identifier(source.alias)}"


def _grouped(query: Query, grouping: Grouping, source: str, parameters: Parameters) -> str:
    columns = [f"{_value(g, parameters)} AS {group_column(i)}" for i, g in enumerate(grouping.groups)]
    for i, a in enumerate(grouping.aggregates):
        column = "*" if a.column is None else reference(a.column, parameters)
        call = f"{_AGGREGATES.get(a.kind, a.kind)}({'DISTINCT ' if a.distinct else ''}{column})"
        columns.append(f"{call} AS {aggregate_column(i)}")
    text = f"SELECT {', '.join(columns)} FROM {source} WHERE {sql.where(_selection(query.where), parameters)}"
    if grouping.groups:
        text += f" GROUP BY {', '.join(str(i + 1) for i in range(len(grouping.groups)))}"
    return f"({text})"


def _sort(sort: Sort, parameters: Parameters) -> str:
    by = f"c{sort.by}" if isinstance(sort.by, int) else _value(sort.by, parameters)
    return f"{by} {'DESC' if sort.descending else 'ASC'} NULLS {'FIRST' if sort.nulls_first else 'LAST'}"


def _value(value: Computed, parameters: Parameters) -> str:
    text = reference(value.column, parameters)
    for step in value.steps:
        arguments = [parameters.add(argument) for argument in step.arguments]
        match step.kind:
            case "cast":
                text = f"CAST({text} AS {sql.spark_type(step.type)})"
            case "trim" | "upper" | "lower" | "substring" | "date_format":
                text = f"{step.kind}({', '.join([text, *arguments])})"
            case "extract":
                text = f"date_part({arguments[0]}, {text})"
            case "date_trunc":
                # Spark's function returns a timestamp for whatever it is given.
                text = f"CAST(date_trunc({arguments[0]}, {text}) AS {sql.spark_type(step.type)})"
    return text
