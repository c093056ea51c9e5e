"""DROP_TABLE: a table out of sight for as long as it can be restored, and with `purge` off the disk."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.errors import ConfirmationRequired, TableNotFound
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Confirmable, Example, Result, omit_when_null, operation
from service.operations.schedule_results import moment
from service.tables.life import TableLife

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "scratch"}
CREATE = {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}}


def _answer(*, dropped: bool, purged: bool) -> dict[str, Any]:
    return response(
        snapshot=False,
        table_dropped=dropped,
        table_existed=dropped,
        purged=purged,
        **({"table_id": "<any>"} if dropped else {}),
        **({"restorable_until": "<any>"} if dropped and not purged else {}),
    )


EXAMPLES = (
    Example("Drop a table", {"operation": "DROP_TABLE", **ADDRESS}, _answer(dropped=True, purged=False), (CREATE,)),
    Example(
        "Drop it and delete its files",
        {"operation": "DROP_TABLE", **ADDRESS, "purge": True, "confirm": True},
        _answer(dropped=True, purged=True),
        (CREATE,),
    ),
    Example(
        "Drop it if it is there",
        {"operation": "DROP_TABLE", **ADDRESS, "table": "never_was", "if_exists": True},
        _answer(dropped=False, purged=False),
    ),
)


class DropTable(Confirmable, ChangeRequest):
    operation: Literal["DROP_TABLE"]
    if_exists: bool = Field(default=False, description="succeed where there is no such table")
    purge: bool = Field(default=False, description="delete its files at once; needs confirm: true")
    confirm: bool = Field(default=False, description="needed with purge, which cannot be undone")


class DropTableResult(Result):
    table_dropped: bool = Field(description="whether this request dropped it")
    table_existed: bool = Field(description="whether it was there")
    purged: bool = Field(
        description="whether its files were deleted; with purge: true and false here, upkeep deletes them shortly"
    )
    table_id: str | None = omit_when_null("what tells it from others that had its name")
    restorable_until: datetime | None = omit_when_null("until when RESTORE_TABLE brings it back")


@operation(DropTable, DropTableResult, pool="tables", examples=EXAMPLES)
def drop_table(request: DropTable, call: Call, life: TableLife) -> DropTableResult:
    """Drop a table, which RESTORE_TABLE brings back; with `purge` its files are deleted for good."""
    if request.purge and not request.confirm:
        raise ConfirmationRequired(
            "purge deletes every file of the table for good; send confirm: true to do it, "
            "or leave purge out, so that RESTORE_TABLE can bring it back",
            field="confirm",
        )
    try:
        dropped = life.drop(request.table_name, call, purge=request.purge)
    except TableNotFound:
        if not request.if_exists:
            raise
        return DropTableResult(table_dropped=False, table_existed=False, purged=False)
    return DropTableResult(
        table_dropped=True,
        table_existed=True,
        purged=dropped.purged,
        table_id=dropped.table_id,
        restorable_until=moment(dropped.restorable_until_ms),
    )
