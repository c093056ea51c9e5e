"""From the text of a query to its sources, its columns and its plan. The SQL sandbox checks all that Spark gets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from service.catalog.tables import Catalog, Table
from service.dynamic.query.compile import compile_query
from service.dynamic.query.compiled import CompiledQuery
from service.dynamic.query.dialect import place_at
from service.dynamic.query.tables import NamedTable, tables_named
from service.engine.jobs.dynamic.analysed import analyse
from service.engine.queries.engine import QueryEngine
from service.engine.sql import tenant_sql
from service.errors import InvalidQuery, QueryTooExpensive, TableNotFound
from service.guard.costs.limits import ASSUMED_ROWS, QueryLimits
from service.guard.policies import Policies
from service.guard.sql import QueryBounds, check_analysed, check_parsed
from service.model.call import Call
from service.model.dynamic.definition import Definition
from service.model.dynamic.plan import new
from service.model.names import INGEST_COLUMNS, TableName, check_name
from service.model.schema.types import Field, TableSchema

QUERY = "query"
# How many rows of a result may be in memory at the same time: with Iceberg's defaults, each writer holds 100.
_ROWS_IN_MEMORY = 400.0
_FUNCTION = re.compile(r"the function ([\w.]+) cannot be used")


@dataclass(frozen=True)
class Compiled:
    """A query over tables as they are now."""

    query: CompiledQuery
    sources: tuple[Table, ...]
    """In the order of the query's sources."""
    schema: TableSchema
    """The columns of the result, with the hidden ones."""
    schemas: tuple[TableSchema, ...] = ()
    """The columns of the sources that the query knows."""


@dataclass(frozen=True)
class Compiler:
    """Reads queries; one for the whole service."""

    engine: QueryEngine
    catalog: Catalog
    limits: QueryLimits
    policies: Policies

    def compile(self, name: TableName, query: str, *, deduplicated: bool = False, call: Call | None = None) -> Compiled:
        """A query of the dynamic table `name`, which gives the tenant and the namespace of names without one."""
        if call is not None:
            self.authorise(name, query, call)
        tables = [self._table(name, one) for one in tables_named(query)]
        if call is not None:
            for table in tables:
                self.policies.check_may_publish(call.principal, table, QUERY)
        return self._compiled(query, tables, [_nameable(one, query) for one in tables], deduplicated, call)

    def authorise(self, name: TableName, query: str, call: Call) -> None:
        """Raise Forbidden if the sender may not read a table that a query names; before any of them is looked up."""
        for mention in tables_named(query):
            call.authorise(_named(name, mention))

    def compile_definition(
        self, definition: Definition, sources: Sequence[Table], call: Call | None = None
    ) -> Compiled:
        """The query of a definition over its sources, whatever their names are now."""
        schemas = [
            _as_declared(table, source.columns) for table, source in zip(sources, definition.sources, strict=True)
        ]
        return self._compiled(definition.query, sources, schemas, definition.options.deduplication, call)

    def _compiled(
        self,
        query: str,
        tables: Sequence[Table],
        schemas: Sequence[TableSchema],
        deduplicated: bool,
        call: Call | None,
    ) -> Compiled:
        views = {number: schema.fields for number, schema in enumerate(schemas)}
        rows = {new(number): rows_assumed(table) for number, table in enumerate(tables)}
        costs = QueryBounds(self.limits, query, rows, _ROWS_IN_MEMORY)
        known: dict[str, tuple[Field, ...]] = {}

        def types(sql: str) -> tuple[Field, ...]:
            if sql not in known:
                known[sql] = self._analysed(sql, replace(costs, text=sql), query, views, call)
            return known[sql]

        def shown(sql: str) -> str:
            internal = {
                new(i): [one.name for one in fields if one.name in INGEST_COLUMNS] for i, fields in views.items()
            }
            if "*" not in sql or not any(internal.values()):
                return sql
            return self.engine.run_for(call or Call(), tenant_sql.with_narrow_stars, sql, internal)

        fields = [schema.fields for schema in schemas]
        try:
            compiled = compile_query(query, fields, types, deduplicated=deduplicated, shown=shown)
        except InvalidQuery as e:
            e.field = e.field or QUERY
            raise
        return Compiled(compiled, tuple(tables), TableSchema(types(compiled.full)), tuple(schemas))

    def _analysed(
        self, sql: str, costs: QueryBounds, query: str, views: dict[int, tuple[Field, ...]], call: Call | None
    ) -> tuple[Field, ...]:
        """The columns of a SELECT over views, which the SQL sandbox must allow."""
        of = call or Call()
        try:
            references = check_parsed(self.engine.run_for(of, tenant_sql.parse, sql), self.limits)
            if references.parameters:
                name = min(references.parameters)
                raise InvalidQuery(f"a dynamic table has no parameters; write a value instead of :{name}")
            allowed = {new(number) for number in views}
            others = [one.table for one in references.tables if one.namespace or one.table not in allowed]
            if others:
                raise InvalidQuery(f"{min(others)!r} is not a table that can be read here")
            return self.engine.run_for(of, analyse, views, sql, partial(check_analysed, costs=costs))
        except InvalidQuery as e:
            raise _placed(e, query) from e
        except QueryTooExpensive as e:
            raise QueryTooExpensive(re.sub(r"^sql\b", "the query", e.message), field=QUERY) from e

    def _table(self, name: TableName, mention: NamedTable) -> Table:
        """A table that the query names."""
        where = f"(line {mention.line}, column {mention.column})"
        try:
            found = _named(name, mention)
            table = self.catalog.load(found)
        except TableNotFound as e:
            raise TableNotFound(f"{e.message} {where}", field=QUERY, suggestion=e.suggestion) from e
        if not table.schema.fields:
            raise InvalidQuery(f"table {found.table!r} has no columns yet {where}; give it some first", field=QUERY)
        return table


def rows_assumed(table: Table) -> float:
    """How many rows of a source the costs of a query are computed for: no fewer than QUERY assumes, because it soon
    has more."""
    return max(ASSUMED_ROWS, float(table.row_count(table.current_snapshot_id)))


def _named(name: TableName, mention: NamedTable) -> TableName:
    """The table that a query of `name` means."""
    namespace = check_name(mention.namespace or name.namespace, QUERY)
    return TableName(name.tenant, namespace, check_name(mention.table, QUERY))


def _nameable(table: Table, query: str) -> TableSchema:
    """The columns of a source, with those internal ones of an ingestion table that the query names, as QUERY has it."""
    named = tuple(field for field in table.schema.internal if field.name in query.lower())
    return TableSchema((*table.schema.fields, *named)) if named else table.schema


def _as_declared(table: Table, columns: Sequence[str]) -> TableSchema:
    """The columns that a source had when the query was declared, as far as it has them still."""
    if not columns:
        return table.schema
    by_name = {field.name: field for field in table.kept_schema.fields}
    return TableSchema(tuple(by_name[name] for name in columns if name in by_name))


def _placed(refused: InvalidQuery, query: str) -> InvalidQuery:
    """The refusal of a query, with the place of a function that it names."""
    message = re.sub(r"^sql\b", "the query", refused.message)
    function = _FUNCTION.search(message)
    place = function and re.search(rf"(?i)\b{re.escape(function[1])}\s*\(", query)
    if place:
        line, column = place_at(query, place.start())
        message = f"{message} (line {line}, column {column})"
    return InvalidQuery(message, field=QUERY, suggestion=refused.suggestion)
