"""RESTORE_TABLE: a dropped table, back."""

from typing import Literal

from pydantic import Field, field_validator

from service.model.call import Call
from service.model.names import check_name
from service.operations.examples import response
from service.operations.operation import ChangeRequest, Confirmable, Example, Result, operation
from service.tables.life import TableLife

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "dropped_by_mistake"}
GIVEN = (
    {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}},
    {"operation": "WRITE", **ADDRESS, "records": [{"id": 1}]},
    {"operation": "DROP_TABLE", **ADDRESS},
)
EXAMPLES = (
    Example(
        "Bring back a table that was dropped",
        {"operation": "RESTORE_TABLE", **ADDRESS},
        response(snapshot=False, table_restored=True, table="dropped_by_mistake"),
        given=GIVEN,
    ),
    Example(
        "Bring it back beside a new table that has its name by now",
        {"operation": "RESTORE_TABLE", **ADDRESS, "new_name": "as_it_was"},
        response(snapshot=False, table_restored=True, table="as_it_was"),
        given=(*GIVEN, GIVEN[0]),
    ),
)


class RestoreTable(Confirmable, ChangeRequest):
    operation: Literal["RESTORE_TABLE"]
    table: str = Field(description="the name that it had when it was dropped")
    new_name: str | None = Field(default=None, description="the name it is to have; default: the one it had")
    table_id: str | None = Field(
        default=None,
        max_length=40,
        description="which one, where several of this name were dropped; default: the last. DROP_TABLE and LIST_TABLES "
        "say it",
    )

    @field_validator("new_name")
    @classmethod
    def _is_a_tables_name(cls, value: str | None) -> str | None:
        return None if value is None else check_name(value, "new_name")


class RestoreTableResult(Result):
    table_restored: bool = Field(description="true")
    table: str = Field(description="what it is called now")


@operation(RestoreTable, RestoreTableResult, pool="tables", examples=EXAMPLES)
def restore_table(request: RestoreTable, call: Call, life: TableLife) -> RestoreTableResult:
    """Bring back a table that was dropped without `purge`, as it was: rows, history, backups, policies."""
    name = life.restore(request.table_name, request.new_name, request.table_id, call)
    return RestoreTableResult(table_restored=True, table=name.table)
