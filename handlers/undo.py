"""UNDO: one earlier change taken back, whatever came later kept."""

from functools import partial
from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.edits.undo import Undos
from service.model.call import Call
from service.operations.edit_requests import BackedUpRequest, SampledRow
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Metadata, Result, omit_when_null, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "coffees"}
FIELDS = {"fields": {"name": {"type": "string"}, "price": {"type": "integer"}}}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": FIELDS},
    {"operation": "WRITE", **ADDRESS, "records": [{"name": "Sumatra", "price": 9}, {"name": "Kenya", "price": 12}]},
    {"operation": "UPDATE", **ADDRESS, "filter": {"name": "Kenya"}, "updates": {"price": 120}},
    {"operation": "WRITE", **ADDRESS, "records": [{"name": "Huehuetenango", "price": 11}]},
)
REQUEST_ID = "7d9f3a52-0c4e-4d0b-9a52-5f0c1f7f8d11"
EXAMPLES = (
    Example(
        "Take an earlier change back, and keep what was written since",
        {"operation": "UNDO", **ADDRESS, "request_id": REQUEST_ID},
        response(undone_operation="UPDATE", records_removed=1, records_restored=1, files_affected=1),
        given=GIVEN,
        taken={"request_id": (3, "metadata.request_id")},
    ),
    Example(
        "See what that would do",
        {"operation": "UNDO", **ADDRESS, "request_id": REQUEST_ID, "dry_run": True},
        response(
            undone_operation="UPDATE",
            records_removed=1,
            records_restored=1,
            files_affected=1,
            dry_run=True,
            sample=[
                {"before": {"name": "Kenya", "price": 120}, "after": None},
                {"before": None, "after": {"name": "Kenya", "price": 12}},
            ],
        ),
        given=GIVEN,
        taken={"request_id": (3, "metadata.request_id")},
    ),
)


class Undo(Confirmable, BackedUpRequest):
    operation: Literal["UNDO"]
    request_id: str = Field(
        min_length=1, max_length=200, description="the change to take back: `metadata.request_id` of its answer"
    )
    snapshot_id: int | None = Field(
        default=None,
        description="which one, where a request id was given to several changes: `metadata.snapshot_id` of its answer",
    )
    dry_run: bool = Field(default=False, description="only say what would be done; nothing is changed")


class UndoResult(Result):
    undone_operation: str = Field(description="what kind of change was taken back")
    records_removed: int = Field(description="rows that the change had brought, or had changed, and that are gone now")
    records_restored: int = Field(description="rows that it had taken away, or had changed, as they were before it")
    files_affected: int = Field(description="data files that held rows that are gone now; rewritten, or taken out")
    backup: str | None = omit_when_null("the backup of the state before, where one was made")
    dry_run: bool | None = omit_when_null("true where nothing was changed, as asked")
    sample: list[SampledRow] | None = omit_when_null("for a dry run: up to 20 of the rows, before and after")


@operation(Undo, UndoResult, pool="edits", examples=EXAMPLES)
def undo(request: Undo, call: Call, catalog: Catalog, backups: Backups, undos: Undos) -> UndoResult:
    """Take the rows of one earlier change back, and keep what came later. Where later changes touched the same rows
    it is refused, with their request ids."""
    table = catalog.load(request.table_name)
    request.backup(backups, table)  # what the request says of backups is checked first
    if request.dry_run:
        outcome = undos.preview(table, request.request_id, request.snapshot_id)
    else:
        outcome = undos.run(table, request.request_id, request.snapshot_id, partial(request.backup, backups), call)
    counts, samples = outcome.counts, outcome.samples
    shown: dict[str, Any] = {}
    if samples is not None:
        shown = {"dry_run": True, "sample": [SampledRow.of(s) for s in samples]}
    return UndoResult(
        undone_operation=counts.operation,
        records_removed=counts.removed,
        records_restored=counts.restored,
        files_affected=counts.files,
        backup=outcome.backup,
        metadata=Metadata(snapshot_id=outcome.commit.snapshot_id),
        **shown,
    )
