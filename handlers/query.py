"""QUERY: rows out, by the JSON dialect or by one SELECT, as JSON or as a stream."""

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from service.catalog.tables import Table
from service.context import Context
from service.engine import select, stream, tenant_sql
from service.engine.scans import Scan
from service.engine.select import Selected
from service.engine.stream import Batches
from service.engine.tenant_sql import Statement, View
from service.engine.window import Window
from service.errors import InvalidQuery, InvalidRequest, SnapshotNotFound, TableNotFound, nearest
from service.guard.sql import Reads, check_analysed, check_parsed
from service.guard.views import name_views
from service.moments import Moment, moment
from service.names import TableName, check_name
from service.operation import Example, Metadata, Request, Result, operation
from service.query.items import Aggregations, JoinItem, Joins, Projection, Sorts
from service.query.model import Source
from service.query.plan import Asked, plan
from service.schema import MAX_DEPTH
from service.streams.accept import Form, wanted
from service.streams.streams import Stream

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
GIVEN = (
    {
        "operation": "CREATE_TABLE",
        **ADDRESS,
        "schema": {
            "fields": {
                "id": {"type": "long", "required": True},
                "customer": {"type": "string"},
                "total": {"type": "decimal(10,2)"},
                "at": {"type": "timestamp"},
            }
        },
    },
    {
        "operation": "WRITE",
        **ADDRESS,
        "records": [
            {"id": 1, "customer": "Ann", "total": "19.90", "at": "2024-01-31T10:00:00"},
            {"id": 2, "customer": "Bo", "total": "5.00", "at": "2024-02-01T09:30:00"},
            {"id": 3, "customer": "Ann", "total": "7.10", "at": "2024-02-02T18:45:00"},
        ],
    },
)


def _example(title: str, request: dict[str, Any], rows: list[dict[str, Any]], has_more: bool = False) -> Example:
    metadata: dict[str, Any] = dict.fromkeys(("request_id", "execution_time_ms", "snapshot_id"), "<any>")
    metadata |= {"row_count": len(rows), "scanned_files": 1, "scanned_bytes": "<any>", "has_more": has_more}
    answer = {"success": True, "data": rows, "metadata": metadata}
    return Example(title, {"operation": "QUERY", **ADDRESS, **request}, answer, given=GIVEN)


EXAMPLES = (
    _example(
        "Filter, sort, limit",
        {
            "projection": ["id", {"field": "customer", "upper": True, "alias": "name"}],
            "filter": {"total": {"gt": 6}},
            "sort": [{"field": "total", "order": "desc"}],
            "limit": 1,
        },
        [{"id": 1, "name": "ANN"}],
        has_more=True,
    ),
    _example(
        "The list dialect of filters",
        {"filters": [{"field": "at", "operator": "gte", "value": "2024-02-01T00:00:00"}], "sort": ["id"]},
        [
            {"id": 2, "customer": "Bo", "total": "5.00", "at": "2024-02-01T09:30:00"},
            {"id": 3, "customer": "Ann", "total": "7.10", "at": "2024-02-02T18:45:00"},
        ],
    ),
    _example(
        "Group and aggregate",
        {
            "group_by": ["customer"],
            "aggregations": [{"op": "count"}, {"op": "sum", "field": "total", "alias": "spent"}],
            "having": {"spent": {"gt": 5}},
        },
        [{"customer": "Ann", "count": 2, "spent": "27.00"}],
    ),
    _example(
        "SQL with parameters",
        {
            "sql": "SELECT customer, max(total) AS most FROM orders WHERE id < :id GROUP BY 1 ORDER BY 1",
            "params": {"id": 3},
        },
        [{"customer": "Ann", "most": "19.90"}, {"customer": "Bo", "most": "5.00"}],
    ),
)
_WITH_SQL = ("sql", "params", "limit", "offset", "as_of", "explain")
_MAX_SQL = 100_000
_MAX_JSON_ROWS = 100_000
_TRIES = 5
A = TypeVar("A")
_OPTIONS = re.compile(r"(?i)\bwith\s*\(")


