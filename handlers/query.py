"""QUERY: read rows by the JSON dialect or one SELECT, as JSON or as a stream."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple
from datetime import datetime
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.catalog.tables import Catalog
from service.commits.holds import SnapshotHolds
from service.dynamic.reads import DynamicReads
from service.dynamic.rights import Sight
from service.engine.jobs.select import Selected, timed
from service.engine.queries.engine import QueryEngine
from service.engine.sql.window import Window
from service.errors import InvalidQuery, InvalidRequest, SnapshotNotFound
from service.guard.costs.limits import QueryLimits
from service.guard.policies import Policies
from service.maintenance.advise.query_log import QueryLog
from service.metrics.metrics import Metrics
from service.model import cursor
from service.model.as_of import AS_OF, AsOf
from service.model.call import Call
from service.model.query.items import Aggregations, Joins, Projection, Sorts
from service.model.query.plan import QueryParts
from service.model.times import utc
from service.operations.dynamic.results import SourceSnapshot, TableAddress, source_snapshots
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, Metadata, Reach, Request, Result, omit_when_null, operation
from service.operations.paging import Page, Paged
from service.queries.fitting import all_fit, cut
from service.queries.reading import Pin, Reading, ReadOptions, Tables, read_parts, read_sql
from service.queries.streaming.accept import Form, accepted_format
from service.queries.streaming.streams import Stream, Streams

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
GIVEN = (
    create_table(
        ADDRESS, {"id": "long", "customer": "string", "total": "decimal(10,2)", "at": "timestamp"}, required=["id"]
    ),
    write(
        ADDRESS,
        {"id": 1, "customer": "Ann", "total": "19.90", "at": "2024-01-31T10:00:00"},
        {"id": 2, "customer": "Bo", "total": "5.00", "at": "2024-02-01T09:30:00"},
        {"id": 3, "customer": "Ann", "total": "7.10", "at": "2024-02-02T18:45:00"},
    ),
)


def _example(title: str, request: dict[str, Any], rows: list[dict[str, Any]], has_more: bool = False) -> Example:
    body = response(data=rows)
    body["metadata"] |= {"row_count": len(rows), "scanned_files": 1, "scanned_bytes": "<any>", "has_more": has_more}
    if has_more:
        body["next_cursor"] = "<any>"
    return Example(title, {"operation": "QUERY", **ADDRESS, **request}, body, given=GIVEN)


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
        "Filter by the list dialect",
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
        "Query by SQL with parameters",
        {
            "sql": "SELECT customer, max(total) AS most FROM orders WHERE id < :id GROUP BY 1 ORDER BY 1",
            "params": {"id": 3},
        },
        [{"customer": "Ann", "most": "19.90"}, {"customer": "Bo", "most": "5.00"}],
    ),
)
_WITH_SQL = ("sql", "params", "limit", "offset", "cursor", "as_of", "explain")
_MAX_JSON_ROWS = 100_000
_TRIES = 5


class OfPass(BaseModel):
    """The state of a pass over dynamic tables: their rows, and those of the tables that it read, agree."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    pass_: str = Field(alias="pass", min_length=1, max_length=100, description="the pass's id")


class Query(Paged, Request):
    operation: Literal["QUERY"]
    table: str | None = Field(default=None, description="required unless `sql` names the tables")
    projection: Projection = Field(default=[], description="columns, or objects that name one; default: all columns")
    filter: Any = Field(default=None, description="a filter of either dialect")
    filters: Any = Field(default=None, description="another name for `filter`")
    aggregations: Aggregations = Field(default=[], description="aggregates of each group, or of all rows")
    group_by: Projection = Field(default=[], description="columns, aliases from `projection`, or objects as in it")
    having: Any = Field(default=None, description="a filter over groups and aggregates")
    join: Joins = Field(default=[], description="other tables of the tenant, and the columns to join on")
    sort: Sorts = Field(default=[], description="default: an undefined order")
    distinct: bool = Field(default=False, description="remove duplicate rows")
    limit: int = Field(
        default=1000,
        ge=1,
        le=2_000_000_000,
        description="the maximum number of rows: up to 100,000 in JSON; any number, by default all, as CSV or Arrow",
    )
    offset: int = Field(default=0, ge=0, le=2_000_000_000, description="how many rows to skip first")
    cursor: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000_000,
        description="`next_cursor` of a response to this request: return the rows that follow, of the same snapshots; "
        "only `limit` may change",
    )
    as_of: AsOf | OfPass | None = Field(
        default=None,
        description=f"the state to read: {AS_OF}; a time applies to all tables, the others to the one in `table`; or "
        '`{"pass": …}`: the state of all tables in a pass over dynamic tables, by the `pass_id` of '
        "REFRESH_DYNAMIC_TABLE or REFRESH_HISTORY",
    )
    explain: bool = Field(default=False, description="return Spark's plan instead of data; nothing is run")
    sql: str | None = Field(default=None, description="one SELECT, which names tables as `table` or `namespace.table`")
    params: dict[str, Any] | None = Field(default=None, description="values of the parameters in `sql`, such as `:id`")

    @property
    def reach(self) -> Reach:
        """SQL names its tables and their namespaces, and each of them is checked."""
        return "namespace" if self.sql is None else "somewhere"


