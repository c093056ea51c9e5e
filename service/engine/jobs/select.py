"""Runs a query as Spark SQL: its rows, whether there are more, and what was read for them."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import readable_files
from service.engine.iceberg.tables import PinnedTable, Place, current, pinned_reads, placed_view, with_places
from service.engine.session.java import java_class
from service.engine.session.rows import collect, json_rows
from service.engine.session.scans import Scan, read, scans
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import sql
from service.engine.sql.failing import conditions, identifying, naming_failures
from service.engine.sql.past import under
from service.engine.sql.policies.rows import visible_rows
from service.engine.sql.sql import Parameters, identifier, reference
from service.model import cursor
from service.model.filters.predicates import EVERY_ROW, And, Compare, In, IsNull, Predicate
from service.model.names import PLACE_COLUMNS
from service.model.query.model import (
    Computed,
    Grouping,
    Query,
    Sort,
    TableSource,
    aggregate_column,
    group_column,
)
from service.model.query.order import FileRows, page_of_files, total_order
from service.model.schema.columns import Column
from service.model.schema.types import Primitive, has_uuid

# Aggregates that Spark calls by another name.
_AGGREGATES = {"count_distinct": "count", "stddev": "stddev_samp", "variance": "var_samp"}
Fits = Callable[[pa.Table], bool]
_COMPILED_IN = ("integer", "long", "date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Selected:
    """The rows of a response; or only `plan`, if the query was to be explained."""

    table: pa.Table
    has_more: bool = False
    scanned_files: int = 0
    scanned_bytes: int = 0
    plan: str | None = None
    scans: tuple[Scan, ...] = ()
    in_total_order: bool = False
    """Whether each row has one place in the result, so that another run can continue after the last row."""

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as objects, ready for JSON. Raises InvalidQuery if a text is not valid."""
        return json_rows(self.table)


NO_ROWS = pa.table({})


@dataclass(frozen=True)
class Timed:
    """The result of a query, and how long it ran."""

    selected: Selected
    elapsed_ms: float


def timed(session: SparkSession, job: Callable[..., Selected], measured: bool, fits: Fits) -> Timed:
    """Run a query by its job. The wait for a session, which has nothing to do with the table's files, is left out."""
    started = time.perf_counter()
    return Timed(job(session, measured=measured, fits=fits), (time.perf_counter() - started) * 1000)


def select(
    session: SparkSession,
    query: Query,
    explain: bool,
    measured: bool = False,
    again: bool = False,
    more: bool = False,
    files: Callable[[], FileRows | None] = lambda: None,
    fits: Fits = lambda rows: True,
) -> Selected:
    """Run the query, or explain it, in a total order if it can be given one and has more rows than one page.

    With `measured`, its scans report how long planning took. With `again`, this page is not the first.
    With `more`, a plain query without a condition has rows beyond this page, unless some are deleted. `files` lists the
    files of the snapshot for a plain query. `fits` says whether one page has room for these rows.
    """
    ordered = total_order(query)
    measurements: tuple[Scan, ...] = ()
    if again and ordered is None:
        raise cursor.refused()
    # What needs no order is read in none, which takes less time, as long as all of it fits on one page.
    unordered = not query.sorts and not query.distinct and not query.grouping and not again
    places = [(source.spark_name, source.snapshot_id) for source in query.sources]
    with pinned_reads(session, places) as pinned, _naming_failures(session, query, pinned):
        if more and unordered and ordered is not None and not (explain or measured):
            known = files()
            if known is not None and known.rows is not None:
                return _page_of_files(session, ordered, known, pinned)
        if explain or ordered is None or unordered:
            df = framed(session, query, pinned)
            found = explained(df) if explain else selected(df, names_of(query), query.limit, measured)
            if explain or ordered is None or (not found.has_more and fits(found.table)):
                return found
            measurements = found.scans
        # The rows of the files are not those that are visible.
        listed = files() if query.is_plain and query.is_whole else None
        if listed is not None:
            return replace(_page_of_files(session, ordered, listed, pinned), scans=measurements)
        found = selected(framed(session, ordered, pinned), names_of(query), query.limit, measured)
        return replace(found, in_total_order=True)


def _naming_failures(
    session: SparkSession, query: Query, pinned: Mapping[Place, PinnedTable]
) -> AbstractContextManager[None]:
    """If a condition that is an expression fails in the block, its error says which one, and for which row if the query
    reads one table."""
    found = conditions(query.where)
    grouped = conditions(query.grouping.having) if query.grouping else []
    if query.joins or grouped or not query.is_whole:
        return naming_failures(session, [*found, *grouped], (), None)
    views = {place: identifier(one.view) for place, one in pinned.items()}
    source = _source(query, query.source, Parameters(), views)
    return naming_failures(session, found, identifying(query.source.schema), lambda: nullcontext(source))


