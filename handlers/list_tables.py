"""LIST_TABLES: what there is."""

from typing import Literal

from pydantic import Field

from service.context import Context
from service.operation import Example, Request, Result, operation

EXAMPLES = (
    Example(
        "List a namespace's tables",
        {"operation": "LIST_TABLES", "tenant_id": "acme", "namespace": "listed"},
        {
            "success": True,
            "tables": ["events", "people"],
            "metadata": {"request_id": "<any>", "execution_time_ms": "<any>"},
        },
        given=tuple(
            {
                "operation": "CREATE_TABLE",
                "tenant_id": "acme",
                "namespace": "listed",
                "table": table,
                "schema": {"fields": {"id": {"type": "long"}}},
            }
            for table in ("people", "events")
        ),
    ),
)


class ListTables(Request):
    operation: Literal["LIST_TABLES"]
    table: str | None = Field(default=None, description="only this one, if it is there")


class ListTablesResult(Result):
    tables: list[str] = Field(description="names, in order")


@operation(ListTables, ListTablesResult, pool="queries", examples=EXAMPLES)
def list_tables(request: ListTables, context: Context) -> ListTablesResult:
    """List the tables of a tenant's namespace by name."""
    tables = context.catalog.list_tables(request.tenant_id, request.namespace)
    return ListTablesResult(tables=[t for t in tables if request.table in (None, t)])
