"""DESCRIBE_DYNAMIC_TABLE: describe a dynamic table and its latest refreshes."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog, Table
from service.dynamic.definitions import Definitions
from service.dynamic.lag import lag_p95_ms
from service.dynamic.reads import DynamicReads
from service.dynamic.rights import Sight
from service.errors import TableNotFound
from service.guard.policies import has_policy
from service.ledger.dynamic_tables import DynamicTable
from service.model.call import Call
from service.model.dynamic.definition import DynamicSource
from service.model.dynamic.state import RefreshState, state_of
from service.model.schema.definition import describe_schema
from service.operations.dynamic.examples import ADDRESSES, CREATED, DETAILS, OPTIONS, QUERY, REFRESH, SCHEMA
from service.operations.dynamic.requests import DynamicTableRequest
from service.operations.dynamic.results import (
    DeclaredOptions,
    DynamicTableState,
    NotIncrementalReason,
    RefreshEntry,
    TableAddress,
    declared_options,
    not_incremental_reason,
    refresh_entry,
    table_state,
)
from service.operations.examples import response
from service.operations.operation import Example, Metadata, Result, ReturnedId, omit_when_null, operation

DESCRIBED = {
    "namespace": "shop",
    "table": "order_details",
    "state": "active",
    "failures": 0,
    "incremental": True,
    "lag_ms": 0,
    "refreshed_at": "<any>",
    "created_at": "<any>",
    **OPTIONS,
    "table_id": "<any>",
    "query": QUERY,
    "classes": ["inner join", "projection"],
    "schema": SCHEMA,
    "sources": [
        {
            **address,
            "name_in_query": address["table"],
            "is_base": True,
            "exists": True,
            "snapshot_id": "<any>",
            "current_snapshot_id": "<any>",
        }
        for address in ADDRESSES
    ],
    "dependents": [],
    "refreshes": [REFRESH],
}
EXAMPLES = (
    Example(
        "Describe a dynamic table",
        {"operation": "DESCRIBE_DYNAMIC_TABLE", **DETAILS},
        response(dynamic_table=DESCRIBED),
        given=CREATED,
    ),
)
# The refreshes by which the lag is measured.
_MEASURED = 500


class DescribeDynamicTable(DynamicTableRequest):
    operation: Literal["DESCRIBE_DYNAMIC_TABLE"]
    refreshes: int = Field(default=10, ge=0, le=100, description="how many of the latest refreshes to return")


class DescribedSource(TableAddress):
    """A table that the query reads."""

    name_in_query: str = Field(description="its name in the query, which stays if the table is renamed")
    is_base: bool = Field(description="false for a dynamic table")
    exists: bool = Field(description="false if it was dropped")
    has_policy: bool | None = omit_when_null(
        "true if a policy protects it; this table shows its rows without that policy, and needs one of its own"
    )
    snapshot_id: ReturnedId | None = omit_when_null("the snapshot that the rows are made of")
    current_snapshot_id: ReturnedId | None = omit_when_null("its snapshot now")


class DynamicTableDescription(DeclaredOptions, DynamicTableState):
    """A dynamic table: its definition, its state and its refreshes."""

    table_id: str = Field(description="the id of the table with the result")
    query: str | None = omit_when_null("its query; absent unless you may read all tables that it names")
    classes: list[str] = Field(description="the operators of the query")
    not_incremental: NotIncrementalReason | None = omit_when_null("why it cannot be refreshed incrementally")
    schema_: dict[str, Any] = Field(serialization_alias="schema", description="its columns, as in CREATE_TABLE")
    lag_p95_ms: int | None = omit_when_null(
        "of the lags just before its latest refreshes ended, 95 of 100 were not above this"
    )
    sources: list[DescribedSource] = Field(description="the tables that its query reads and that you may read")
    dependents: list[TableAddress] = Field(description="the dynamic tables that read it and that you may read")
    refreshes: list[RefreshEntry] = Field(description="its latest refreshes, newest first")


class DescribeDynamicTableResult(Result):
    dynamic_table: DynamicTableDescription = Field(description="the dynamic table's description")


@operation(DescribeDynamicTable, DescribeDynamicTableResult, pool="metadata", examples=EXAMPLES)
def describe_dynamic_table(
    request: DescribeDynamicTable, call: Call, catalog: Catalog, definitions: Definitions, reads: DynamicReads
) -> DescribeDynamicTableResult:
    """Describe a dynamic table: definition, mode, lag, sources with their snapshots, dependents and last refreshes."""
    table, found = definitions.load(request.table_name)
    refreshes = definitions.records.refreshes_of(table.uuid, _MEASURED)
    declared, sight = found.definition, Sight(call.principal, definitions)
    return DescribeDynamicTableResult(
        dynamic_table=DynamicTableDescription(
            **table_state(found, reads.lags_ms([found])[found.uuid], sight),
            **declared_options(declared.options).model_dump(),
            table_id=table.uuid,
            query=declared.query if sight.sees_sources(declared) else None,
            classes=list(declared.classes),
            not_incremental=not_incremental_reason(declared),
            schema_=describe_schema(table.schema),
            lag_p95_ms=lag_p95_ms(refreshes),
            sources=_sources(found, _state(table), catalog, definitions, sight),
            dependents=[TableAddress.of(one.name) for one in sight.tables(definitions.records.readers([table.uuid]))],
            refreshes=[refresh_entry(one, found, sight) for one in refreshes[: request.refreshes]],
        ),
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _state(table: Table) -> RefreshState | None:
    """What the rows stand for."""
    current = table.current_snapshot_id
    return None if current is None else state_of(table.snapshot(current).summary)


def _sources(
    table: DynamicTable, state: RefreshState | None, catalog: Catalog, definitions: Definitions, sight: Sight
) -> list[DescribedSource]:
    read = state.snapshots if state else {}
    dynamic = {one.uuid for one in definitions.graph().sources(table.uuid)}
    seen = [one for one in table.definition.sources if sight.sees(one.name)]
    return [_source(one, read.get(one.uuid), one.uuid not in dynamic, catalog) for one in seen]


def _source(source: DynamicSource, snapshot_id: int | None, is_base: bool, catalog: Catalog) -> DescribedSource:
    try:
        now = catalog.load(source.name)
        exists = now.uuid == source.uuid
    except TableNotFound:
        exists = False
    return DescribedSource(
        namespace=source.name.namespace,
        table=source.name.table,
        name_in_query=source.text,
        is_base=is_base,
        exists=exists,
        has_policy=(exists and has_policy(now)) or None,
        snapshot_id=snapshot_id,
        current_snapshot_id=now.current_snapshot_id if exists else None,
    )
