"""CREATE_DYNAMIC_TABLE: declare a table as the result of a query, or replace the query of one."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Table
from service.dynamic.declare.classify import QueryChange
from service.dynamic.declare.creation import Creations, Outcome
from service.dynamic.definitions import Definitions
from service.dynamic.refresh.passes import PassOutcome
from service.dynamic.refresh.refresher import RefreshProgress
from service.dynamic.rights import Sight
from service.errors import FirnError
from service.jobs.background import Background
from service.model.call import Call
from service.model.dynamic.definition import Definition
from service.model.dynamic.plan import RefreshMode
from service.model.schema.definition import describe_schema
from service.model.schema.types import TableSchema
from service.operations.dynamic.declaration import DeclarationRequest
from service.operations.dynamic.examples import ADDRESSES, BASES, CREATE, CREATED, DETAILS, QUERY, SCHEMA
from service.operations.dynamic.results import NotIncrementalReason, TableAddress, not_incremental_reason
from service.operations.examples import planned, response
from service.operations.operation import (
    AcceptedResult,
    BackgroundRequest,
    DryRunResult,
    Example,
    Metadata,
    Plan,
    Result,
    omit_when_null,
    operation,
)

MADE: dict[str, Any] = {
    "namespace": "shop",
    "table": "order_details",
    "incremental": True,
    "classes": ["inner join", "projection"],
    "schema": SCHEMA,
    "sources": ADDRESSES,
    "columns_removed": [],
}
EXAMPLES = (
    Example(
        "Declare a table as the result of a query",
        CREATE,
        response(
            **MADE,
            change="created",
            columns_added=[],
            table_created=True,
            table_existed=False,
            mode="FULL",
            records_inserted=1,
            pass_id="<any>",
        ),
        given=BASES,
    ),
    Example(
        "See what another query would change",
        {
            "operation": "CREATE_DYNAMIC_TABLE",
            **DETAILS,
            "target_lag": "5 minutes",
            "query": QUERY.replace("c.customer_name", "c.customer_name, o.amount > 10 AS is_large"),
            "replace": True,
            "dry_run": True,
        },
        planned(
            snapshot=False,
            **{**MADE, "schema": {"fields": {**SCHEMA["fields"], "is_large": {"type": "boolean", "required": False}}}},
            change="columns_added",
            columns_added=["is_large"],
            rebuilds=[{"namespace": "shop", "table": "order_details"}],
            dependents=[],
        ),
        given=CREATED,
    ),
)


class CreateDynamicTable(DeclarationRequest, BackgroundRequest):
    operation: Literal["CREATE_DYNAMIC_TABLE"]
    confirm: bool = Field(
        default=False, description="needed with `replace` to take away a column that other dynamic tables read"
    )


class DeclaredQuery(TableAddress):
    """What a query declares."""

    incremental: bool = Field(description="whether it can be refreshed incrementally")
    not_incremental: NotIncrementalReason | None = omit_when_null("why it cannot be")
    classes: list[str] = Field(description="the operators of the query")
    schema_: dict[str, Any] = Field(serialization_alias="schema", description="its columns, as in CREATE_TABLE")
    sources: list[TableAddress] = Field(description="the tables that it reads and that you may read")
    change: Outcome = Field(
        description="`created`; `nothing`: the query and the options are the same; `options`: only these differ; "
        "`columns_added`: the query has more columns; or `rebuild`: it is another one"
    )
    columns_added: list[str] = Field(description="with `replace`: columns that the table did not have")
    columns_removed: list[str] = Field(description="with `replace`: columns that it lost, or has with another type")


class CreateDynamicTableResult(DeclaredQuery, Result):
    table_created: bool = Field(description="whether this request created it")
    table_existed: bool = Field(description="whether it existed before")
    mode: RefreshMode | None = omit_when_null("how it was refreshed, if it was")
    records_inserted: int | None = omit_when_null("rows that the refresh wrote")
    pass_id: str | None = omit_when_null("the id of the refresh's pass")


class CreateDynamicTablePlan(DeclaredQuery, Plan):
    """What a CREATE_DYNAMIC_TABLE would do."""

    rebuilds: list[TableAddress] = Field(description="the tables that would be computed in full")
    dependents: list[TableAddress] = Field(
        description="the dynamic tables that read it, and are refreshed after it, if you may read them"
    )


class CreateDynamicTableDryRun(DryRunResult):
    plan: CreateDynamicTablePlan = Field(description="what would happen")


@operation(
    CreateDynamicTable,
    CreateDynamicTableResult,
    pool="bulk",
    examples=EXAMPLES,
    also=(CreateDynamicTableDryRun, AcceptedResult),
)
def create_dynamic_table(
    request: CreateDynamicTable, call: Call, creations: Creations, definitions: Definitions, background: Background
) -> CreateDynamicTableResult | CreateDynamicTableDryRun | AcceptedResult:
    """Declare a table as the result of a query, which is kept up to date; or replace the query of such a table."""
    creations.authorise(request.declaration, call)
    try:
        table = creations.existing(request.table_name)
        if table is None:
            return _created(request, call, creations, background)
        return _existed(request, table, call, creations, definitions, background)
    except FirnError as e:
        if request.sql is not None and e.field == "query":
            e.field = "sql"
        raise


def _created(
    request: CreateDynamicTable, call: Call, creations: Creations, background: Background
) -> CreateDynamicTableResult | CreateDynamicTableDryRun | AcceptedResult:
    declared, sight = creations.declared(request.declaration, None, call), creations.sight(call)
    fields = _fields(declared.definition, declared.schema, "created", sight)
    builds = declared.definition.options.initialise == "ON_CREATE"
    if request.dry_run:
        rebuilds = [TableAddress.of(request.table_name)] if builds else []
        return CreateDynamicTableDryRun(plan=CreateDynamicTablePlan(**fields, rebuilds=rebuilds, dependents=[]))
    table = creations.create(declared, call)
    return _built(request, table, fields, call, creations, background)


def _existed(
    request: CreateDynamicTable,
    table: Table,
    call: Call,
    creations: Creations,
    definitions: Definitions,
    background: Background,
) -> CreateDynamicTableResult | CreateDynamicTableDryRun | AcceptedResult:
    before, sight = creations.made_before(table, call), creations.sight(call)
    if before == "created" or creations.is_left(table, request.declaration):
        fields = _fields(definitions.of(table).definition, table.schema, "created", sight)
        if not request.dry_run:
            return _built(request, table, fields, call, creations, background)
    if not (request.replace or request.if_not_exists):
        raise creations.refuse_existing(table)
    known = definitions.of(table)
    if request.if_not_exists:
        fields = _fields(known.definition, table.schema, "nothing", sight)
        return CreateDynamicTableResult(**fields, table_created=False, table_existed=True)
    declared = creations.declared(request.declaration, table, call)
    change = creations.change(declared, table, known)
    if not request.confirm:
        creations.check_readers(table, change, call)
    fields = _fields(declared.definition, declared.schema, before or change.change, sight, change)
    replaces = change.change in ("columns_added", "rebuild")
    if request.dry_run:
        plan = CreateDynamicTablePlan(
            **fields,
            rebuilds=[TableAddress.of(table.name)] if replaces else [],
            dependents=[TableAddress.of(one.name) for one in sight.tables(definitions.records.readers([table.uuid]))],
        )
        return CreateDynamicTableDryRun(plan=plan)
    if not replaces:
        creations.set_options(declared, table, known, call)
        return CreateDynamicTableResult(**fields, table_created=False, table_existed=True)
    return _run(
        request,
        table,
        lambda of: creations.replace(declared, table, known, change.change, of),
        fields | {"table_created": False, "table_existed": True},
        call,
        background,
    )


def _built(
    request: CreateDynamicTable,
    table: Table,
    fields: dict[str, Any],
    call: Call,
    creations: Creations,
    background: Background,
) -> CreateDynamicTableResult | AcceptedResult:
    """Build a new table, unless its worker does."""
    fields = fields | {"table_created": True, "table_existed": False}
    if request.declaration.options.initialise == "ON_SCHEDULE":
        return CreateDynamicTableResult(**fields)
    return _run(request, table, lambda of: creations.build(table, of), fields, call, background)


def _run(
    request: CreateDynamicTable,
    table: Table,
    work: Callable[[Call], PassOutcome],
    fields: dict[str, Any],
    call: Call,
    background: Background,
) -> CreateDynamicTableResult | AcceptedResult:
    """Run the pass that computes the rows, now or as a job."""

    def run(of: Call) -> CreateDynamicTableResult:
        outcome = work(of)
        done = outcome.of(table.uuid)
        assert done is not None
        record, source = done.record, done.source
        return CreateDynamicTableResult(
            **fields,
            mode=record.mode if record else None,
            records_inserted=record.rows_added if record else None,
            pass_id=outcome.id,
            metadata=Metadata(snapshot_id=source.snapshot_id if source else None),
        )

    if not request.async_:
        return run(call)
    progress = RefreshProgress()
    job_id = background.start("CREATE_DYNAMIC_TABLE", table, progress, call, lambda job: job.respond(run(job)))
    return AcceptedResult.of(job_id)


def _fields(
    definition: Definition,
    schema: TableSchema,
    change: Outcome,
    sight: Sight,
    difference: QueryChange | None = None,
) -> dict[str, Any]:
    """The fields of DeclaredQuery."""
    return {
        "namespace": definition.name.namespace,
        "table": definition.name.table,
        "incremental": definition.full_code is None,
        "not_incremental": not_incremental_reason(definition),
        "classes": list(definition.classes),
        "schema_": describe_schema(schema),
        "sources": [TableAddress.of(one.name) for one in definition.sources if sight.sees(one.name)],
        "change": change,
        "columns_added": list(difference.added) if difference else [],
        "columns_removed": list(difference.removed) if difference else [],
    }
