"""WRITE: records in."""

from typing import Any, Literal

from pydantic import Field

from service.context import Context
from service.operation import Example, Metadata, Result, TableRequest, operation
from service.upkeep.upkeep import NOT_CHECKED

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "customers"}
CREATE = {
    "operation": "CREATE_TABLE",
    **ADDRESS,
    "schema": {"fields": {"name": {"type": "string", "required": True}, "age": {"type": "integer"}}},
}
APPEND = {
    "operation": "WRITE",
    **ADDRESS,
    "records": [{"name": "Ann", "age": 31}, {"name": "Bo", "age": None}, {"name": "Cy"}],
}


def _answer(records: int) -> dict[str, Any]:
    return {
        "success": True,
        "records_written": records,
        "compaction_recommended": False,
        "small_files_count": None,
        "metadata": {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"},
    }


EXAMPLES = (
    Example("Append records", APPEND, _answer(3), given=(CREATE,)),
    Example(
        "Replace the table's contents",
        {**APPEND, "mode": "overwrite", "records": [{"name": "Di", "age": 44}]},
        _answer(1),
        given=(CREATE, APPEND),
    ),
)


class Write(TableRequest):
    operation: Literal["WRITE"]
    records: list[Any] = Field(description="rows as objects; null and absent are the same")
    mode: Literal["append", "overwrite"] = Field(
        default="append", description="add to the rows there are, or replace them all in one commit"
    )


class WriteResult(Result):
    records_written: int = Field(description="how many records the commit holds")
    compaction_recommended: bool = Field(description="whether COMPACT would find enough small files to merge")
    small_files_count: int | None = Field(description="null where this write was not one that checks")
    metadata: Metadata = Field(default_factory=Metadata)


@operation(Write, WriteResult, pool="edits", examples=EXAMPLES)
def write(request: Write, context: Context) -> WriteResult:
    """Append records to a table, or replace its contents; all of them or none."""
    effect = context.writes.write(request.table_name, request.records, request.mode, context.request_id)
    check = context.upkeep.check_after_write(effect.after) if effect.snapshot else NOT_CHECKED
    return WriteResult(
        records_written=len(request.records),
        compaction_recommended=check.compaction_recommended,
        small_files_count=check.small_files_count,
        metadata=Metadata(snapshot_id=effect.snapshot_id),
    )
