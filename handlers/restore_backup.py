"""RESTORE_BACKUP: the rows a backup holds, back in the table."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.edits.restore import RestoreOutcome, Restores
from service.model.call import Call
from service.operations.edit_requests import BackedUpRequest
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Metadata, Result, omit_when_null, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "wines"}
NAME = "backup-20240501T101112045Z-delete-1f0c9a7e"
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"name": {"type": "string"}}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"name": "Rioja"}, {"name": "Barolo"}, {"name": "Fendant"}]},
    {"operation": "DELETE", **ADDRESS, "filter": {"name": {"ne": "Fendant"}}, "create_backup": True},
)
EXAMPLES = (
    Example(
        "Restore a backup, and keep what the table held until now",
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
        "See what restoring it would do",
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


class RestoreBackup(Confirmable, BackedUpRequest):
    operation: Literal["RESTORE_BACKUP"]
    name: str = Field(description="the backup's name, as LIST_BACKUPS has it")
    dry_run: bool = Field(default=False, description="only say what would be done; nothing is changed")


class RestoreBackupResult(Result):
    restored: bool = Field(description="whether the table was changed")
    reason: str | None = Field(description="why not, where it was not")
    records_before: int = Field(description="rows the table had")
    records_after: int = Field(description="rows the backup holds: those that the table has then")
    files_removed: int = Field(description="data files with rows that the backup lacks, which leave the table")
    files_added: int = Field(
        description="new data files with the rows that the table lacked; of a dry run, the backup's files that they "
        "are read from"
    )
    backup: str | None = omit_when_null("the backup of the state before, where one was made")


@operation(RestoreBackup, RestoreBackupResult, pool="edits", examples=EXAMPLES)
def restore_backup(
    request: RestoreBackup, call: Call, catalog: Catalog, backups: Backups, restores: Restores
) -> RestoreBackupResult:
    """Make a table hold exactly the rows that a backup holds, as one more change of it."""
    table = catalog.load(request.table_name)
    tag = request.backup(backups, table)
    if request.dry_run:
        return _result(restores.preview(table, request.name))
    return _result(restores.run(table, request.name, tag, call))


def _result(made: RestoreOutcome) -> RestoreBackupResult:
    return RestoreBackupResult(
        restored=made.restored,
        reason=made.reason,
        records_before=made.records_before,
        records_after=made.records_after,
        files_removed=made.files_removed,
        files_added=made.files_added,
        backup=made.backup,
        metadata=Metadata(snapshot_id=made.snapshot_id),
    )
