"""DROP_DYNAMIC_TABLE: drop a dynamic table, and with `cascade` those that read it."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from service.catalog.tables import Table
from service.commits.commit import Commits
from service.dynamic.definitions import Definitions
from service.errors import Forbidden, TableNotFound
from service.ledger.dynamic_tables import DynamicTable
from service.model.call import Call
from service.model.identity.principal import Role
from service.model.names import TableName
from service.model.times import utc_or_none
from service.operations.dynamic.examples import CREATED, DETAILS
from service.operations.dynamic.requests import DynamicTableChange
from service.operations.dynamic.results import TableAddress
from service.operations.examples import response
from service.operations.operation import Example, Result, omit_when_null, operation
from service.tables.life import DroppedTable, TableLifecycle, check_purge

EXAMPLES = (
    Example(
        "Drop a dynamic table",
        {"operation": "DROP_DYNAMIC_TABLE", **DETAILS},
        response(
            snapshot=False,
            table_dropped=True,
            table_existed=True,
            purged=False,
            dropped=[],
            table_id="<any>",
            expires_at="<any>",
        ),
        given=CREATED,
    ),
)
_WAY_OUT = "send cascade: true to drop these too"


class DropDynamicTable(DynamicTableChange):
    operation: Literal["DROP_DYNAMIC_TABLE"]
    cascade: bool = Field(default=False, description="also drop all dynamic tables that depend on it")
    if_exists: bool = Field(default=False, description="do nothing if the table does not exist")
    purge: bool = Field(default=False, description="delete its files at once; needs confirm: true")
    confirm: bool = Field(default=False, description="needed with purge, which cannot be undone")


class DropDynamicTableResult(Result):
    table_dropped: bool = Field(description="whether this request dropped it")
    table_existed: bool = Field(description="whether it existed before")
    purged: bool = Field(description="whether its files were deleted")
    dropped: list[TableAddress] = Field(
        description="with `cascade`: the dynamic tables that depended on it and were dropped, in that order"
    )
    table_id: str | None = omit_when_null("its id, which distinguishes tables of the same name")
    expires_at: datetime | None = omit_when_null("until when RESTORE_TABLE can restore it, with its definition")


def _role(request: DropDynamicTable) -> Role:
    """`writer`, or with `purge` `admin`; with `cascade` also in the namespaces of the other tables"""
    return "admin" if request.purge else "writer"


@operation(DropDynamicTable, DropDynamicTableResult, pool="tables", examples=EXAMPLES, needs=_role)
def drop_dynamic_table(
    request: DropDynamicTable, call: Call, commits: Commits, definitions: Definitions, life: TableLifecycle
) -> DropDynamicTableResult:
    """Drop a dynamic table, which RESTORE_TABLE can restore. It is refused while other dynamic tables read it."""
    check_purge(purge=request.purge, confirm=request.confirm)
    try:
        dependents = [] if commits.earlier_batch(call) else _dependents(request, call, definitions)
        for one in dependents:
            _drop(one.name, call.without_key(), request, definitions, life)
        made = _drop(request.table_name, call, request, definitions, life)
    except TableNotFound:
        if not request.if_exists:
            raise
        return DropDynamicTableResult(table_dropped=False, table_existed=False, purged=False, dropped=[])
    return DropDynamicTableResult(
        table_dropped=True,
        table_existed=True,
        purged=made.purged,
        dropped=[TableAddress.of(one.name) for one in dependents],
        table_id=made.table_id,
        expires_at=utc_or_none(made.restorable_until_ms),
    )


def _dependents(request: DropDynamicTable, call: Call, definitions: Definitions) -> list[DynamicTable]:
    """The dynamic tables that depend on it, each before what it reads; Forbidden if one of them may not be dropped."""
    table, _ = definitions.load(request.table_name)
    if not request.cascade:
        definitions.check_not_read(table, _WAY_OUT, call.principal)
    below = [one for one in definitions.graph().downstream([table.uuid]) if one.uuid != table.uuid]
    role = _role(request)
    if not all(call.principal.may(role, one.name.tenant, one.name.namespace) for one in below):
        raise Forbidden(
            f"dynamic tables in namespaces in which you do not have the role {role} depend on it; ask somebody who has "
            "it to drop these first",
            field="cascade",
        )
    return below[::-1]


def _drop(
    name: TableName, call: Call, request: DropDynamicTable, definitions: Definitions, life: TableLifecycle
) -> DroppedTable:
    def check(table: Table) -> None:
        definitions.of(table)
        definitions.check_not_read(table, _WAY_OUT, call.principal)

    return life.drop(name, call, purge=request.purge, check=check)
