"""UPSERT: update the rows that have the records' keys, and insert the other records."""

from concurrent.futures import Future
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Table
from service.edits.edits import EditCounts
from service.edits.upsert import prepare, refuse_incomplete, updatable
from service.engine.jobs.edit import FoundRows
from service.errors import InvalidRequest
from service.model.call import Call
from service.model.edits import ByKey, Edit
from service.model.ingest.reserved import refuse_ingestion_table
from service.model.schema.key_columns import key_columns
from service.operations.edit_requests import CompactionAdvice, EditPlan, EditRequest, EditResult
from service.operations.examples import create_table, edit_response, write
from service.operations.operation import DryRunResult, Example, Result, omit_when_null, operation
from service.operations.shared_edits import EditResponses, RowEdits, edit_pool

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "prices"}
GIVEN = (
    create_table(
        ADDRESS, {"sku": "string", "price": "decimal(10,2)", "note": "string"}, required=["sku"], primary_key=["sku"]
    ),
    write(ADDRESS, {"sku": "a", "price": "9.50", "note": "old"}),
)
EXAMPLES = (
    Example(
        "Insert or update by primary key",
        {"operation": "UPSERT", **ADDRESS, "records": [{"sku": "a", "price": "9.90"}, {"sku": "b", "price": 12}]},
        edit_response(records_inserted=1, records_updated=1, records_unchanged=0, compaction_recommended=False),
        given=GIVEN,
    ),
    Example(
        "See what an upsert would do",
        {
            "operation": "UPSERT",
            **ADDRESS,
            "records": [{"sku": "a", "price": "9.50", "note": "new"}, {"sku": "b", "price": 12}],
            "dry_run": True,
        },
        edit_response(
            records_inserted=1,
            records_updated=1,
            records_unchanged=0,
            sample=[
                {
                    "before": {"sku": "a", "price": "9.50", "note": "old"},
                    "after": {"sku": "a", "price": "9.50", "note": "new"},
                },
                {"after": {"sku": "b", "price": "12.00", "note": None}},
            ],
        ),
        given=GIVEN,
    ),
    Example(
        "Leave one row for each key",
        {
            "operation": "UPSERT",
            **ADDRESS,
            "table": "quotes",
            "key_cols": ["sku"],
            "on_multiple": "replace",
            "records": [{"sku": "a", "price": "9.90"}],
        },
        edit_response(
            records_inserted=0,
            records_updated=1,
            records_unchanged=0,
            records_replaced=1,
            compaction_recommended=False,
        ),
        given=(
            create_table({**ADDRESS, "table": "quotes"}, {"sku": "string", "price": "decimal(10,2)", "note": "string"}),
            write(
                {**ADDRESS, "table": "quotes"},
                {"sku": "a", "price": "9.50", "note": "old"},
                {"sku": "a", "price": "9.70", "note": "kept"},
            ),
        ),
    ),
)


class Upsert(EditRequest):
    operation: Literal["UPSERT"]
    records: list[Any] = Field(description="rows as objects; an absent column keeps its value, null sets it to null")
    key_cols: list[str] | None = Field(
        default=None, description="columns that identify a row; default: the primary key"
    )
    update_cols: list[str] | None = Field(
        default=None, description="columns that may change; default: all but the keys"
    )
    partition_cols: list[str] | None = Field(
        default=None, description="the columns that the table is partitioned by; other columns are refused"
    )
    on_duplicate: Literal["refuse", "last"] = Field(
        default="refuse", description="if records have the same key: refuse the request, or use the last one"
    )
    on_multiple: Literal["update_all", "replace"] = Field(
        default="update_all",
        description="if several rows of the table have a record's key: update all of them, or keep only the newest, "
        "with the record's values; columns that the record lacks keep their values in that row",
    )


class Upserted(BaseModel):
    records_inserted: int = Field(description="rows inserted")
    records_updated: int = Field(description="rows updated")
    records_unchanged: int = Field(description="existing rows that already equal their record")
    records_replaced: int | None = omit_when_null(
        'older rows that were removed because a newer row has their key; only with `on_multiple: "replace"`'
    )


class UpsertResult(CompactionAdvice, EditResult, Upserted):
    """The response to an UPSERT."""


class UpsertPlan(EditPlan, Upserted):
    """What an UPSERT would do."""


class UpsertDryRun(DryRunResult):
    plan: UpsertPlan = Field(description="what would happen")


@operation(Upsert, UpsertResult, pool=edit_pool, examples=EXAMPLES, also=(UpsertDryRun,))
def upsert(request: Upsert, call: Call, row_edits: RowEdits) -> "Result | Future[bytes]":
    """Update the rows that have the records' keys, and insert the other records, in one commit."""
    fields = partial(upserted, replaces=request.on_multiple == "replace")
    responses = EditResponses(UpsertResult, UpsertDryRun, fields)
    return row_edits.make(request, call, partial(_edit, request), responses, partial(_refuse_incomplete, request))


def upserted(counts: EditCounts, *, replaces: bool) -> dict[str, Any]:
    """The fields of Upserted."""
    return {
        "records_inserted": counts.inserted,
        "records_updated": counts.updated,
        "records_unchanged": counts.unchanged,
        "records_replaced": counts.replaced if replaces else None,
    }


def _edit(request: Upsert, table: Table) -> Edit:
    refuse_ingestion_table(table.properties, table.name.table, "UPSERT")
    schema = table.schema
    keys = key_columns(schema, request.key_cols)
    may_change = updatable(schema, request.update_cols, keys)
    _check_partition_cols(request, table)
    rows, how = prepare(schema, request.records, keys, may_change, request.on_duplicate, request.on_multiple)
    return Edit(schema, ByKey(rows, how, request.partition_rows(schema, table.partition)), derived=table.derived)


def _check_partition_cols(request: Upsert, table: Table) -> None:
    """Clients of other systems name the partition columns in each request. Here the table alone decides on them."""
    columns = list(dict.fromkeys(field.field for field in table.partition))
    if request.partition_cols is not None and set(request.partition_cols) != set(columns):
        now = f"is partitioned by {', '.join(columns)}" if columns else "is not partitioned"
        raise InvalidRequest(
            f"partition_cols: the table {now}; send exactly these columns, or leave partition_cols out",
            field="partition_cols",
        )


def _refuse_incomplete(request: Upsert, edit: Edit, found: FoundRows) -> None:
    assert isinstance(edit.which, ByKey)
    refuse_incomplete(found, request.records, edit.which.how)
