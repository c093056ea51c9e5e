"""DELETE: remove the rows that match a filter."""

from concurrent.futures import Future
from functools import partial
from typing import Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.model.call import Call
from service.model.edits import ByFilter, Edit
from service.operations.edit_requests import CompactionAdvice, EditPlan, EditResult, RowsRequest
from service.operations.examples import create_table, edit_response, write
from service.operations.operation import DryRunResult, Example, Result, operation
from service.operations.shared_edits import EditResponses, RowEdits, edit_pool

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "baskets"}
GIVEN = (
    create_table(ADDRESS, {"id": "long", "seen": "date"}, required=["id"]),
    write(ADDRESS, {"id": 1, "seen": "2024-01-31"}, {"id": 2, "seen": "2024-03-01"}, {"id": 3}),
)
EXAMPLES = (
    Example(
        "Delete the rows that match a filter",
        {"operation": "DELETE", **ADDRESS, "filter": {"seen": {"lt": "2024-02-01"}}},
        edit_response(records_deleted=1, compaction_recommended=False),
        given=GIVEN,
    ),
    Example(
        "Delete every row",
        {"operation": "DELETE", **ADDRESS, "all": True},
        edit_response(records_deleted=3, scanned_files=0, compaction_recommended=False),
        given=GIVEN,
    ),
    Example(
        "See what a delete would do",
        {"operation": "DELETE", **ADDRESS, "filter": {"id": 3}, "dry_run": True},
        edit_response(records_deleted=1, sample=[{"before": {"id": 3, "seen": None}}]),
        given=GIVEN,
    ),
)


class Delete(RowsRequest):
    operation: Literal["DELETE"]


class Deleted(BaseModel):
    records_deleted: int = Field(description="rows deleted")


class DeleteResult(CompactionAdvice, EditResult, Deleted):
    """The response to a DELETE."""


class DeletePlan(EditPlan, Deleted):
    """What a DELETE would do."""


class DeleteDryRun(DryRunResult):
    plan: DeletePlan = Field(description="what would happen")


@operation(Delete, DeleteResult, pool=edit_pool, examples=EXAMPLES, also=(DeleteDryRun,))
def delete(request: Delete, call: Call, row_edits: RowEdits) -> "Result | Future[bytes]":
    """Delete the rows that match a filter, or all rows with `all: true`."""
    responses = EditResponses(DeleteResult, DeleteDryRun, lambda counts: {"records_deleted": counts.deleted})
    return row_edits.make(request, call, partial(_edit, request), responses)


def _edit(request: Delete, table: Table) -> Edit:
    return Edit(table.schema, ByFilter(request.predicate(table.schema, table.partition)))