def _page_of_files(
    session: SparkSession, query: Query, files: FileRows, pinned: Mapping[Place, PinnedTable]
) -> Selected:
    """A page of the rows of one table by file and position: only the files that hold the page are read whole."""
    source = query.source
    place = (source.spark_name, source.snapshot_id)
    rows = files.rows if query.where == EVERY_ROW else None
    if rows is None:
        rows = _rows_by_file(session, query, placed_view(session, pinned[place]))
    window = page_of_files(rows, query.offset, query.limit)
    if not window.paths:
        return Selected(NO_ROWS, in_total_order=True)
    iceberg = under(current(session, source.spark_name), files.schema_id)
    chosen = SnapshotFiles(source.snapshot_id or 0, frozenset(window.paths))
    with readable_files(session, iceberg, chosen) as staged:
        parameters = Parameters()
        text = statement(replace(query, offset=window.skipped), parameters, {place: with_places(staged)})
        found = selected(sql.run(session, text, parameters.values), names_of(query), query.limit, measured=False)
    size = sum(files.bytes[path] for path in window.paths)
    return Selected(found.table, found.has_more, len(window.paths), size, in_total_order=True)


def _rows_by_file(session: SparkSession, query: Query, view: str) -> dict[str, int]:
    """How many rows of each file match the query."""
    parameters, (file, _) = Parameters(), PLACE_COLUMNS
    where = sql.where(_selection(query.where), parameters)
    text = (
        f"SELECT {file}, count(*) FROM {identifier(view)} AS {identifier(query.source.alias)} WHERE {where} GROUP BY 1"
    )
    counted = collect(sql.run(session, text, parameters.values))
    return dict(zip(counted.column(0).to_pylist(), counted.column(1).to_pylist(), strict=True))


def names_of(query: Query) -> list[str]:
    return [output.name for output in query.outputs]


def framed(
    session: SparkSession, query: Query, pinned: Mapping[Place, PinnedTable] | None = None, *, paged: bool = True
) -> DataFrame:
    """The query as a frame, without its limit and offset if it is not `paged`."""
    parameters = Parameters()
    views = {
        place: identifier(placed_view(session, one) if query.placed else one.view)
        for place, one in (pinned or {}).items()
    }
    text = statement(query, parameters, views, paged=paged)
    uuids = any(has_uuid(source.schema) for source in query.sources)
    aggregate_from_metadata(session, allowed=query.is_whole and not uuids)
    return sql.run(session, text, parameters.values)


def aggregate_from_metadata(session: SparkSession, allowed: bool) -> None:
    """Set whether Iceberg may compute min, max and count from file statistics. With uuid columns it would fail."""
    session.conf.set("spark.sql.iceberg.aggregate-push-down.enabled", str(allowed).lower())


def selected(df: DataFrame, names: list[str], limit: int, measured: bool) -> Selected:
    """The first `limit` rows of a frame that returns at most one more; `names` are its columns."""
    table = collect(df).rename_columns(names)
    found = scans(df._jdf.queryExecution().executedPlan(), measured=measured)
    return Selected(table.slice(0, limit), table.num_rows > limit, *read(found), scans=found)


def explained(df: DataFrame) -> Selected:
    formatted = java_class("org.apache.spark.sql.execution.ExplainMode").fromString("formatted")
    return Selected(NO_ROWS, plan=df._jdf.queryExecution().explainString(formatted))


def statement(query: Query, parameters: Parameters, views: Mapping[Place, str], *, paged: bool = True) -> str:
    """The query's text. Its outputs are called c0, c1, …, so that no name from the request has a meaning for Spark."""
    source = _source(query, query.source, parameters, views)
    for join in query.joins:
        conditions = (
            f"{reference(c.left, parameters)} {sql.COMPARE[c.operator]} {reference(c.right, parameters)}"
            for c in join.on
        )
        source += (
            f" {join.kind.upper()} JOIN {_source(query, join.source, parameters, views)} ON {' AND '.join(conditions)}"
        )
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

    Beside what may fail for a row it stays as it is: a row without the value would be null there, not false, and the
    code of tables with many columns tests such a row further.
    """
    match where:
        case And(children) if _only_compares(where):
            return And(tuple(_selection(child) for child in children))
        case Compare(Column(type=Primitive(kind)) as column, "eq", operand) if kind in _COMPILED_IN:
            return where if isinstance(operand, Column) else In(column, (operand,), or_null=True)
    return where


def _only_compares(where: Predicate) -> bool:
    """Whether a predicate can be computed of every row."""
    if isinstance(where, And):
        return all(map(_only_compares, where.children))
    return isinstance(where, Compare | In | IsNull)


def _source(query: Query, source: TableSource, parameters: Parameters, views: Mapping[Place, str]) -> str:
    """What the sender sees of a source in SQL; `views` are names, or parenthesised queries."""
    text = views.get((source.spark_name, source.snapshot_id))
    if text is None:
        table = sql.at_snapshot(source.spark_name, source.snapshot_id)
        text = with_places(table) if query.placed else table
    if source.view is not None:
        text = visible_rows(source.view, text, parameters, PLACE_COLUMNS if query.placed else ())
    return f"{text} AS {identifier(source.alias)}"


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
