"""DELETE_BACKUP: a state of a table that need not be kept any longer."""

from typing import Any, Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Confirmable, Example, Result, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "drafts"}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"text": {"type": "string"}}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"text": "a"}, {"text": "b"}]},
    {"operation": "DELETE", **ADDRESS, "filter": {"text": "a"}, "create_backup": True},
)
EXAMPLES = (
    Example(
        "Let go of a backup",
        {"operation": "DELETE_BACKUP", **ADDRESS, "name": "backup-20240501T101112045Z-delete-1f0c9a7e"},
        response(snapshot=False, backup_deleted=True),
        given=GIVEN,
        taken={"name": (3, "backup")},
    ),
)


class DeleteBackup(Confirmable, ChangeRequest):
    operation: Literal["DELETE_BACKUP"]
    name: str = Field(description="the backup's name, as LIST_BACKUPS has it")


class DeleteBackupResult(Result):
    backup_deleted: bool = Field(description="true: it cannot be restored any more")


@operation(DeleteBackup, DeleteBackupResult, pool="tables", examples=EXAMPLES)
def delete_backup(request: DeleteBackup, call: Call, catalog: Catalog, backups: Backups) -> DeleteBackupResult:
    """Let go of a backup; the files that nothing else needs are deleted with the table's next old snapshots."""
    backups.delete(catalog.load(request.table_name), request.name, call)
    return DeleteBackupResult(backup_deleted=True)
