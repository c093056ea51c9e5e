"""DEDUPLICATE: keep one row of each key."""

from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.commits.backups import Backups
from service.commits.commit import Commits
from service.edits.edits import Edits
from service.errors import InvalidRequest, UnknownField
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.model.edits import Duplicates, Edit, SortKey
from service.model.query.items import Sorts, refuse_sql_order
from service.model.schema.columns import columns_of
from service.model.schema.key_columns import key_columns
from service.model.schema.types import DecimalType, Primitive, TableSchema
from service.operations.edit_requests import EditPlan, EditRequest, EditResult, edited
from service.operations.examples import create_table, edit_response, write
from service.operations.operation import DryRunResult, Example, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "visits"}
GIVEN = (
    create_table(ADDRESS, {"user": "string", "day": "date"}, required=["user"]),
    write(ADDRESS, {"user": "a", "day": "2024-01-01"}, {"user": "a", "day": "2024-01-31"}, {"user": "b"}),
)
REQUEST: dict[str, Any] = {
    "operation": "DEDUPLICATE",
    **ADDRESS,
    "key_cols": ["user"],
    "order_by": [{"field": "day"}],
    "keep": "last",
}
EXAMPLES = (
    Example("Keep the latest row of each key", REQUEST, edit_response(records_removed=1), given=GIVEN),
    Example(
        "See which rows would be removed",
        {**REQUEST, "dry_run": True},
        edit_response(records_removed=1, sample=[{"before": {"user": "a", "day": "2024-01-01"}}]),
        given=GIVEN,
    ),
)


class Deduplicate(EditRequest):
    operation: Literal["DEDUPLICATE"]
    key_cols: list[str] | None = Field(
        default=None, description="the columns that duplicates share; default: the primary key"
    )
    order_by: Sorts = Field(
        default_factory=list,
        description="the order of duplicates: columns (dots reach into structs), or objects as in QUERY's `sort`; rows "
        "that sort equally, and all rows by default, go by when they were written",
    )
    keep: Literal["first", "last"] = Field(default="first", description="which row to keep")


class Deduplicated(BaseModel):
    records_removed: int = Field(description="duplicates removed")


class DeduplicateResult(EditResult, Deduplicated):
    """The response to a DEDUPLICATE."""


class DeduplicatePlan(EditPlan, Deduplicated):
    """What a DEDUPLICATE would do."""


class DeduplicateDryRun(DryRunResult):
    plan: DeduplicatePlan = Field(description="what would happen")


@operation(Deduplicate, DeduplicateResult, pool="edits", examples=EXAMPLES, also=(DeduplicateDryRun,))
def deduplicate(
    request: Deduplicate, call: Call, commits: Commits, backups: Backups, edits: Edits
) -> DeduplicateResult | DeduplicateDryRun:
    """Keep one row of each key and remove the others, in one commit."""
    table = commits.table(request.table_name, call)
    refuse_dynamic_table(table.properties, table.name.table, "DEDUPLICATE")
    outcome = edits.run(table, "DEDUPLICATE", partial(_edit, request), request.options(backups), call)
    return edited(outcome, DeduplicateResult, DeduplicateDryRun, records_removed=outcome.counts.deleted)


def _edit(request: Deduplicate, table: Table) -> Edit:
    schema = table.schema
    keys, order = key_columns(schema, request.key_cols), _order(request, schema)
    return Edit(
        schema, Duplicates(keys, order, request.keep == "last", request.partition_rows(schema, table.partition))
    )


def _order(request: Deduplicate, schema: TableSchema) -> tuple[SortKey, ...]:
    order, resolve = [], columns_of(schema)
    for i, item in enumerate(request.order_by):
        path = f"order_by[{i}].field"
        try:
            column = resolve(item.field, path)
        except UnknownField as e:
            raise refuse_sql_order(e, item.field, path) from e
        if not isinstance(column.type, Primitive | DecimalType):
            raise InvalidRequest(
                f"{path}: {item.field!r} is {column.type}, which cannot be sorted; name a column of a plain type",
                field=path,
            )
        descending = item.order == "desc"
        order.append(SortKey(column, descending, not descending if item.nulls_first is None else item.nulls_first))
    return tuple(order)