class Query(Request):
    operation: Literal["QUERY"]
    table: str | None = Field(default=None, description="needed but with `sql`, which names its tables itself")
    projection: Projection = Field(default=[], description="columns, or objects that name one; else every column")
    filter: Any = Field(default=None, description="a filter of either dialect")
    filters: Any = Field(default=None, description="the same as `filter`")
    aggregations: Aggregations = Field(default=[], description="figures over each group, or over all rows")
    group_by: Projection = Field(default=[], description="columns, aliases of the projection, or such objects")
    having: Any = Field(default=None, description="a filter over groups and aggregates")
    join: Joins = Field(default=[], description="other tables of the tenant, and the columns that must agree")
    sort: Sorts = Field(default=[], description="without it rows come in any order, also from page to page")
    distinct: bool = Field(default=False, description="each row once")
    limit: Annotated[int, Field(ge=1, le=2_000_000_000)] = Field(
        default=1000,
        description="at most so many rows; in JSON up to 100,000, as CSV or Arrow any number, and all unless given",
    )
    offset: Annotated[int, Field(ge=0, le=2_000_000_000)] = Field(default=0, description="skip so many rows first")
    as_of: str | int | None = Field(
        default=None,
        description="a time, for every table of the query; or a snapshot id, or the name of a tag or backup, for the "
        "one that `table` names",
    )
    explain: bool = Field(default=False, description="answer with Spark's plan and no data; nothing is run")
    sql: str | None = Field(
        default=None, description="one SELECT over the tenant's tables: `table` or `namespace.table`"
    )
    params: dict[str, Any] | None = Field(default=None, description="values for the names in `sql`, such as `:id`")


class QueryMetadata(Metadata):
    row_count: int = Field(description="rows in this answer")
    scanned_files: int = Field(description="data files the query was planned to read, after pruning")
    scanned_bytes: int = Field(description="the size of those files")
    has_more: bool = Field(description="whether there are rows beyond `limit`")


class QueryResult(Result):
    data: list[Any] = Field(description="rows as objects")
    plan: str | None = Field(default=None, description="only with explain", json_schema_extra={"omit_when_null": True})
    metadata: QueryMetadata


@dataclass(frozen=True)
class _Reading:
    """What a query reads, and the jobs that read it: of a window of its rows as objects, or as batches."""

    rows: Callable[..., Selected]
    batches: Callable[..., Batches]
    tables: list[tuple[Table, int | None]]
    snapshot_id: int | None


@operation(Query, QueryResult, pool="queries", examples=EXAMPLES)
def query(request: Query, context: Context) -> "QueryResult | Stream":
    """Read rows: filtered, joined, grouped, sorted, as of now or of a moment in the past."""
    form = _form(request, context)
    if form != "json":
        return _read(request, context, partial(_streamed, form, request, context))
    return _read(request, context, partial(_collected, request, context))


def _form(request: Query, context: Context) -> Form:
    form = wanted(context.caller.accept)
    if form == "json" or request.explain:
        if request.limit > _MAX_JSON_ROWS:
            raise InvalidRequest(
                f"limit is {request.limit}, but must be at most {_MAX_JSON_ROWS} in JSON; "
                "ask for text/csv or an Arrow stream by the header Accept, which take any",
                field="limit",
            )
        return "json"
    if not context.caller.streams:
        raise InvalidRequest(
            "Accept: CSV and Arrow answers need HTTP/1.1, which tells a broken answer from a whole one; "
            "send the request so, or ask for application/json",
            field="Accept",
        )
    return form


def _streamed(form: Form, request: Query, context: Context, reading: _Reading) -> Stream:
    tables = [table for table, _ in reading.tables]
    measured = context.queries.due(tables)
    found: list[Scan] = []

    def job(session: Any, **how: Any) -> Batches:
        batches = reading.batches(session, measured=measured, **how)
        found.extend(batches.scans)
        return batches

    opened = context.streams.open(job, form, context.caller, context.ask.request_id, reading.tables)
    opened.snapshot_id = reading.snapshot_id
    context.queries.answered(tables, None, found if measured else None)
    return opened


