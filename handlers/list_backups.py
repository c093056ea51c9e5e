"""LIST_BACKUPS: what states of a table are kept, from metadata alone."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.commits.backups import Backup, backups_of, figures
from service.operations.examples import response
from service.operations.operation import Confirmable, Example, Metadata, Result, TableRequest, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "prices"}
GIVEN: tuple[dict[str, Any], ...] = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"item": {"type": "string"}}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"item": "tea"}, {"item": "rice"}]},
    {"operation": "DELETE", **ADDRESS, "filter": {"item": "tea"}, "create_backup": True},
)
EXAMPLES = (
    Example(
        "List a table's backups",
        {"operation": "LIST_BACKUPS", **ADDRESS},
        response(
            backups=[
                {
                    "name": "<any>",
                    "snapshot_id": "<any>",
                    "created_at": "<any>",
                    "expires_at": "<any>",
                    "operation": "DELETE",
                    "records": 2,
                    "files": 1,
                    "bytes": "<any>",
                }
            ]
        ),
        given=GIVEN,
    ),
)


class ListBackups(Confirmable, TableRequest):
    operation: Literal["LIST_BACKUPS"]


class KeptBackup(BaseModel):
    name: str = Field(description="what RESTORE_BACKUP and DELETE_BACKUP take; an Iceberg tag of the table")
    snapshot_id: int = Field(description="the snapshot it keeps, which QUERY's `as_of` reads")
    created_at: datetime = Field(description="when the change was made whose state before it is")
    expires_at: datetime | None = Field(
        description="until then it is kept; null where it stays until it is deleted, as another program may have it"
    )
    operation: str = Field(description="before which operation it was made")
    records: int = Field(description="rows it holds; where a program left delete files, deleted ones too")
    files: int = Field(description="its data files")
    bytes: int = Field(description="their size")


class ListBackupsResult(Result):
    backups: list[KeptBackup] = Field(description="newest first")


@operation(ListBackups, ListBackupsResult, pool="metadata", examples=EXAMPLES)
def list_backups(request: ListBackups, catalog: Catalog) -> ListBackupsResult:
    """List the backups of a table: what each holds, before what it was made, how long it is kept."""
    table = catalog.load(request.table_name)
    return ListBackupsResult(
        backups=[_kept(table, backup) for backup in backups_of(table)],
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _kept(table: Table, backup: Backup) -> KeptBackup:
    held = figures(table, backup)
    return KeptBackup(
        name=backup.name,
        snapshot_id=backup.snapshot_id,
        created_at=backup.made_at,
        expires_at=backup.expires_at,
        operation=backup.operation,
        records=held.records,
        files=held.files,
        bytes=held.bytes,
    )
