"""RENAME_TABLE: another name for a table, in its namespace."""

from typing import Literal

from pydantic import Field, field_validator

from service.model.call import Call
from service.model.names import check_name
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Confirmable, Example, Result, operation
from service.tables.life import TableLife

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders_new"}
EXAMPLES = (
    Example(
        "Rename a table",
        {"operation": "RENAME_TABLE", **ADDRESS, "new_name": "orders_2024"},
        response(snapshot=False, table_renamed=True, old_name="orders_new", new_name="orders_2024"),
        given=({"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}},),
    ),
)


class RenameTable(Confirmable, ChangeRequest):
    operation: Literal["RENAME_TABLE"]
    new_name: str = Field(description="the name it is to have, in the same namespace")

    @field_validator("new_name")
    @classmethod
    def _is_a_tables_name(cls, value: str) -> str:
        return check_name(value, "new_name")


class RenameTableResult(Result):
    table_renamed: bool = Field(description="true")
    old_name: str = Field(description="what it was called")
    new_name: str = Field(description="what it is called now")


@operation(RenameTable, RenameTableResult, pool="tables", examples=EXAMPLES)
def rename_table(request: RenameTable, call: Call, life: TableLife) -> RenameTableResult:
    """Rename a table: its rows, history, backups, policies and schedules go with it."""
    life.rename(request.table_name, request.new_name, call)
    return RenameTableResult(table_renamed=True, old_name=request.table, new_name=request.new_name)
