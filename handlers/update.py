"""UPDATE: set columns in the rows that match a filter."""

from concurrent.futures import Future
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.errors import InvalidRequest
from service.model.call import Call
from service.model.edits import Assignment, ByFilter, Edit
from service.model.expressions.assigned import read_assignment
from service.model.schema.columns import columns_of
from service.model.schema.types import TableSchema
from service.operations.edit_requests import CompactionAdvice, EditPlan, EditResult, RowsRequest
from service.operations.examples import create_table, edit_response, write
from service.operations.operation import DryRunResult, Example, Result, operation
from service.operations.shared_edits import EditResponses, RowEdits, edit_pool

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "stock"}
GIVEN = (
    create_table(ADDRESS, {"sku": "string", "left": "integer"}, required=["sku"]),
    write(ADDRESS, {"sku": "a", "left": 3}, {"sku": "b", "left": 0}),
)
QUOTES = {"tenant_id": "acme", "namespace": "markets", "table": "quotes"}
QUOTED = (
    {
        "operation": "CREATE_TABLE",
        **QUOTES,
        "schema": {"fields": {name: {"type": "double"} for name in ("best_bid", "best_ask", "spread_bps")}},
    },
    write(QUOTES, {"best_bid": 99.5, "best_ask": 100.5}, {"best_bid": 50, "best_ask": 49}),
)
EXAMPLES = (
    Example(
        "Update the rows that match a filter",
        {"operation": "UPDATE", **ADDRESS, "updates": {"left": 10}, "filter": {"left": {"lt": 1}}},
        edit_response(records_updated=1, compaction_recommended=False),
        given=GIVEN,
    ),
    Example(
        "Compute new values from each row, if an expression over the row is true",
        {
            "operation": "UPDATE",
            **QUOTES,
            "updates": {"spread_bps": {"expression": "(best_ask - best_bid) / ((best_ask + best_bid) / 2) * 10000"}},
            "filter": {"expression": "best_ask >= best_bid"},
        },
        edit_response(records_updated=1, compaction_recommended=False),
        given=QUOTED,
    ),
    Example(
        "See what an update would do",
        {"operation": "UPDATE", **ADDRESS, "updates": {"left": 10}, "filter": {"left": {"lt": 1}}, "dry_run": True},
        edit_response(
            records_updated=1, sample=[{"before": {"sku": "b", "left": 0}, "after": {"sku": "b", "left": 10}}]
        ),
        given=GIVEN,
    ),
)


class Update(RowsRequest):
    operation: Literal["UPDATE"]
    updates: dict[str, Any] = Field(
        description='column: new value, or {"expression": "price * 1.1"} to compute it from the row; in struct and map '
        "columns, any other object is a literal"
    )


class Updated(BaseModel):
    records_updated: int = Field(description="rows updated")


class UpdateResult(CompactionAdvice, EditResult, Updated):
    """The response to an UPDATE."""


class UpdatePlan(EditPlan, Updated):
    """What an UPDATE would do."""


class UpdateDryRun(DryRunResult):
    plan: UpdatePlan = Field(description="what would happen")


@operation(Update, UpdateResult, pool=edit_pool, examples=EXAMPLES, also=(UpdateDryRun,))
def update(request: Update, call: Call, row_edits: RowEdits) -> "Result | Future[bytes]":
    """Set columns to new values in the rows that match a filter."""
    responses = EditResponses(UpdateResult, UpdateDryRun, lambda counts: {"records_updated": counts.updated})
    return row_edits.make(request, call, partial(_edit, request), responses)


def _edit(request: Update, table: Table) -> Edit:
    assignments = _assignments(request.updates, table.schema)
    which = ByFilter(request.predicate(table.schema, table.partition), assignments)
    return Edit(table.schema, which, derived=table.derived)


def _assignments(updates: dict[str, Any], schema: TableSchema) -> tuple[Assignment, ...]:
    if not updates:
        raise InvalidRequest("updates is empty; name at least one column and its new value", field="updates")
    assignments = []
    for name, value in updates.items():
        path = f"updates.{name}"
        field = schema.field(name, path=path)
        assignments.append(Assignment(field.name, field.type, read_assignment(field, value, columns_of(schema), path)))
    return tuple(assignments)
