"""LIST_BACKUPS: list the backups of a table, from metadata alone."""

from dataclasses import asdict
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Table
from service.commits.backups import Backup, backups_of, figures
from service.operations.examples import create_table, response, write
from service.operations.operation import (
    Example,
    Metadata,
    Result,
    ReturnedId,
    TableRequest,
    omit_when_null,
    operation,
)
from service.operations.paging import Page, Paged, limit_field

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "prices"}
LISTED = {
    "name": "<any>",
    "snapshot_id": "<any>",
    "created_at": "<any>",
    "expires_at": "<any>",
    "operation": "DELETE",
    "records": 2,
    "files": 1,
    "bytes": "<any>",
}
EXAMPLES = (
    Example(
        "List a table's backups",
        {"operation": "LIST_BACKUPS", **ADDRESS},
        response(backups=[LISTED]),
        given=(
            create_table(ADDRESS, {"item": "string"}),
            write(ADDRESS, {"item": "tea"}, {"item": "rice"}),
            {"operation": "DELETE", **ADDRESS, "filter": {"item": "tea"}, "create_backup": True},
        ),
    ),
)


class ListBackups(Paged, TableRequest):
    operation: Literal["LIST_BACKUPS"]
    limit: int = limit_field(1000, 10_000)


class KeptBackup(BaseModel):
    name: str = Field(description="its name, for RESTORE_BACKUP and DELETE_BACKUP; an Iceberg tag of the table")
    snapshot_id: ReturnedId = Field(description="the snapshot that it keeps, which QUERY's `as_of` can read")
    created_at: datetime = Field(description="when it was made")
    expires_at: datetime | None = omit_when_null("when it expires; absent if it is kept until it is deleted")
    operation: str = Field(description="the operation that it was made for")
    records: int = Field(
        description="its rows; includes rows deleted by delete files that may apply to several data files"
    )
    files: int = Field(description="its data files")
    bytes: int = Field(description="the size of these files")


class ListBackupsResult(Page, Result):
    backups: list[KeptBackup] = Field(description="newest first")


@operation(ListBackups, ListBackupsResult, pool="metadata", examples=EXAMPLES)
def list_backups(request: ListBackups, catalog: Catalog) -> ListBackupsResult:
    """List the backups of a table: what each holds, which operation it was made for, and when it expires."""
    table = catalog.load(request.table_name)
    after = request.place(str, str)
    found = (b for b in backups_of(table) if after is None or _place(b) < after)
    page, next_cursor = request.page(found, _place)
    return ListBackupsResult(
        backups=[_kept(table, backup) for backup in page],
        next_cursor=next_cursor,
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _place(backup: Backup) -> tuple[str, str]:
    return backup.made_at.isoformat(timespec="milliseconds"), backup.name


def _kept(table: Table, backup: Backup) -> KeptBackup:
    return KeptBackup(
        name=backup.name,
        snapshot_id=backup.snapshot_id,
        created_at=backup.made_at,
        expires_at=backup.expires_at,
        operation=backup.operation,
        **asdict(figures(table, backup)),
    )
