"""RESTORE_BACKUP: restore a table's rows from a backup."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.edits.restore import RestoreOutcome, Restores
from service.model.call import Call
from service.operations.edit_requests import BackedUpRequest
from service.operations.examples import create_table, response, write
from service.operations.operation import (
    Confirmable,
    Example,
    Metadata,
    PreviewableRequest,
    Result,
    omit_when_null,
    operation,
)

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
            reason=None,
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
        response(
            restored=False,
            reason="this was a dry run",
            records_before=1,
            records_after=3,
            files_removed=1,
            files_added=1,
        ),
        given=GIVEN,
        taken={"name": (3, "backup")},
    ),
)


class RestoreBackup(Confirmable, BackedUpRequest, PreviewableRequest):
    operation: Literal["RESTORE_BACKUP"]
    name: str = Field(description="the backup's name, as in LIST_BACKUPS")


class RestoreBackupResult(Result):
    restored: bool = Field(description="whether the table was changed")
    reason: str | None = Field(description="why not, if it was not changed")
    records_before: int = Field(description="rows in the table before")
    records_after: int = Field(description="rows in the backup, and in the table afterwards")
    files_removed: int = Field(description="data files removed, with rows that the backup lacks")
    files_added: int = Field(description="new data files with rows that the table lacked; in a dry run, their sources")
    backup: str | None = omit_when_null("the name of the backup of the previous state, if one was made")


@operation(RestoreBackup, RestoreBackupResult, pool="edits", examples=EXAMPLES)
def restore_backup(
    request: RestoreBackup, call: Call, catalog: Catalog, backups: Backups, restores: Restores
) -> RestoreBackupResult:
    """Replace a table's rows with those of a backup, in a new commit."""
    table = catalog.load(request.table_name)
    tag = request.backup(backups, table)
    if request.dry_run:
        return _result(restores.preview(table, request.name))
    return _result(restores.run(table, request.name, tag, call))


def _result(outcome: RestoreOutcome) -> RestoreBackupResult:
    return RestoreBackupResult(
        restored=outcome.restored,
        reason=outcome.reason,
        records_before=outcome.records_before,
        records_after=outcome.records_after,
        files_removed=outcome.files_removed,
        files_added=outcome.files_added,
        backup=outcome.backup,
        metadata=Metadata(snapshot_id=outcome.snapshot_id),
    )
