"""DROP_TABLE: a table out of the catalog, and with `purge` off the disk."""

from typing import Any, Literal

from pydantic import Field

from service.context import Context
from service.errors import ConfirmationRequired, TableNotFound
from service.operation import ChangeRequest, Example, Result, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "scratch"}
CREATE = {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}}


def _answer(*, dropped: bool, purged: bool) -> dict[str, Any]:
    return {
        "success": True,
        "table_dropped": dropped,
        "table_existed": dropped,
        "purged": purged,
        "metadata": {"request_id": "<any>", "execution_time_ms": "<any>"},
    }


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


class DropTable(ChangeRequest):
    operation: Literal["DROP_TABLE"]
    if_exists: bool = Field(default=False, description="succeed where there is no such table")
    purge: bool = Field(default=False, description="delete its files too; needs confirm: true")
    confirm: bool = Field(default=False, description="needed with purge, which cannot be undone")


class DropTableResult(Result):
    table_dropped: bool = Field(description="whether this request dropped it")
    table_existed: bool = Field(description="whether it was there")
    purged: bool = Field(description="whether its files were deleted")


@operation(DropTable, DropTableResult, pool="edits", examples=EXAMPLES)
def drop_table(request: DropTable, context: Context) -> DropTableResult:
    """Drop a table; with `purge` its files are deleted for good."""
    if request.purge and not request.confirm:
        raise ConfirmationRequired(
            "purge deletes every file of the table for good; send confirm: true to do it, "
            "or leave purge out to keep the files",
            field="confirm",
        )
    try:
        context.commits.drop(request.table_name, context.ask, purge=request.purge)
    except TableNotFound:
        if not request.if_exists:
            raise
        return DropTableResult(table_dropped=False, table_existed=False, purged=False)
    return DropTableResult(table_dropped=True, table_existed=True, purged=request.purge)
