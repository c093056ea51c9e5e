"""UPSERT: records that replace the rows with their keys, or are added."""

from typing import Any, Literal

from pydantic import Field

from service.context import Context
from service.edits.upsert import counted
from service.operation import ChangeRequest, Example, Metadata, Result, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "prices"}
GIVEN = (
    {
        "operation": "CREATE_TABLE",
        **ADDRESS,
        "schema": {
            "fields": {
                "sku": {"type": "string", "required": True},
                "price": {"type": "decimal(10,2)"},
                "note": {"type": "string"},
            },
            "primary_key": ["sku"],
        },
    },
    {"operation": "WRITE", **ADDRESS, "records": [{"sku": "a", "price": "9.50", "note": "old"}]},
)
EXAMPLES = (
    Example(
        "Insert or update by primary key",
        {
            "operation": "UPSERT",
            **ADDRESS,
            "records": [{"sku": "a", "price": "9.90"}, {"sku": "b", "price": 12}],
        },
        {
            "success": True,
            "records_inserted": 1,
            "records_updated": 1,
            "metadata": {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"},
        },
        given=GIVEN,
    ),
)


class Upsert(ChangeRequest):
    operation: Literal["UPSERT"]
    records: list[Any] = Field(description="rows as objects; an absent column keeps its value, null sets it")
    key_cols: list[str] | None = Field(default=None, description="what identifies a row; default: the primary key")
    update_cols: list[str] | None = Field(default=None, description="what may change; default: all but the keys")


class UpsertResult(Result):
    records_inserted: int = Field(description="records whose keys were new")
    records_updated: int = Field(description="rows that a record's key found")


@operation(Upsert, UpsertResult, pool="edits", examples=EXAMPLES)
def upsert(request: Upsert, context: Context) -> UpsertResult:
    """Update the rows whose keys the records have, and insert the others, in one commit."""
    table = context.catalog.load(request.table_name)
    effect = context.edits.upsert(table, request.records, request.key_cols, request.update_cols, context.ask)
    inserted, updated = counted(effect.snapshot)
    return UpsertResult(
        records_inserted=inserted,
        records_updated=updated,
        metadata=Metadata(snapshot_id=effect.snapshot_id),
    )
