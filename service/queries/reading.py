"""QUERY: find the tables and snapshots that a query reads, and the Spark jobs that read them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from service.catalog.as_of import snapshot_as_of
from service.catalog.files.data_files import has_deletes, list_files
from service.catalog.tables import Catalog, Snapshot, Table
from service.engine.jobs import select, stream
from service.engine.jobs.select import Selected
from service.engine.queries.batches import RowBatches
from service.engine.queries.engine import QueryEngine
from service.engine.queries.wire import AskedBack
from service.engine.sql import tenant_sql
from service.engine.sql.tenant_sql import TableView, UntrustedSelect
from service.engine.sql.window import Window
from service.errors import Forbidden, InvalidQuery, SnapshotNotFound, TableNotFound, nearest
from service.guard.costs.limits import QueryLimits
from service.guard.policies import Policies
from service.guard.repeatable import is_repeatable
from service.guard.sql import QueryBounds, SelectReferences, check_analysed, check_parsed
from service.guard.views import name_views
from service.model import cursor
from service.model.as_of import AsOf, moment
from service.model.call import Call
from service.model.dynamic.definition import check_built
from service.model.filters.predicates import EVERY_ROW
from service.model.names import TableName, check_name
from service.model.query.items import JoinItem
from service.model.query.model import TableSource
from service.model.query.order import FileRows
from service.model.query.plan import QueryParts, plan_query
from service.model.schema.definition import MAX_DEPTH

_MAX_SQL = 100_000
_OPTIONS = re.compile(r"(?i)\bwith\s*\(")


@dataclass(frozen=True)
class Pin:
    """The state of a table that a query reads: a snapshot, and the schema whose columns it shows."""

    table_uuid: str
    snapshot_id: int | None
    schema_id: int


@dataclass(frozen=True)
class Reading:
    """The tables of a query, and the jobs that run it, maybe in another process: a page of its rows, or all of them as
    batches."""

    rows: Callable[..., Selected]
    batches: Callable[..., RowBatches]
    tables: list[tuple[Table, int | None]]
    snapshot_id: int | None
    pins: list[Pin]
    """Of the tables, in their order."""


@dataclass(frozen=True)
class ReadOptions:
    """The options of a query in JSON or in SQL."""

    tenant: str
    namespace: str
    as_of: AsOf | None
    limit: int
    offset: int
    explain: bool
    window: Window
    """The rows of a stream."""
    limits: QueryLimits
    """What a query in SQL may cost."""
    of_pass: Mapping[str, int | None] | None = None
    """In place of `as_of`: the snapshots of a pass over dynamic tables, by the UUIDs of the tables."""
    pins: Sequence[Pin] | None = None
    """The states of the tables, in the order in which the query names them, if it continues after an earlier page."""

    def pin(self, place: int) -> Pin | None:
        if self.pins is None:
            return None
        if place >= len(self.pins):
            raise cursor.refused()
        return self.pins[place]

    @property
    def is_time(self) -> bool:
        """Whether `as_of` is a time, which has a meaning for every table."""
        return self.as_of is not None and isinstance(moment(self.as_of), datetime)


@dataclass(frozen=True)
class Tables:
    """The tables that a sender reads, and what it sees of them."""

    call: Call
    catalog: Catalog
    policies: Policies

    def load(self, name: TableName, field: str) -> Table:
        try:
            return self.catalog.load(name)
        except TableNotFound as e:
            raise TableNotFound(e.message, field=field, suggestion=e.suggestion) from e

    def visible(self, table: Table, source: TableSource, pin: Pin, options: ReadOptions) -> TableSource:
        """The part of a source that the sender sees. Forbidden if it is nothing, or its plan is to be explained, which
        shows the policy."""
        view = self.policies.view(self.call.principal, table, source.schema, pin.schema_id)
        if view is None:
            return source
        if options.explain:
            raise Forbidden(
                f"explain: a policy shows you only a part of {table.name.table!r}, and the plan would show the policy; "
                "leave explain out",
                field="explain",
            )
        if not view.schema.fields:
            raise Forbidden(f"a policy hides all columns of {table.name.table!r} from you", field="table")
        return replace(source, schema=view.schema, view=view)


def read_parts(tables: Tables, table_name: str, parts: QueryParts, options: ReadOptions) -> Reading:
    """A query in JSON; Forbidden if its sender may not read one of its tables."""
    names = [_joined_name(item, i, options) for i, item in enumerate(parts.joins)]
    for name in names:
        tables.call.authorise(name)
    table = tables.catalog.load(TableName(options.tenant, options.namespace, table_name))
    source, pin = _source(table, table_name, options, options.as_of, options.pin(0), tables)
    joined = [
        _joined(name, item, i, options, tables) for i, (name, item) in enumerate(zip(names, parts.joins, strict=True))
    ]
    planned = plan_query(parts, source, [other for _, other, _ in joined])
    every = [(table, source, pin), *joined]
    rows = table.row_count(pin.snapshot_id)
    more = (
        planned.is_plain and planned.is_whole and planned.where == EVERY_ROW and rows > options.offset + options.limit
    )
    return Reading(
        partial(
            select.select,
            query=planned,
            explain=options.explain,
            again=options.pins is not None,
            more=more,
            files=AskedBack(partial(_files, table, source, pin)),
        ),
        partial(stream.select, query=planned, window=options.window),
        [(each, state.snapshot_id) for each, _, state in every],
        pin.snapshot_id,
        [state for _, _, state in every],
    )


def read_sql(of: Tables, engine: QueryEngine, sql: str, params: dict[str, Any], options: ReadOptions) -> Reading:
    """A query in SQL: one SELECT, which the SQL sandbox must allow; Forbidden as for a query in JSON."""
    if len(sql) > _MAX_SQL:
        raise InvalidQuery(f"sql has {len(sql)} characters; send at most {_MAX_SQL}", field="sql")
    call = of.call
    references = check_parsed(engine.run_for(call, tenant_sql.parse, sql), options.limits, params)
    _check_params(references, params)
    # Only the plan shows options, and the places of names with a namespace; it takes a while.
    needs_plan = any(table.namespace for table in references.tables) or _OPTIONS.search(sql)
    mentions = engine.run_for(call, tenant_sql.mentions, sql) if needs_plan else []
    named = name_views(sql, references, options.namespace, mentions)
    if options.as_of is not None and not options.is_time and len(named.views) != 1:
        raise InvalidQuery("as_of: a snapshot id or tag needs sql over exactly one table; send a time", field="as_of")
    views, tables, pins, rows = [], [], [], {}
    names = {}
    for view, reference in named.views.items():  # all of them before anything is read
        namespace = check_name(reference.namespace or options.namespace, "sql")
        names[view] = TableName(options.tenant, namespace, check_name(reference.table, "sql"))
        call.authorise(names[view])
    for i, (view, name) in enumerate(names.items()):
        table = of.load(name, "sql")
        source, pin = _source(table, view, options, options.as_of, options.pin(i), of)
        views.append(TableView(view, source.spark_name, source.snapshot_id, source.schema, source.view))
        rows[view] = float(table.row_count(pin.snapshot_id))
        tables.append((table, pin.snapshot_id))
        pins.append(pin)
    costs = QueryBounds(options.limits, sql, rows, options.limit + 1.0, params)
    # A stream holds one row, or a batch of rows that are not wide.
    of_stream = replace(costs, most_rows=1.0)
    statement = UntrustedSelect(named.text, params, views, options.limit, options.offset, options.explain)
    return Reading(
        partial(
            tenant_sql.run,
            statement=statement,
            check=partial(check_analysed, costs=costs),
            repeatable=is_repeatable,
            again=options.pins is not None,
        ),
        partial(
            stream.select_sql,
            statement=statement,
            check=partial(check_analysed, costs=of_stream),
            window=options.window,
        ),
        tables,
        tables[0][1] if len(tables) == 1 else None,
        pins,
    )


def _joined_name(item: JoinItem, place: int, options: ReadOptions) -> TableName:
    path = f"join[{place}]"
    namespace = check_name(item.namespace or options.namespace, f"{path}.namespace")
    return TableName(options.tenant, namespace, check_name(item.table, f"{path}.table"))


def _joined(
    name: TableName, item: JoinItem, place: int, options: ReadOptions, tables: Tables
) -> tuple[Table, TableSource, Pin]:
    path = f"join[{place}]"
    alias = check_name(item.alias or item.table, f"{path}.alias")
    table = tables.load(name, f"{path}.table")
    # A snapshot id or a tag belongs to one table; only a time has a meaning for the others.
    as_of = options.as_of if options.is_time else None
    return table, *_source(table, alias, options, as_of, options.pin(1 + place), tables)


def _source(
    table: Table, alias: str, options: ReadOptions, as_of: AsOf | None, pin: Pin | None, tables: Tables
) -> tuple[TableSource, Pin]:
    """What the sender sees of the state of a table that a query reads."""
    source, pin = _state(table, alias, options, as_of, pin)
    return tables.visible(table, source, pin, options), pin


def _state(
    table: Table, alias: str, options: ReadOptions, as_of: AsOf | None, pin: Pin | None
) -> tuple[TableSource, Pin]:
    """The state of a table that a query reads: that of an earlier page, if the query continues one."""
    current = Pin(table.uuid, table.current_snapshot_id, table.schema_id)
    if pin is not None and pin != current:
        snapshot = _snapshot_at(table, pin)
    elif pin is None and as_of is not None:
        snapshot = snapshot_as_of(table, as_of)
    elif pin is None and options.of_pass is not None:
        snapshot = _snapshot_of(table, options.of_pass)
    else:
        check_built(table.properties, table.name.table, table.current_snapshot_id)
        # A snapshot that is read by its id has the columns it was written with, which may not be the table's any more.
        head = table.current_snapshot_id if table.head_has_table_schema else None
        return TableSource(table.spark_name, alias, table.schema, head), current
    schema_id = table.schema_id if snapshot.schema_id is None else snapshot.schema_id
    source = TableSource(table.spark_name, alias, snapshot.schema, snapshot.snapshot_id)
    return source, Pin(table.uuid, snapshot.snapshot_id, schema_id)


def _snapshot_of(table: Table, of_pass: Mapping[str, int | None]) -> Snapshot:
    """The snapshot of a table in a pass."""
    snapshot_id = of_pass.get(table.uuid)
    if snapshot_id is None:
        raise SnapshotNotFound(
            f"as_of: the pass neither refreshed nor read {table.name.table}, or it had no rows yet", field="as_of"
        )
    return table.snapshot(snapshot_id)


def _snapshot_at(table: Table, pin: Pin) -> Snapshot:
    """The snapshot that an earlier page has read."""
    if table.uuid != pin.table_uuid or pin.snapshot_id is None:
        raise _gone(table)
    try:
        snapshot = table.snapshot(pin.snapshot_id)
    except SnapshotNotFound as e:
        raise _gone(table) from e
    if snapshot.schema_id != pin.schema_id:  # it was read with columns that were added after it
        raise _gone(table)
    return snapshot


def _files(table: Table, source: TableSource, pin: Pin) -> FileRows | None:
    """The files that a query of one table reads; None if it does not read a snapshot by its id."""
    if source.snapshot_id is None:
        return None
    files = list_files(table, source.snapshot_id).data
    rows = None if has_deletes(table, source.snapshot_id) else {file.path: file.rows for file in files}
    return FileRows({file.path: file.bytes for file in files}, rows, pin.schema_id)


def _gone(table: Table) -> SnapshotNotFound:
    return SnapshotNotFound(
        f"the state of {table.name.table} that cursor continues is gone: its snapshot has expired, or the table was "
        f"replaced, or had no snapshot with its columns; {cursor.AGAIN}",
        field="cursor",
    )


def _check_params(references: SelectReferences, params: dict[str, Any]) -> None:
    for name in sorted(references.parameters - params.keys()):
        raise InvalidQuery(f"params.{name} is missing; sql uses :{name}", field=f"params.{name}")
    for name, value in params.items():
        if name not in references.parameters:
            near = nearest(name, references.parameters)
            raise InvalidQuery(f"params.{name} is not used by sql", field=f"params.{name}", suggestion=near)
        _check_param(value, f"params.{name}")


def _check_param(value: Any, field: str, depth: int = 0) -> None:
    if isinstance(value, dict):
        raise InvalidQuery(f"{field} cannot be an object; send plain values or lists", field=field)
    if isinstance(value, list):
        if depth == MAX_DEPTH:
            raise InvalidQuery(f"{field} is nested more than {MAX_DEPTH} deep; flatten it", field=field)
        for item in value:
            _check_param(item, field, depth + 1)
