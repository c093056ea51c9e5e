"""CREATE DYNAMIC TABLE: declare a table and build it, or replace its query.

A new table is made empty, with its definition, and then refreshed; if that fails, it is dropped again. Another query of
a table gets its rows beside the old ones, which readers see until one commit replaces rows, columns and definition.
"""

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from service.catalog.refusals import table_exists
from service.catalog.replaced import check_names, replaced_schema
from service.catalog.tables import Catalog, Table
from service.commits.commit import Commits
from service.dynamic.compiling import QUERY, Compiled, Compiler
from service.dynamic.declare.classify import QueryChange, classify, is_same_query
from service.dynamic.definitions import Definitions, shown_name
from service.dynamic.refresh.passes import NewDefinition, Passes, PassOptions, PassOutcome
from service.dynamic.rights import Sight
from service.engine.iceberg.reinitialise import ReinitialisedTable
from service.errors import (
    FirnError,
    InvalidQuery,
    InvalidRequest,
    RefreshHeldBack,
    TableExists,
    TableInUse,
    TableNotFound,
)
from service.ledger.dynamic_tables import DynamicTable
from service.model.call import Call
from service.model.dynamic.definition import DEFINITION_PROPERTY, Definition, DynamicOptions, DynamicSource
from service.model.names import TableName
from service.model.properties import TableProperties, compaction_policy, to_iceberg
from service.model.schema.definition import check_column_name
from service.model.schema.types import TableSchema, without_hidden_columns
from service.model.times import now_ms
from service.settings import IcebergSettings

OPERATION = "CREATE_DYNAMIC_TABLE"
CREATED_BY_PROPERTY = "firn.dynamic.request"
"""The idempotency key by which a table got its definition, and what that changed."""
_BUILDING_MS = 15 * 60 * 1000
Outcome = Literal["created", "nothing", "options", "columns_added", "rebuild"]


@dataclass(frozen=True)
class Declaration:
    """What a request declares."""

    name: TableName
    query: str
    options: DynamicOptions
    text: str
    """The query at its place in the request, so that errors have that place."""


@dataclass(frozen=True)
class Declared:
    """A declaration that was checked. The UUID of its definition is empty if there is no table yet."""

    definition: Definition
    compiled: Compiled

    @property
    def schema(self) -> TableSchema:
        """The columns that requests can name."""
        return without_hidden_columns(self.compiled.schema)


