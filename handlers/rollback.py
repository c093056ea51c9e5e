"""ROLLBACK: restore a table's rows from an earlier snapshot."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.commits.backups import Backups
from service.commits.commit import Commits
from service.edits.rollback import Rollbacks, RollbackTarget
from service.model.as_of import AS_OF, AsOf
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.operations.edit_requests import (
    BackedUpRequest,
    RestorePlan,
    RestoreResult,
    restore_fields,
    restore_plan,
)
from service.operations.examples import create_table, planned, response, write
from service.operations.operation import (
    DryRunResult,
    Example,
    Metadata,
    PreviewableRequest,
    ReturnedId,
    SentId,
    omit_when_null,
    operation,
)

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "cellar"}
GIVEN: tuple[dict[str, Any], ...] = (
    create_table(ADDRESS, {"name": "string"}),
    write(ADDRESS, {"name": "Rioja"}, {"name": "Barolo"}, {"name": "Fendant"}),
    {"operation": "DELETE", **ADDRESS, "filter": {"name": {"ne": "Fendant"}}},
    write(ADDRESS, {"name": "Merlot"}),
)
_FIGURES: dict[str, Any] = {
    "from_snapshot": "<any>",
    "to_snapshot": "<any>",
    "changes_undone": 2,
    "records_before": 2,
    "records_after": 3,
    "files_removed": 2,
    "files_added": 1,
}
_THEN = "4358829213746520102"
EXAMPLES = (
    Example(
        "Go back to the state after a commit",
        {"operation": "ROLLBACK", **ADDRESS, "as_of": _THEN},
        response(rolled_back=True, **_FIGURES),
        given=GIVEN,
        taken={"as_of": (2, "metadata.snapshot_id")},
    ),
    Example(
        "See what a rollback would do, unless rows have changed",
        {
            "operation": "ROLLBACK",
            **ADDRESS,
            "as_of": _THEN,
            "expected_snapshot_id": "1886043621045928221",
            "dry_run": True,
        },
        planned(**_FIGURES),
        given=GIVEN,
        taken={"as_of": (2, "metadata.snapshot_id"), "expected_snapshot_id": (4, "metadata.snapshot_id")},
    ),
)


class Rollback(BackedUpRequest, PreviewableRequest):
    operation: Literal["ROLLBACK"]
    as_of: AsOf = Field(description=f"the state to return to: {AS_OF}")
    expected_snapshot_id: SentId | None = Field(
        default=None,
        description="the snapshot that you expect to be current: if rows have changed since, the request fails with "
        "PLAN_STALE; default: later changes are rolled back too",
    )


class RollbackFigures(BaseModel):
    from_snapshot: ReturnedId | None = omit_when_null("the snapshot before the rollback, which `as_of` can still read")
    to_snapshot: ReturnedId = Field(description="the snapshot that was restored")
    changes_undone: int | None = omit_when_null(
        "commits between the two that changed rows, not counting compactions; absent if unknown: snapshots between "
        "them have expired, or another engine rolled back past the restored one"
    )


class RolledBack(BaseModel):
    rolled_back: bool = Field(description="whether the table was changed")


class RollbackResult(RestoreResult, RollbackFigures, RolledBack):
    """The response to a ROLLBACK."""


class RollbackPlan(RestorePlan, RollbackFigures):
    """What a ROLLBACK would do."""


class RollbackDryRun(DryRunResult):
    plan: RollbackPlan = Field(description="what would happen")


@operation(Rollback, RollbackResult, pool="edits", examples=EXAMPLES, also=(RollbackDryRun,))
def rollback(
    request: Rollback, call: Call, commits: Commits, backups: Backups, rollbacks: Rollbacks
) -> RollbackResult | RollbackDryRun:
    """Replace a table's rows with those of an earlier snapshot, in a new commit."""
    target = RollbackTarget(request.as_of, request.expected_snapshot_id)
    table = commits.table(request.table_name, call)
    refuse_dynamic_table(table.properties, table.name.table, "ROLLBACK")
    tag = request.backup(backups, table)
    outcome = rollbacks.run(table, target, tag, call, dry_run=request.dry_run)
    figures: dict[str, Any] = {
        "from_snapshot": outcome.from_id,
        "to_snapshot": outcome.to_id,
        "changes_undone": outcome.changes,
        "warnings": list(outcome.warnings) or None,
    }
    if request.dry_run:
        plan = RollbackPlan(**figures, **restore_plan(outcome.restored))
        return RollbackDryRun(plan=plan, metadata=Metadata(snapshot_id=outcome.restored.snapshot_id))
    return RollbackResult(rolled_back=outcome.restored.restored, **figures, **restore_fields(outcome.restored))