def _collected(request: Query, context: Context, reading: _Reading) -> QueryResult:
    tables = [table for table, _ in reading.tables]
    measured = not request.explain and context.queries.due(tables)

    def job(session: Any) -> tuple[Selected, float]:
        # Without the time that it waited for a session: that is nobody's files' doing.
        started = time.perf_counter()
        return reading.rows(session, measured=measured), (time.perf_counter() - started) * 1000

    with ExitStack() as held:
        for table, snapshot_id in reading.tables:
            held.enter_context(context.holds.reading(table.uuid, snapshot_id))
        found, elapsed_ms = context.engine.run(job)
    if not request.explain:
        context.queries.answered(tables, elapsed_ms, found.scans if measured else None)
    return QueryResult(
        data=found.rows,
        plan=found.plan,
        metadata=QueryMetadata(
            snapshot_id=reading.snapshot_id,
            row_count=len(found.rows),
            scanned_files=found.scanned_files,
            scanned_bytes=found.scanned_bytes,
            has_more=found.has_more,
        ),
    )


def _read(request: Query, context: Context, answer: Callable[[_Reading], A]) -> A:
    started = time.monotonic()
    for attempt in range(1, _TRIES + 1):
        try:
            found = answer(
                _by_parts(request, context) if request.sql is None else _by_sql(request, request.sql, context)
            )
            context.metrics.queried(time.monotonic() - started)
            return found
        except InvalidQuery as e:
            field = e.field or ("sql" if request.sql else None)
            raise InvalidQuery(e.message, field=field, suggestion=e.suggestion, details=e.details) from e
        except SnapshotNotFound:
            # Where the present was asked for, its snapshot expired since it was looked up: there is a newer one.
            if request.as_of is not None or attempt == _TRIES:
                raise
    raise AssertionError("unreachable")


def _by_parts(request: Query, context: Context) -> _Reading:
    if request.table is None:
        raise InvalidRequest("table is missing; name the table to read, or send sql", field="table")
    if request.params is not None:
        raise InvalidQuery("params belong to sql; send values in the filter itself", field="params")
    as_of = _moment(request.as_of)
    table = context.catalog.load(TableName(request.tenant_id, request.namespace, request.table))
    source = _source(table, request.table, as_of)
    tables = [(table, _snapshot_of(source, table))]
    joined = []
    for i, item in enumerate(request.join):
        # A snapshot id or a tag is one table's own; only a time means something to the others.
        other, found = _joined(item, i, request, context, as_of if isinstance(as_of, datetime) else None)
        joined.append(found)
        tables.append((other, _snapshot_of(found, other)))
    asked = Asked(
        projection=request.projection,
        filter=request.filter,
        filters=request.filters,
        aggregations=request.aggregations,
        group_by=request.group_by,
        having=request.having,
        joins=request.join,
        sort=request.sort,
        distinct=request.distinct,
        limit=request.limit,
        offset=request.offset,
    )
    planned = plan(asked, source, joined)
    return _Reading(
        partial(select.select, query=planned, explain=request.explain),
        partial(stream.select, query=planned, window=_window(request)),
        tables,
        tables[0][1],
    )


def _window(request: Query) -> Window:
    """What a stream holds of the rows: all, unless the request says otherwise."""
    return Window(request.offset, request.limit if "limit" in request.model_fields_set else None)


def _joined(item: JoinItem, i: int, request: Query, context: Context, as_of: datetime | None) -> tuple[Table, Source]:
    namespace = check_name(item.namespace or request.namespace, f"join[{i}].namespace")
    name = TableName(request.tenant_id, namespace, check_name(item.table, f"join[{i}].table"))
    alias = check_name(item.alias or item.table, f"join[{i}].alias")
    table = _load(name, f"join[{i}].table", context)
    return table, _source(table, alias, as_of)


def _load(name: TableName, field: str, context: Context) -> Table:
    try:
        return context.catalog.load(name)
    except TableNotFound as e:
        raise TableNotFound(e.message, field=field, suggestion=e.suggestion) from e


