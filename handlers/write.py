"""WRITE: records in."""

from concurrent.futures import Future
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.context import Context
from service.operation import ChangeRequest, Example, Metadata, Result, operation
from service.upkeep.upkeep import NOT_CHECKED
from service.writes.entry import Written

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
        "metadata": {
            "request_id": "<any>",
            "execution_time_ms": "<any>",
            "snapshot_id": "<any>",
            "batch": {"requests": "<any>", "records": "<any>"},
        },
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


class Write(ChangeRequest):
    operation: Literal["WRITE"]
    records: list[Any] = Field(description="rows as objects; null and absent are the same")
    mode: Literal["append", "overwrite"] = Field(
        default="append", description="add to the rows there are, or replace them all in one commit"
    )


class Batch(BaseModel):
    """The commit that a WRITE shared with those that came at the same time."""

    model_config = ConfigDict(extra="forbid")

    requests: int = Field(description="how many WRITEs the commit holds")
    records: int = Field(description="how many records the commit holds")


class WriteMetadata(Metadata):
    batch: Batch | None = Field(
        default=None,
        description="what the commit holds in all; absent where nothing was written",
        json_schema_extra={"omit_when_null": True},
    )


class WriteResult(Result):
    records_written: int = Field(description="how many of the records the commit holds")
    compaction_recommended: bool = Field(description="whether COMPACT would find enough small files to merge")
    small_files_count: int | None = Field(description="null where this write was not one that checks")
    metadata: WriteMetadata = Field(default_factory=WriteMetadata)


@operation(
    Write, WriteResult, pool=lambda request: "inline" if request.mode == "append" else "edits", examples=EXAMPLES
)
def write(request: Write, context: Context) -> "WriteResult | Future[bytes]":
    """Append records to a table, or replace its contents; all of them or none."""
    if request.mode == "append":
        return context.writes.append(
            request.table_name, request.records, context.size, context.ask, lambda w: context.reply(_result(w))
        )
    effect = context.writes.overwrite(request.table_name, request.records, context.ask)
    check = context.upkeep.check_after_write(effect.after) if effect.snapshot else NOT_CHECKED
    return _result(Written(len(request.records), effect.snapshot_id, 1, len(request.records), check))


def _result(written: Written) -> WriteResult:
    batch = Batch(requests=written.requests_in_batch, records=written.records_in_batch)
    return WriteResult(
        records_written=written.records,
        compaction_recommended=written.check.compaction_recommended,
        small_files_count=written.check.small_files_count,
        metadata=WriteMetadata(snapshot_id=written.snapshot_id, batch=batch if batch.requests else None),
    )
