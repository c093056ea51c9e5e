"""RESTORE_TABLE: restore a dropped table."""

from typing import Literal

from pydantic import Field

from service.model.call import Call
from service.operations.examples import create_table, response, write
from service.operations.operation import ChangeRequest, Example, Result, omit_when_null, operation
from service.tables.life import TableLifecycle

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "dropped_by_mistake"}
CREATE = create_table(ADDRESS, {"id": "long"})
GIVEN = (CREATE, write(ADDRESS, {"id": 1}), {"operation": "DROP_TABLE", **ADDRESS})
EXAMPLES = (
    Example(
        "Restore a dropped table",
        {"operation": "RESTORE_TABLE", **ADDRESS},
        response(snapshot=False, table_restored=True, table="dropped_by_mistake"),
        given=GIVEN,
    ),
    Example(
        "Restore it under another name, because a new table has its name",
        {"operation": "RESTORE_TABLE", **ADDRESS, "new_name": "as_it_was"},
        response(snapshot=False, table_restored=True, table="as_it_was"),
        given=(*GIVEN, CREATE),
    ),
)


class RestoreTable(ChangeRequest):
    operation: Literal["RESTORE_TABLE"]
    table: str = Field(description="the name that the table had when it was dropped")
    new_name: str | None = Field(default=None, description="a new name for it; default: the old one")
    table_id: str | None = Field(
        default=None,
        max_length=40,
        description="which table, if several of this name were dropped: its id from DROP_TABLE or LIST_TABLES; "
        "default: the last",
    )


class RestoreTableResult(Result):
    table_restored: bool = Field(description="true")
    table: str = Field(description="its name now")
    quarantine_table: str | None = omit_when_null("the table with its rejected rows, which was restored with it")


@operation(RestoreTable, RestoreTableResult, pool="tables", examples=EXAMPLES)
def restore_table(request: RestoreTable, call: Call, life: TableLifecycle) -> RestoreTableResult:
    """Restore a table that was dropped without `purge`, with its rows, history, backups and policies."""
    restored = life.restore(request.table_name, request.new_name, request.table_id, call)
    return RestoreTableResult(
        table_restored=True,
        table=restored.name.table,
        quarantine_table=restored.quarantine.table if restored.quarantine else None,
    )
