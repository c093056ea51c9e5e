"""DELETE_BACKUP: delete a backup of a table."""

from typing import Literal

from pydantic import Field

from service.catalog.tables import Catalog
from service.commits.backups import Backups
from service.model.call import Call
from service.operations.examples import create_table, response, write
from service.operations.operation import ChangeRequest, Example, Result, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "drafts"}
EXAMPLES = (
    Example(
        "Delete a backup",
        {"operation": "DELETE_BACKUP", **ADDRESS, "name": "backup-20240501T101112045Z-delete-1f0c9a7e"},
        response(snapshot=False, backup_deleted=True),
        given=(
            create_table(ADDRESS, {"text": "string"}),
            write(ADDRESS, {"text": "a"}, {"text": "b"}),
            {"operation": "DELETE", **ADDRESS, "filter": {"text": "a"}, "create_backup": True},
        ),
        taken={"name": (3, "backup")},
    ),
)


class DeleteBackup(ChangeRequest):
    operation: Literal["DELETE_BACKUP"]
    name: str = Field(description="the backup's name, as in LIST_BACKUPS")


class DeleteBackupResult(Result):
    backup_deleted: bool = Field(description="true: it can no longer be restored")


@operation(DeleteBackup, DeleteBackupResult, pool="tables", examples=EXAMPLES, needs="admin")
def delete_backup(request: DeleteBackup, call: Call, catalog: Catalog, backups: Backups) -> DeleteBackupResult:
    """Delete a backup; files that only it needs are deleted when the table's old snapshots next expire."""
    backups.delete(catalog.load(request.table_name), request.name, call)
    return DeleteBackupResult(backup_deleted=True)