class DynamicTableRead(TableAddress):
    """The state of a dynamic table that was read."""

    pass_id: str = Field(description="the pass of its last change")
    refreshed_at: datetime = Field(description="the time for which its rows are right")
    lag_ms: int | None = omit_when_null(
        "how old the oldest change of its base tables is that it lacks; 0 if it lacks none; absent with `as_of`"
    )
    sources: list[SourceSnapshot] = Field(
        description="the snapshots that its rows are made of, of tables that you may read"
    )


class QueryMetadata(Metadata):
    row_count: int = Field(description="rows in this response")
    scanned_files: int = Field(description="data files to read, after pruning")
    scanned_bytes: int = Field(description="the size of those files")
    has_more: bool = Field(description="whether there are rows beyond `limit`, or beyond the size of a response")
    dynamic_tables: list[DynamicTableRead] | None = omit_when_null("the dynamic tables among those that were read")


class QueryResult(Page, Result):
    data: list[Any] = Field(description="rows as objects")
    plan: str | None = omit_when_null("with `explain`: Spark's plan")
    next_cursor: str | None = omit_when_null(
        "the `cursor` of the next page, which reads the same snapshots; absent on the last page, and if the rows or "
        "their order could differ from one run to the next"
    )
    metadata: QueryMetadata


@operation(Query, QueryResult, pool="queries", examples=EXAMPLES)
def query(
    request: Query,
    call: Call,
    engine: QueryEngine,
    catalog: Catalog,
    holds: SnapshotHolds,
    metrics: Metrics,
    query_log: QueryLog,
    streams: Streams,
    dynamic: DynamicReads,
    limits: QueryLimits,
    policies: Policies,
) -> "QueryResult | Stream":
    """Read rows: filter, join, group and sort them, now or as of a time in the past."""
    form = _form(request, call)
    run: Callable[[Reading], QueryResult | Stream] = (
        partial(_collect, request, call, engine, holds, query_log, dynamic)
        if form == "json"
        else partial(_stream, form, request, call, query_log, streams)
    )
    return _read(
        request, Tables(call, catalog, policies), engine, metrics, _options(request, call, dynamic, limits), run
    )


def _form(request: Query, call: Call) -> Form:
    form = accepted_format(call.accept)
    if form == "json" or request.explain:
        if request.limit > _MAX_JSON_ROWS:
            raise InvalidRequest(
                f"limit is {request.limit}, but must be at most {_MAX_JSON_ROWS} in JSON; "
                "request text/csv or an Arrow stream by the Accept header for more",
                field="limit",
            )
        return "json"
    if request.cursor is not None:
        raise InvalidRequest(
            "cursor continues a response in JSON; a CSV or Arrow response has all rows, so leave cursor out",
            field="cursor",
        )
    if not call.streams:
        raise InvalidRequest(
            "Accept: CSV and Arrow responses need HTTP/1.1, which shows whether a response is complete; "
            "use it, or request application/json",
            field="Accept",
        )
    return form


def _stream(form: Form, request: Query, call: Call, query_log: QueryLog, streams: Streams, reading: Reading) -> Stream:
    tables = [table for table, _ in reading.tables]
    measured = query_log.due(tables)
    opened = streams.open(partial(reading.batches, measured=measured), form, call, call.id, reading.tables)
    opened.snapshot_id = reading.snapshot_id
    query_log.answered(tables, None, opened.scans if measured else None)
    return opened