@dataclass(frozen=True)
class Creations:
    """Makes dynamic tables and replaces their queries."""

    settings: IcebergSettings
    catalog: Catalog
    commits: Commits
    definitions: Definitions
    compiler: Compiler
    passes: Passes

    def sight(self, call: Call) -> Sight:
        """What the sender of a request sees."""
        return Sight(call.principal, self.definitions)

    def authorise(self, declaration: Declaration, call: Call) -> None:
        """Raise Forbidden if the sender may not read all tables of the query; before anything is looked up."""
        with suppress(InvalidRequest):  # `declared` refuses it; it reads nothing
            self.compiler.authorise(declaration.name, declaration.text, call)

    def existing(self, name: TableName) -> Table | None:
        """The table of this name."""
        try:
            return self.catalog.load(name)
        except TableNotFound:
            return None

    def made_before(self, table: Table, call: Call) -> Outcome | None:
        """What an earlier attempt with the same key did to a table, if it did something."""
        key, _, outcome = table.properties.get(CREATED_BY_PROPERTY, "").partition(" ")
        return outcome if call.key is not None and key == call.key.id else None  # type: ignore[return-value]  # as it was stored

    def is_left(self, table: Table, declaration: Declaration) -> bool:
        """Whether an earlier request ended after it had made the table that this one declares, before it was built."""
        if table.current_snapshot_id is not None or DEFINITION_PROPERTY not in table.properties:
            return False
        known = self.definitions.of(table).definition
        return known.options == declaration.options and is_same_query(known.query, declaration.query)

    def declared(self, declaration: Declaration, table: Table | None, call: Call) -> Declared:
        """Check a declaration, for a table if it is there; raises what is wrong with its place in the query."""
        options = declaration.options
        compiled = self.compiler.compile(
            declaration.name, declaration.text, deduplicated=options.deduplication, call=call
        )
        if table is not None:
            self._check_no_cycle(table, compiled, call)
        why = compiled.query.not_incremental
        if why is not None and options.refresh_mode == "INCREMENTAL_STRICT":
            where = "" if why.line is None else f" (line {why.line}, column {why.column})"
            raise InvalidQuery(
                f"the query cannot be refreshed incrementally: {why.code}: {why.message}{where}; change it, or use "
                "another REFRESH_MODE than INCREMENTAL_STRICT",
                field=QUERY,
                details={"code": why.code},
            )
        for field in without_hidden_columns(compiled.schema).fields:
            check_column_name(field.name, QUERY)
        sources = tuple(
            DynamicSource(source.name, source.uuid, _as_written(one.namespace, one.table), schema.names)
            for source, schema, one in zip(compiled.sources, compiled.schemas, compiled.query.sources, strict=True)
        )
        definition = Definition(
            declaration.name,
            "" if table is None else table.uuid,
            uuid.uuid4().hex,
            declaration.query,
            options,
            sources,
            tuple(compiled.query.classes),
            None if why is None else why.code,
            None if why is None else why.message,
            call.principal.dumps(),
        )
        return Declared(definition, compiled)

    def create(self, declared: Declared, call: Call) -> Table:
        """Make the table, without rows. TableExists if there is one of its name."""
        definition = declared.definition
        properties = to_iceberg(TableProperties(), self.settings) | _marks(definition, call, "created")
        # Not with the key: what was made is dropped again if it cannot be built, and then the key is free.
        table = self.commits.create(definition.name, declared.compiled.schema, (), properties, call.without_key())
        builds = definition.options.initialise == "ON_CREATE"
        made = replace(definition, uuid=table.uuid)
        # The worker builds it only if this request does not, because its process ends.
        self.definitions.records.put(made, retry_ms=now_ms() + _BUILDING_MS if builds else None)
        return table

    def build(self, table: Table, call: Call) -> PassOutcome:
        """Refresh a new table, and first what it depends on. If that fails, the table is dropped again."""
        try:
            outcome = self.passes.refresh([table.uuid], call)
            _check_done(outcome, table.uuid, self.sight(call))
            return outcome
        except BaseException:
            self._take_back(table)
            raise

    def change(self, declared: Declared, table: Table, known: DynamicTable) -> QueryChange:
        """What a declaration changes of a dynamic table. Raises if the table cannot have the new columns."""
        before, after = known.definition, declared.definition
        found = classify(
            (before.query, [one.uuid for one in before.sources], table.schema),
            (after.query, [one.uuid for one in after.sources], declared.schema),
        )
        if found.change != "nothing":
            self._check_layout(table, declared.schema, found)
            return found
        if before.options.deduplication != after.options.deduplication:
            return replace(found, change="rebuild")
        return found if before.options == after.options else replace(found, change="options")

    def check_readers(self, table: Table, change: QueryChange, call: Call) -> None:
        """Refuse to take away a column that another dynamic table reads."""
        for reader in self.definitions.records.readers([table.uuid]) if change.removed else ():
            sources = reader.definition.sources
            try:
                tables = [self.commits.find(one.name, one.uuid) for one in sources]
                compiled = self.compiler.compile_definition(reader.definition, tables, call)
            except (InvalidRequest, TableNotFound):  # it cannot be refreshed anyway
                continue
            for source, reads in zip(sources, compiled.query.sources, strict=True):
                lost = [name for name in reads.columns if name in change.removed]
                if source.uuid == table.uuid and lost:
                    seen = self.sight(call).sees(reader.name)
                    named = [shown_name(reader.name, table.name)] if seen else []
                    raise TableInUse(
                        f"{f'the dynamic table {named[0]}' if seen else 'a dynamic table'} reads {lost[0]!r} of "
                        f"{table.name.table!r}, which the new query does not have, or has with another type; keep "
                        "that column, or send confirm: true: then that table fails until its query is replaced",
                        field=QUERY,
                        details={"dynamic_tables": named},
                    )

    def set_options(self, declared: Declared, table: Table, known: DynamicTable, call: Call) -> None:
        """Change the options of a table whose query stays, and its creator, if they differ."""
        options, creator = declared.definition.options, call.principal
        if (known.definition.options, known.definition.owner) == (options, creator.dumps()):
            return
        self.commits.alter(
            table, OPERATION, call, lambda current, batch: self.definitions.set_options(current, options, creator)
        )

    def replace(
        self, declared: Declared, table: Table, known: DynamicTable, change: Outcome, call: Call
    ) -> PassOutcome:
        """Replace the query of a table, with its rows and columns, in one commit."""
        definition = declared.definition
        marks = _marks(definition, call, change)

        def becomes(current: Table, compiled: Compiled) -> ReinitialisedTable:
            schema = replaced_schema(current, compiled.schema, ())
            return ReinitialisedTable(schema, current.stored_partition, dict(marks))

        new = NewDefinition(replace(known, definition=definition), becomes)
        outcome = self.passes.refresh([table.uuid], call, PassOptions(new=new))
        _check_done(outcome, table.uuid, self.sight(call))
        self.definitions.of(self.commits.find(table.name, table.uuid))
        return outcome

    def refuse_existing(self, table: Table) -> TableExists:
        """The refusal to declare a table of a name that is taken."""
        refused = table_exists(table.name)
        if DEFINITION_PROPERTY in table.properties:
            refused = TableExists(f"{refused.message}, or replace: true to replace its query", field="table")
        return refused

    def _check_no_cycle(self, table: Table, compiled: Compiled, call: Call) -> None:
        graph, sight = self.definitions.graph(), self.sight(call)
        for source, one in zip(compiled.sources, compiled.query.sources, strict=True):
            path = graph.path(table.uuid, source.uuid)
            if not path:
                continue
            on_way = sight.tables(graph.tables[uuid] for uuid in path if uuid in graph.tables)
            names = [shown_name(one.name, table.name) for one in on_way]
            way = f", which depends on it ({' → '.join(names)})" if len(path) > 1 else ""
            raise InvalidQuery(
                f"{table.name.table} would read {'itself' if len(path) == 1 else _as_written(one.namespace, one.table)}"
                f"{way} (line {one.line}, column {one.column}); a dynamic table cannot depend on itself",
                field=QUERY,
            )

    def _check_layout(self, table: Table, schema: TableSchema, change: QueryChange) -> None:
        """Refuse to take away columns by which the table is partitioned or sorted."""
        check_names(table, schema)
        kept = compaction_policy(table.properties, self.settings.compaction).sort_by
        for what, names in (("partitioned", [part.field for part in table.stored_partition]), ("sorted", kept)):
            lost = [name for name in names if name in change.removed]
            if lost:
                raise InvalidRequest(
                    f"{table.name.table!r} is {what} by {lost[0]!r}, which the new query does not have, or has with "
                    "another type; keep that column, or change the layout first, by REPARTITION or SET_COMPACTION",
                    field=QUERY,
                )

    def _take_back(self, table: Table) -> None:
        """Drop a table that could not be built, unless it has been built all the same."""
        try:
            current = self.commits.current(table)
        except FirnError:
            return
        if current.current_snapshot_id is None:
            self.catalog.drop(current, purge=True)
            self.definitions.records.delete(table.uuid)


def _marks(definition: Definition, call: Call, outcome: Outcome) -> dict[str, str]:
    """The properties that make a table a dynamic one."""
    key = "" if call.key is None else call.key.id
    return {DEFINITION_PROPERTY: definition.text, CREATED_BY_PROPERTY: f"{key} {outcome}"}


def _check_done(outcome: PassOutcome, table_uuid: str, sight: Sight) -> None:
    """Raise what kept a table from being refreshed."""
    done = outcome.of(table_uuid)
    assert done is not None
    if done.source is None:
        raise sight.error(done.table.definition, done.error or RefreshHeldBack(done.message or ""))


def _as_written(namespace: str | None, table: str) -> str:
    return table if namespace is None else f"{namespace}.{table}"
