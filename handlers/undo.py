"""UNDO: reverse one earlier change, and keep later ones."""

from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.commits.backups import Backups
from service.edits.replayed import ReplayedRows
from service.edits.undo import UndoOutcome, UndoProgress, Undos
from service.jobs.background import Background
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.operations.edit_requests import LOST, BackedUpRequest, BackedUpResult, SampledPlan, sampled
from service.operations.examples import planned, response, write
from service.operations.operation import (
    AcceptedResult,
    BackgroundRequest,
    DryRunResult,
    Example,
    Metadata,
    SentId,
    omit_when_null,
    operation,
)

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "coffees"}
FIELDS = {"fields": {"name": {"type": "string"}, "price": {"type": "integer"}}}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": FIELDS},
    write(ADDRESS, {"name": "Sumatra", "price": 9}, {"name": "Kenya", "price": 12}),
    {"operation": "UPDATE", **ADDRESS, "filter": {"name": "Kenya"}, "updates": {"price": 120}},
    write(ADDRESS, {"name": "Huehuetenango", "price": 11}),
)
REQUEST_ID = "7d9f3a52-0c4e-4d0b-9a52-5f0c1f7f8d11"
EXAMPLES = (
    Example(
        "Undo an earlier change, and keep what was written since",
        {"operation": "UNDO", **ADDRESS, "request_id": REQUEST_ID},
        response(undone_operation="UPDATE", records_removed=1, records_restored=1, files_affected=1),
        given=GIVEN,
        taken={"request_id": (3, "metadata.request_id")},
    ),
    Example(
        "See what an undo would do",
        {"operation": "UNDO", **ADDRESS, "request_id": REQUEST_ID, "dry_run": True},
        planned(
            undone_operation="UPDATE",
            records_removed=1,
            records_restored=1,
            files_affected=1,
            sample=[
                {"before": {"name": "Kenya", "price": 120}},
                {"after": {"name": "Kenya", "price": 12}},
            ],
        ),
        given=GIVEN,
        taken={"request_id": (3, "metadata.request_id")},
    ),
)


class Undo(BackedUpRequest, BackgroundRequest):
    operation: Literal["UNDO"]
    request_id: str = Field(
        min_length=1,
        max_length=200,
        description="the change to undo: `metadata.request_id` of its response, or one of `request_ids` in HISTORY",
    )
    snapshot_id: SentId | None = Field(
        default=None, description="`metadata.snapshot_id` of its response, if several changes have the request id"
    )


class Undone(BaseModel):
    undone_operation: str = Field(description="the operation of the change")
    records_removed: int = Field(description="removed rows: those that the change inserted or updated")
    records_restored: int = Field(description="restored rows: those that the change deleted or updated")
    files_affected: int = Field(description="data files with removed rows; they are rewritten or removed")
    warnings: list[str] | None = omit_when_null(LOST)


class UndoResult(BackedUpResult, Undone):
    """The response to an UNDO."""


class UndoPlan(SampledPlan, Undone):
    """What an UNDO would do."""


class UndoDryRun(DryRunResult):
    plan: UndoPlan = Field(description="what would happen")


@operation(Undo, UndoResult, pool="edits", examples=EXAMPLES, also=(UndoDryRun, AcceptedResult))
def undo(
    request: Undo,
    call: Call,
    catalog: Catalog,
    backups: Backups,
    background: Background,
    undos: Undos,
    replayed: ReplayedRows,
) -> UndoResult | UndoDryRun | AcceptedResult:
    """Undo the changes that one earlier request made to rows, and keep later changes.

    If later changes touched the same rows, it is refused with their request ids.
    """
    table = catalog.load(request.table_name)
    refuse_dynamic_table(table.properties, table.name.table, "UNDO")
    request.backup(backups, table)  # refuse a contradiction about backups first, in a dry run too

    def run(job: Call) -> UndoResult | UndoDryRun:
        if request.dry_run:
            outcome = undos.preview(table, request.request_id, request.snapshot_id, job)
        else:
            outcome = undos.run(table, request.request_id, request.snapshot_id, partial(request.backup, backups), job)
        return _result(outcome, _warnings(request, table, outcome, undos, replayed))

    if not request.async_:
        return run(call)
    # With an idempotency key, a repeated request gets the same job.
    return AcceptedResult.of(background.start("UNDO", table, UndoProgress(), call, lambda job: job.respond(run(job))))


def _warnings(
    request: Undo, table: Table, outcome: UndoOutcome, undos: Undos, replayed: ReplayedRows
) -> list[str] | None:
    """About replayed rows that the UNDO takes away."""
    if outcome.counts.operation != "REPLAY":
        return None
    made = {batch.snapshot_id for batch in undos.notes.by_request(table.uuid, request.request_id)}
    if request.snapshot_id is not None:
        made &= {request.snapshot_id}
    return replayed.lost_by_undo(table, made, None if request.dry_run else "an UNDO of this request") or None


def _result(outcome: UndoOutcome, warnings: list[str] | None) -> UndoResult | UndoDryRun:
    counts = outcome.counts
    undone: dict[str, Any] = {
        "undone_operation": counts.operation,
        "records_removed": counts.removed,
        "records_restored": counts.restored,
        "files_affected": counts.files,
        "warnings": warnings,
    }
    metadata = Metadata(snapshot_id=outcome.commit.snapshot_id)
    if outcome.samples is not None:
        return UndoDryRun(plan=UndoPlan(**undone, sample=sampled(outcome.samples)), metadata=metadata)
    return UndoResult(**undone, backup=outcome.backup, metadata=metadata)
