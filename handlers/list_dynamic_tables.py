"""LIST_DYNAMIC_TABLES: list a tenant's dynamic tables."""

from typing import Literal

from pydantic import Field

from service.dynamic.definitions import Definitions
from service.dynamic.reads import DynamicReads
from service.dynamic.rights import Sight
from service.ledger.dynamic_tables import DynamicTable
from service.model.call import Call
from service.model.dynamic.definition import TableState
from service.operations.dynamic.examples import ADDRESSES, CREATED, OPTIONS, TENANT
from service.operations.dynamic.results import (
    DeclaredOptions,
    DynamicTableState,
    TableAddress,
    declared_options,
    table_state,
)
from service.operations.examples import response
from service.operations.operation import Example, Result, omit_when_null, operation
from service.operations.paging import Page, Paged, ScopedRequest

LISTED = {
    "namespace": "shop",
    "table": "order_details",
    "state": "active",
    "failures": 0,
    "incremental": True,
    "lag_ms": 0,
    "refreshed_at": "<any>",
    "created_at": "<any>",
    **OPTIONS,
    "sources": ADDRESSES,
    "last_mode": "FULL",
}
EXAMPLES = (
    Example(
        "List a namespace's dynamic tables",
        {"operation": "LIST_DYNAMIC_TABLES", **TENANT},
        response(snapshot=False, dynamic_tables=[LISTED]),
        given=CREATED,
    ),
)


class ListDynamicTables(Paged, ScopedRequest):
    operation: Literal["LIST_DYNAMIC_TABLES"]
    state: TableState | None = Field(default=None, description="only those in this state")


class ListedDynamicTable(DeclaredOptions, DynamicTableState):
    """A dynamic table in a list."""

    sources: list[TableAddress] = Field(description="the tables that it reads and that you may read")
    last_mode: str | None = omit_when_null("the mode of its last refresh")


class ListDynamicTablesResult(Page, Result):
    dynamic_tables: list[ListedDynamicTable] = Field(description="in the order of their namespaces and names")


@operation(ListDynamicTables, ListDynamicTablesResult, pool="metadata", examples=EXAMPLES)
def list_dynamic_tables(
    request: ListDynamicTables, call: Call, definitions: Definitions, reads: DynamicReads
) -> ListDynamicTablesResult:
    """List the dynamic tables of a namespace or tenant: what they read, their states, and how far they lag behind."""
    [*after] = request.place(str, str) or ()
    records, sight = definitions.records, Sight(call.principal, definitions)
    found = records.of_tenant(
        request.tenant_id,
        request.only_namespace,
        state=request.state,
        after=(after[0], after[1]) if after else None,
        limit=request.limit + 1,
    )
    page, next_cursor = request.page(found, lambda one: [one.name.namespace, one.name.table])
    last, lags = records.last_modes([one.uuid for one in page]), reads.lags_ms(page)
    return ListDynamicTablesResult(
        dynamic_tables=[_listed(one, lags[one.uuid], last.get(one.uuid), sight) for one in page],
        next_cursor=next_cursor,
    )


def _listed(table: DynamicTable, lag_ms: int | None, last_mode: str | None, sight: Sight) -> ListedDynamicTable:
    return ListedDynamicTable(
        **table_state(table, lag_ms, sight),
        **declared_options(table.definition.options).model_dump(),
        sources=[TableAddress.of(source.name) for source in table.definition.sources if sight.sees(source.name)],
        last_mode=last_mode,
    )
