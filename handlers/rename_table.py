"""RENAME_TABLE: rename a table within its namespace."""

from typing import Literal

from pydantic import Field

from service.model.call import Call
from service.operations.examples import create_table, response
from service.operations.operation import ChangeRequest, Example, Result, omit_when_null, operation
from service.tables.life import TableLifecycle

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders_new"}
EXAMPLES = (
    Example(
        "Rename a table",
        {"operation": "RENAME_TABLE", **ADDRESS, "new_name": "orders_2024"},
        response(snapshot=False, table_renamed=True, old_name="orders_new", new_name="orders_2024"),
        given=(create_table(ADDRESS, {"id": "long"}),),
    ),
)


class RenameTable(ChangeRequest):
    operation: Literal["RENAME_TABLE"]
    new_name: str = Field(description="the new name, in the same namespace")


class RenameTableResult(Result):
    table_renamed: bool = Field(description="true")
    old_name: str = Field(description="the old name")
    new_name: str = Field(description="the new name")
    quarantine_table: str | None = omit_when_null("the table with its rejected rows, which was renamed with it")


@operation(RenameTable, RenameTableResult, pool="tables", examples=EXAMPLES)
def rename_table(request: RenameTable, call: Call, life: TableLifecycle) -> RenameTableResult:
    """Rename a table, which keeps its rows, history, backups, policies and schedules, and its rejected rows."""
    renamed = life.rename(request.table_name, request.new_name, call)
    return RenameTableResult(
        table_renamed=True,
        old_name=request.table,
        new_name=request.new_name,
        quarantine_table=renamed.quarantine.table if renamed.quarantine else None,
    )