def _source(table: Table, alias: str, as_of: Moment | None) -> Source:
    if as_of is None:
        return Source(table.spark_name, alias, table.schema, _head(table))
    try:
        snapshot = table.snapshot_as_of(as_of)
    except SnapshotNotFound as e:
        if not isinstance(as_of, str):
            raise
        # What is no tag may as well be a time, misspelt.
        raise InvalidQuery(
            f"as_of: {as_of[:80]!r} is neither a time, such as 2024-01-31T12:00:00Z, nor a snapshot id; {e.message}",
            field="as_of",
            suggestion=e.suggestion,
        ) from e
    return Source(table.spark_name, alias, snapshot.schema, snapshot.snapshot_id)


def _snapshot_of(source: Source, table: Table) -> int | None:
    return source.snapshot_id or table.current_snapshot_id


def _head(table: Table) -> int | None:
    # Read by its id a snapshot shows the columns it was written with, which may not be the table's any more.
    return table.current_snapshot_id if table.head_has_table_schema else None


def _by_sql(request: Query, sql: str, context: Context) -> _Reading:
    _refuse_parts(request)
    if len(sql) > _MAX_SQL:
        raise InvalidQuery(f"sql has {len(sql)} characters; send at most {_MAX_SQL}", field="sql")
    reads = check_parsed(context.engine.run(tenant_sql.parse, sql))
    params = _params(reads, request.params or {})
    # Only the plan itself shows options, and where a name with a namespace stands; asking it takes a while.
    look = any(reference.namespace for reference in reads.tables) or _OPTIONS.search(sql)
    mentions = context.engine.run(tenant_sql.mentions, sql) if look else []
    named = name_views(sql, reads, request.namespace, mentions)
    as_of = _moment(request.as_of)
    if isinstance(as_of, int | str) and len(named.views) != 1:
        raise InvalidQuery("as_of: a snapshot id or tag needs sql over exactly one table; send a time", field="as_of")
    views, tables = [], []
    for view, reference in named.views.items():
        namespace = check_name(reference.namespace or request.namespace, "sql")
        table = _load(TableName(request.tenant_id, namespace, check_name(reference.table, "sql")), "sql", context)
        source = _source(table, view, as_of)
        views.append(View(view, source.spark_name, source.snapshot_id, source.schema))
        tables.append((table, _snapshot_of(source, table)))
    statement = Statement(named.text, params, views, request.limit, request.offset, request.explain)
    return _Reading(
        partial(tenant_sql.run, statement=statement, check=check_analysed),
        partial(stream.select_sql, statement=statement, check=check_analysed, window=_window(request)),
        tables,
        tables[0][1] if len(tables) == 1 else None,
    )


def _refuse_parts(request: Query) -> None:
    parts = set(Query.model_fields) - set(Request.model_fields) - {"table", *_WITH_SQL}
    for name in sorted(parts & request.model_fields_set):
        if getattr(request, name) not in (None, False, []):
            raise InvalidQuery(f"{name} cannot stand beside sql; say it in the SELECT, or leave sql out", field=name)


def _params(reads: Reads, params: dict[str, Any]) -> dict[str, Any]:
    for name in sorted(reads.parameters - params.keys()):
        raise InvalidQuery(f"params.{name} is missing; sql uses :{name}", field=f"params.{name}")
    for name, value in params.items():
        if name not in reads.parameters:
            near = nearest(name, reads.parameters)
            raise InvalidQuery(f"params.{name} is not used by sql", field=f"params.{name}", suggestion=near)
        _check_param(value, f"params.{name}")
    return params


def _check_param(value: Any, field: str, depth: int = 0) -> None:
    if isinstance(value, dict):
        raise InvalidQuery(f"{field} cannot be an object; send plain values or lists", field=field)
    if isinstance(value, list):
        if depth == MAX_DEPTH:
            raise InvalidQuery(f"{field} is nested more than {MAX_DEPTH} deep; flatten it", field=field)
        for item in value:
            _check_param(item, field, depth + 1)


def _moment(as_of: str | int | None) -> Moment | None:
    return None if as_of is None else moment(as_of)
