"""LIST_TABLES: what there is, and what there was and can be restored."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, omit_when_null, operation
from service.operations.schedule_results import moment
from service.tables.life import TableLife

ADDRESS = {"tenant_id": "acme", "namespace": "listed"}


def _made(*tables: str) -> tuple[dict[str, Any], ...]:
    schema = {"fields": {"id": {"type": "long"}}}
    return tuple({"operation": "CREATE_TABLE", **ADDRESS, "table": table, "schema": schema} for table in tables)


EXAMPLES = (
    Example(
        "List a namespace's tables",
        {"operation": "LIST_TABLES", **ADDRESS},
        response(snapshot=False, tables=["events", "people"], offline=["people"]),
        given=(*_made("people", "events"), {"operation": "SET_ONLINE", **ADDRESS, "table": "people", "online": False}),
    ),
    Example(
        "List those that can be restored, too",
        {"operation": "LIST_TABLES", **ADDRESS, "include_dropped": True},
        response(
            snapshot=False,
            tables=["events"],
            offline=[],
            dropped=[{"table": "people", "table_id": "<any>", "dropped_at": "<any>", "restorable_until": "<any>"}],
        ),
        given=(*_made("people", "events"), {"operation": "DROP_TABLE", **ADDRESS, "table": "people"}),
    ),
)


class ListTables(Request):
    operation: Literal["LIST_TABLES"]
    table: str | None = Field(default=None, description="only this one, if it is there")
    include_dropped: bool = Field(default=False, description="say also which dropped tables can be restored")


class DroppedTold(BaseModel):
    """A table that RESTORE_TABLE brings back."""

    table: str = Field(description="what it was called")
    table_id: str = Field(description="what tells it from others of that name")
    dropped_at: datetime | None = Field(description="when it was dropped")
    restorable_until: datetime | None = Field(description="when its files are removed")


class ListTablesResult(Result):
    tables: list[str] = Field(description="names, in order")
    offline: list[str] = Field(description="those of them that SET_ONLINE has taken from scheduled upkeep")
    dropped: list[DroppedTold] | None = omit_when_null("the dropped ones, the last one first")


@operation(ListTables, ListTablesResult, pool="metadata", examples=EXAMPLES)
def list_tables(request: ListTables, catalog: Catalog, life: TableLife) -> ListTablesResult:
    """List the tables of a tenant's namespace by name."""
    tables = catalog.list_tables(request.tenant_id, request.namespace)
    offline = life.offline(request.tenant_id, request.namespace)
    return ListTablesResult(
        tables=[t for t in tables if request.table in (None, t)],
        offline=[t for t in offline if request.table in (None, t)],
        dropped=_dropped(request, life) if request.include_dropped else None,
    )


def _dropped(request: ListTables, life: TableLife) -> list[DroppedTold]:
    return [
        DroppedTold(
            table=life.name.table,
            table_id=life.uuid,
            dropped_at=moment(life.dropped_ms),
            restorable_until=moment(life.keep_until_ms),
        )
        for life in life.dropped(request.tenant_id, request.namespace)
        if request.table in (None, life.name.table)
    ]
