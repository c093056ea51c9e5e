"""RESTORE_BACKUP: restore a table's rows from a backup."""

from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.commits.holds import SnapshotHolds
from service.edits.replayed import ReplayedRows
from service.edits.restore import Restores, RestoreTarget, of_backup, of_state
from service.errors import BackupNotFound, InvalidRequest, SnapshotNotFound
from service.model.as_of import AS_OF, AsOf
from service.model.call import Call
from service.model.dynamic.definition import refuse_dynamic_table
from service.operations.edit_requests import BackedUpRequest, RestorePlan, RestoreResult, restore_fields, restore_plan
from service.operations.examples import create_table, planned, response, write
from service.operations.operation import DryRunResult, Example, Metadata, PreviewableRequest, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "wines"}
NAME = "backup-20240501T101112045Z-delete-1f0c9a7e"
GIVEN: tuple[dict[str, Any], ...] = (
    create_table(ADDRESS, {"name": "string"}),
    write(ADDRESS, {"name": "Rioja"}, {"name": "Barolo"}, {"name": "Fendant"}),
    {"operation": "DELETE", **ADDRESS, "filter": {"name": {"ne": "Fendant"}}, "create_backup": True},
)
EXAMPLES = (
    Example(
        "Restore a backup, and back up the current state",
        {"operation": "RESTORE_BACKUP", **ADDRESS, "name": NAME, "create_backup": True, "backup_retention_hours": 24},
        response(
            restored=True,
            records_before=1,
            records_after=3,
            files_removed=1,
            files_added=1,
            backup="<any>",
        ),
        given=GIVEN,
        taken={"name": (3, "backup")},
    ),
    Example(
        "See what a restore would do",
        {"operation": "RESTORE_BACKUP", **ADDRESS, "name": NAME, "dry_run": True},
        planned(
            records_before=1,
            records_after=3,
            files_removed=1,
            files_added=1,
        ),
        given=GIVEN,
        taken={"name": (3, "backup")},
    ),
)


class RestoreBackup(BackedUpRequest, PreviewableRequest):
    operation: Literal["RESTORE_BACKUP"]
    name: str | None = Field(
        default=None, description="the backup's name, as in LIST_BACKUPS; required unless `as_of` is sent"
    )
    as_of: AsOf | None = Field(default=None, description=f"instead of `name`, the state to restore: {AS_OF}")


class BackupRestored(BaseModel):
    restored: bool = Field(description="whether the table was changed")


class RestoreBackupResult(RestoreResult, BackupRestored):
    """The response to a RESTORE_BACKUP."""


class RestoreBackupDryRun(DryRunResult):
    plan: RestorePlan = Field(description="what would happen")


@operation(RestoreBackup, RestoreBackupResult, pool="edits", examples=EXAMPLES, also=(RestoreBackupDryRun,))
def restore_backup(
    request: RestoreBackup,
    call: Call,
    catalog: Catalog,
    backups: Backups,
    restores: Restores,
    holds: SnapshotHolds,
    replayed: ReplayedRows,
) -> RestoreBackupResult | RestoreBackupDryRun:
    """Replace a table's rows with those of a backup, in a new commit."""
    target = _target(request)
    table = catalog.load(request.table_name)
    refuse_dynamic_table(table.properties, table.name.table, "RESTORE_BACKUP")
    tag = request.backup(backups, table)
    # After an earlier attempt with the same key, the snapshot may have expired.
    with holds.reading(table.uuid, None if call.earlier else target.state(table)):
        if request.dry_run:
            outcome = restores.preview(table, target, call)
            warnings = replayed.lost_by_return(table, target.state(table), outcome.snapshot_id)
            plan = RestorePlan(**restore_plan(outcome), warnings=warnings or None)
            return RestoreBackupDryRun(plan=plan, metadata=Metadata(snapshot_id=outcome.snapshot_id))
        outcome = restores.run(table, target, tag, call)
    if outcome.made is None:
        return RestoreBackupResult(restored=False, **restore_fields(outcome))
    lost: list[str] = []
    with suppress(SnapshotNotFound, BackupNotFound):  # expired, after an earlier attempt with the same key
        lost = replayed.lost_by_return(table, target.state(table), outcome.made.parent_id)
    return RestoreBackupResult(restored=True, **restore_fields(outcome), warnings=lost or None)


def _target(request: RestoreBackup) -> RestoreTarget:
    if request.name is not None and request.as_of is None:
        return of_backup(request.name)
    if request.as_of is not None and request.name is None:
        return of_state(request.as_of)
    sent = "neither" if request.name is None else "both"
    raise InvalidRequest(f"send either name or as_of; the request has {sent}", field="name")
