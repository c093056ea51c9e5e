"""DELETE: the rows a filter finds, gone."""

from typing import Literal

from pydantic import Field

from service.context import Context
from service.operation import Example, Metadata, Result, operation
from service.requests import RowsRequest

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "baskets"}
GIVEN = (
    {
        "operation": "CREATE_TABLE",
        **ADDRESS,
        "schema": {"fields": {"id": {"type": "long", "required": True}, "seen": {"type": "date"}}},
    },
    {
        "operation": "WRITE",
        **ADDRESS,
        "records": [{"id": 1, "seen": "2024-01-31"}, {"id": 2, "seen": "2024-03-01"}, {"id": 3}],
    },
)
EXAMPLES = (
    Example(
        "Delete the rows a filter finds",
        {"operation": "DELETE", **ADDRESS, "filter": {"seen": {"lt": "2024-02-01"}}},
        {
            "success": True,
            "records_deleted": 1,
            "metadata": {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"},
        },
        given=GIVEN,
    ),
    Example(
        "Delete every row",
        {"operation": "DELETE", **ADDRESS, "all": True},
        {
            "success": True,
            "records_deleted": 3,
            "metadata": {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"},
        },
        given=GIVEN,
    ),
)


class Delete(RowsRequest):
    operation: Literal["DELETE"]


class DeleteResult(Result):
    records_deleted: int = Field(description="how many rows the filter found and the commit removed")


@operation(Delete, DeleteResult, pool="edits", examples=EXAMPLES)
def delete(request: Delete, context: Context) -> DeleteResult:
    """Delete every row that a filter finds, or all of them with `all: true`."""
    table = context.catalog.load(request.table_name)
    predicate = request.predicate(table.schema)
    deleted, effect = context.edits.delete(table, predicate, context.ask)
    return DeleteResult(records_deleted=deleted, metadata=Metadata(snapshot_id=effect.snapshot_id))
