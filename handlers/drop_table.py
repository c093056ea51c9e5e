"""DROP_TABLE: drop a table, which can be restored for a while unless its files are purged."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from service.catalog.tables import Table
from service.dynamic.definitions import Definitions
from service.errors import InvalidRequest, TableNotFound
from service.model.call import Call
from service.model.dynamic.definition import is_dynamic_table
from service.model.identity.principal import Role
from service.model.times import utc_or_none
from service.operations.examples import create_table, response
from service.operations.operation import ChangeRequest, Example, Result, omit_when_null, operation
from service.tables.life import TableLifecycle, check_purge

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "scratch"}
GIVEN = (create_table(ADDRESS, {"id": "long"}),)
EXAMPLES = (
    Example(
        "Drop a table",
        {"operation": "DROP_TABLE", **ADDRESS},
        response(
            snapshot=False,
            table_dropped=True,
            table_existed=True,
            purged=False,
            table_id="<any>",
            expires_at="<any>",
        ),
        GIVEN,
    ),
    Example(
        "Drop it and delete its files",
        {"operation": "DROP_TABLE", **ADDRESS, "purge": True, "confirm": True},
        response(snapshot=False, table_dropped=True, table_existed=True, purged=True, table_id="<any>"),
        GIVEN,
    ),
    Example(
        "Drop it only if it exists",
        {"operation": "DROP_TABLE", **ADDRESS, "table": "never_was", "if_exists": True},
        response(snapshot=False, table_dropped=False, table_existed=False, purged=False),
    ),
)


class DropTable(ChangeRequest):
    operation: Literal["DROP_TABLE"]
    if_exists: bool = Field(default=False, description="do nothing if the table does not exist")
    purge: bool = Field(default=False, description="delete its files at once; needs confirm: true")
    confirm: bool = Field(
        default=False, description="needed with purge, which cannot be undone, and for a table that dynamic tables read"
    )


class DropTableResult(Result):
    table_dropped: bool = Field(description="whether this request dropped it")
    table_existed: bool = Field(description="whether it existed before")
    purged: bool = Field(description="whether its files were deleted; with `purge`, maintenance soon deletes the rest")
    table_id: str | None = omit_when_null("its id, which distinguishes tables of the same name")
    expires_at: datetime | None = omit_when_null("until when RESTORE_TABLE can restore it")
    quarantine_table: str | None = omit_when_null("the table with its rejected rows, which was dropped with it")


def _role(request: DropTable) -> Role:
    """`writer`, or with `purge` `admin`"""
    return "admin" if request.purge else "writer"


@operation(
    DropTable,
    DropTableResult,
    pool="tables",
    examples=EXAMPLES,
    needs=_role,
)
def drop_table(request: DropTable, call: Call, life: TableLifecycle, definitions: Definitions) -> DropTableResult:
    """Drop a table, which RESTORE_TABLE can restore unless `purge` deletes its files for good."""

    def check(table: Table) -> None:
        if is_dynamic_table(table.properties):
            raise InvalidRequest(
                f"table {table.name.table!r} is a dynamic table; drop it with DROP_DYNAMIC_TABLE", field="table"
            )
        if request.purge:
            definitions.check_not_read(table, "drop these first, with DROP_DYNAMIC_TABLE", call.principal)
        elif not request.confirm:
            definitions.check_not_read(
                table,
                "drop these first, with DROP_DYNAMIC_TABLE, or send confirm: true: then they are not refreshed until "
                "RESTORE_TABLE restores it",
                call.principal,
            )

    check_purge(purge=request.purge, confirm=request.confirm)
    try:
        dropped = life.drop(request.table_name, call, purge=request.purge, check=check)
    except TableNotFound:
        if not request.if_exists:
            raise
        return DropTableResult(table_dropped=False, table_existed=False, purged=False)
    return DropTableResult(
        table_dropped=True,
        table_existed=True,
        purged=dropped.purged,
        table_id=dropped.table_id,
        expires_at=utc_or_none(dropped.restorable_until_ms),
        quarantine_table=dropped.quarantine.table if dropped.quarantine else None,
    )