def _collect(
    request: Query,
    call: Call,
    engine: QueryEngine,
    holds: SnapshotHolds,
    query_log: QueryLog,
    dynamic: DynamicReads,
    reading: Reading,
) -> QueryResult:
    tables = [table for table, _ in reading.tables]
    measured = not request.explain and query_log.due(tables)

    with ExitStack() as held:
        for table, snapshot_id in reading.tables:
            held.enter_context(holds.reading(table.uuid, snapshot_id))
        run = engine.run_for(call, timed, reading.rows, measured=measured, fits=partial(all_fit, call.room))
    found = cut(call.room, run.selected)
    if not request.explain:
        query_log.answered(tables, run.elapsed_ms, found.scans if measured and found.scans else None)
    return QueryResult(
        data=found.rows,
        plan=found.plan,
        next_cursor=_next(request, found, reading) if found.has_more and found.in_total_order else None,
        metadata=QueryMetadata(
            snapshot_id=reading.snapshot_id,
            row_count=len(found.rows),
            scanned_files=found.scanned_files,
            scanned_bytes=found.scanned_bytes,
            has_more=found.has_more,
            dynamic_tables=_dynamic(dynamic, reading, call),
        ),
    )


def _dynamic(dynamic: DynamicReads, reading: Reading, call: Call) -> list[DynamicTableRead] | None:
    """The states of the dynamic tables that were read."""
    sight = Sight(call.principal, dynamic.definitions)
    found = (dynamic.of(table, snapshot_id) for table, snapshot_id in reading.tables)
    shown = [
        DynamicTableRead(
            namespace=one.table.namespace,
            table=one.table.table,
            pass_id=one.pass_id,
            refreshed_at=utc(one.refreshed_ms),
            lag_ms=one.lag_ms,
            sources=source_snapshots(sight.sources(one.table.tenant, one.sources)),
        )
        for one in found
        if one is not None
    ]
    return shown or None


def _continued(request: Query) -> tuple[int, list[Pin] | None]:
    """How many rows to skip, and if the request continues an earlier page, the states that it has read."""
    place = request.place(int, list)
    if place is None:
        return request.offset, None
    try:
        return place[0], [Pin(*pin) for pin in place[1]]
    except TypeError as e:
        raise cursor.refused() from e


def _next(request: Query, found: Selected, reading: Reading) -> str:
    skipped, _ = _continued(request)
    return request.cursor_at([skipped + len(found.rows), [astuple(pin) for pin in reading.pins]])


def _read(
    request: Query,
    tables: Tables,
    engine: QueryEngine,
    metrics: Metrics,
    options: ReadOptions,
    run: Callable[[Reading], QueryResult | Stream],
) -> QueryResult | Stream:
    started = time.monotonic()
    for attempt in range(1, _TRIES + 1):
        try:
            if request.sql is None:
                result = run(_by_parts(request, tables, options))
            else:
                result = run(_by_sql(request, request.sql, tables, engine, options))
            metrics.queried(time.monotonic() - started)
            return result
        except InvalidQuery as e:
            field = e.field or ("sql" if request.sql else None)
            raise InvalidQuery(e.message, field=field, suggestion=e.suggestion, details=e.details) from e
        except SnapshotNotFound as e:
            if request.cursor is not None:
                raise SnapshotNotFound(e.message, field="cursor", suggestion=e.suggestion) from e
            # Without as_of, the current snapshot expired after it was looked up: there is a newer one.
            if request.as_of is not None or attempt == _TRIES:
                raise
    raise AssertionError("unreachable")


def _by_parts(request: Query, tables: Tables, options: ReadOptions) -> Reading:
    if request.table is None:
        raise InvalidRequest("table is missing; send the table to read, or sql", field="table")
    if request.params is not None:
        raise InvalidQuery("params need sql; put values into the filter", field="params")
    parts = QueryParts(
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
        offset=options.offset,
    )
    return read_parts(tables, request.table, parts, options)


def _by_sql(request: Query, sql: str, tables: Tables, engine: QueryEngine, options: ReadOptions) -> Reading:
    parts = set(Query.model_fields) - set(Request.model_fields) - {"table", *_WITH_SQL}
    for name in sorted(parts & request.model_fields_set):
        if getattr(request, name) not in (None, False, []):
            raise InvalidQuery(
                f"{name} cannot be combined with sql; put it into the SELECT, or leave sql out", field=name
            )
    return read_sql(tables, engine, sql, request.params or {}, options)


def _options(request: Query, call: Call, dynamic: DynamicReads, limits: QueryLimits) -> ReadOptions:
    # A stream has all rows unless the request has a limit.
    window = Window(request.offset, request.limit if "limit" in request.model_fields_set else None)
    skipped, pins = _continued(request)
    of_pass, as_of = None, request.as_of
    if isinstance(as_of, OfPass):
        of_pass, as_of = dynamic.in_pass(request.tenant_id, as_of.pass_, call.principal), None
    return ReadOptions(
        *(request.tenant_id, request.namespace, as_of, request.limit, skipped),
        *(request.explain, window, limits, of_pass, pins),
    )
