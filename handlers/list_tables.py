"""LIST_TABLES: list a namespace's tables, and dropped ones that can be restored."""

from datetime import datetime
from itertools import islice
from typing import Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.model.times import utc_or_none
from service.operations.examples import create_table, response
from service.operations.operation import Example, Request, Result, omit_when_null, operation
from service.tables.life import TableLifecycle

ADDRESS = {"tenant_id": "acme", "namespace": "listed"}
PEOPLE = {**ADDRESS, "table": "people"}
GIVEN = (create_table(PEOPLE, {"id": "long"}), create_table({**ADDRESS, "table": "events"}, {"id": "long"}))
DROPPED = {"table": "people", "table_id": "<any>", "dropped_at": "<any>", "expires_at": "<any>"}
EXAMPLES = (
    Example(
        "List a namespace's tables",
        {"operation": "LIST_TABLES", **ADDRESS},
        response(snapshot=False, tables=["events", "people"], offline=["people"]),
        given=(*GIVEN, {"operation": "SET_ONLINE", **PEOPLE, "online": False}),
    ),
    Example(
        "List dropped tables that can be restored, too",
        {"operation": "LIST_TABLES", **ADDRESS, "include_dropped": True},
        response(snapshot=False, tables=["events"], offline=[], dropped=[DROPPED]),
        given=(*GIVEN, {"operation": "DROP_TABLE", **PEOPLE}),
    ),
)


_MOST_NAMESPACES = 20


class ListTables(Request):
    operation: Literal["LIST_TABLES"]
    table: str | None = Field(default=None, description="only this table, if it exists")
    include_dropped: bool = Field(default=False, description="also list dropped tables that can be restored")


class DroppedTable(BaseModel):
    """A table that RESTORE_TABLE can restore."""

    table: str = Field(description="the name it had")
    table_id: str = Field(description="its id, which distinguishes tables of the same name")
    dropped_at: datetime | None = omit_when_null("when it was dropped")
    expires_at: datetime | None = omit_when_null("when its files are deleted")


class ListTablesResult(Result):
    tables: list[str] = Field(description="their names, in order")
    offline: list[str] = Field(
        description="the tables that SET_ONLINE or the property `online` excluded from scheduled maintenance"
    )
    namespaces_with_tables: list[str] | None = omit_when_null(
        "if the namespace `default` has no tables: namespaces of the tenant that have some; up to 20"
    )
    dropped: list[DroppedTable] | None = omit_when_null("the dropped tables, last dropped first")


@operation(ListTables, ListTablesResult, pool="metadata", examples=EXAMPLES)
def list_tables(request: ListTables, catalog: Catalog, life: TableLifecycle) -> ListTablesResult:
    """List the tables of a namespace by name."""
    tables = catalog.list_tables(request.tenant_id, request.namespace)
    offline = life.offline(request.tenant_id, request.namespace)
    return ListTablesResult(
        tables=[t for t in tables if request.table in (None, t)],
        offline=[t for t in offline if request.table in (None, t)],
        namespaces_with_tables=None if tables else _namespaces_with_tables(request, catalog),
        dropped=_dropped(request, life) if request.include_dropped else None,
    )


def _namespaces_with_tables(request: ListTables, catalog: Catalog) -> list[str] | None:
    """Where the tables may be that a request for the default namespace did not find."""
    if request.namespace != "default":
        return None
    names = (name for _, name in catalog.list_namespaces(request.tenant_id))
    found = (name for name in names if catalog.list_tables(request.tenant_id, name))
    return list(islice(found, _MOST_NAMESPACES)) or None


def _dropped(request: ListTables, life: TableLifecycle) -> list[DroppedTable]:
    return [
        DroppedTable(
            table=dropped.name.table,
            table_id=dropped.uuid,
            dropped_at=utc_or_none(dropped.dropped_ms),
            expires_at=utc_or_none(dropped.keep_until_ms),
        )
        for dropped in life.dropped(request.tenant_id, request.namespace)
        if request.table in (None, dropped.name.table)
    ]
