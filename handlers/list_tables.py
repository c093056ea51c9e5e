"""LIST_TABLES: list a namespace's tables, and dropped ones that can be restored."""

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.files.data_files import list_files
from service.catalog.lineage import last_change_ms
from service.catalog.tables import Catalog, Table
from service.commits.small_files import SmallFileChecks
from service.dynamic.definitions import Definitions
from service.errors import CatalogUnavailable, FirnError, TableNotFound
from service.ledger.table_records import TableRecord
from service.model.call import Call
from service.model.dynamic.definition import is_dynamic_table
from service.model.names import TableName
from service.model.properties import is_online
from service.model.times import utc_or_none
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, Request, Result, omit_when_null, operation
from service.operations.paging import Page, Paged, limit_field
from service.tables.life import TableLifecycle

log = logging.getLogger("firn.tables")

ADDRESS = {"tenant_id": "acme", "namespace": "listed"}
PEOPLE = {**ADDRESS, "table": "people"}
GIVEN = (create_table(PEOPLE, {"id": "long"}), create_table({**ADDRESS, "table": "events"}, {"id": "long"}))
DROPPED = {"table": "people", "table_id": "<any>", "dropped_at": "<any>", "expires_at": "<any>"}
DETAILS = {
    "table": "events",
    "records": 2,
    "files": 1,
    "bytes": "<any>",
    "small_files_count": 1,
    "online": True,
    "dynamic": False,
    "changed_at": "<any>",
}
EXAMPLES = (
    Example(
        "List a namespace's tables",
        {"operation": "LIST_TABLES", **ADDRESS},
        response(snapshot=False, tables=["events", "people"], offline=["people"], dynamic=[]),
        given=(*GIVEN, {"operation": "SET_ONLINE", **PEOPLE, "online": False}),
    ),
    Example(
        "List one table after the other, with their rows, files and bytes",
        {"operation": "LIST_TABLES", **ADDRESS, "details": True, "limit": 1},
        response(snapshot=False, tables=["events"], offline=[], dynamic=[], details=[DETAILS], next_cursor="<any>"),
        given=(*GIVEN, write({**ADDRESS, "table": "events"}, {"id": 1}, {"id": 2})),
    ),
    Example(
        "List dropped tables that can be restored, too",
        {"operation": "LIST_TABLES", **ADDRESS, "include_dropped": True},
        response(snapshot=False, tables=["events"], offline=[], dynamic=[], dropped=[DROPPED]),
        given=(*GIVEN, {"operation": "DROP_TABLE", **PEOPLE}),
    ),
)


_MOST_NAMESPACES = 20
_MOST_WITH_DETAILS = 100


class ListTables(Paged, Request):
    operation: Literal["LIST_TABLES"]
    limit: int = limit_field(1000, 10_000)
    details: bool = Field(
        default=False,
        description=f"also return the rows, files and bytes of each; up to {_MOST_WITH_DETAILS} in a page",
    )
    table: str | None = Field(default=None, description="only this table, if it exists")
    include_dropped: bool = Field(default=False, description="also list dropped tables that can be restored")


class DroppedTable(BaseModel):
    """A table that RESTORE_TABLE can restore."""

    table: str = Field(description="the name it had")
    table_id: str = Field(description="its id, which distinguishes tables of the same name")
    dropped_at: datetime | None = omit_when_null("when it was dropped")
    expires_at: datetime | None = omit_when_null("when its files are deleted")


class TableDetails(BaseModel):
    """What a table's metadata says about it."""

    table: str = Field(description="its name")
    records: int = Field(
        description="its rows; includes rows that another engine deleted by delete files for several data files"
    )
    files: int = Field(description="its data files")
    bytes: int = Field(description="the size of these files")
    small_files_count: int = Field(description="how many of them count as small")
    online: bool = Field(
        description="false if SET_ONLINE or the property `online` excluded it from scheduled maintenance"
    )
    dynamic: bool = Field(description="whether it is a dynamic table")
    changed_at: datetime | None = omit_when_null(
        "when its rows last changed, as far as its snapshots show; absent before the first write"
    )


class ListTablesResult(Page, Result):
    tables: list[str] = Field(description="their names, in order")
    offline: list[str] = Field(
        description="those of them that SET_ONLINE or the property `online` excluded from scheduled maintenance"
    )
    dynamic: list[str] = Field(
        description="those of them that are dynamic tables; LIST_DYNAMIC_TABLES says what they read"
    )
    details: list[TableDetails] | None = omit_when_null("with `details`: the tables' figures, from metadata alone")
    namespaces_with_tables: list[str] | None = omit_when_null(
        "if the namespace `default` has no tables: namespaces of the tenant that have some; up to 20"
    )
    dropped: list[DroppedTable] | None = omit_when_null(
        "the dropped tables, last dropped first; they follow the tables"
    )


@operation(ListTables, ListTablesResult, pool="metadata", examples=EXAMPLES)
def list_tables(
    request: ListTables,
    call: Call,
    catalog: Catalog,
    life: TableLifecycle,
    small_files: SmallFileChecks,
    definitions: Definitions,
) -> ListTablesResult:
    """List the tables of a namespace by name."""
    if request.details:
        request = request.model_copy(update={"limit": min(request.limit, _MOST_WITH_DETAILS)})
    names = catalog.list_tables(request.tenant_id, request.namespace)
    page, next_cursor = request.page(_items(request, names, life), _place)
    tables = [item for item in page if isinstance(item, str)]
    dropped = [_dropped(item) for item in page if isinstance(item, TableRecord)]
    return ListTablesResult(
        tables=tables,
        offline=life.offline(request.tenant_id, request.namespace, frozenset(tables)),
        dynamic=[name for name in definitions.records.names(request.tenant_id, request.namespace) if name in tables],
        details=list(_details(request, tables, catalog, small_files)) if request.details else None,
        namespaces_with_tables=None if names or request.cursor else _namespaces_with_tables(request, call, catalog),
        dropped=dropped if request.include_dropped else None,
        next_cursor=next_cursor,
    )


def _items(request: ListTables, names: list[str], life: TableLifecycle) -> Iterator[str | TableRecord]:
    """The tables and then the dropped tables that follow the cursor."""
    dropped_ms, last = request.place(int, str) or (-1, "")
    # In a cursor, a table has no time at which it was dropped.
    tables = [name for name in names if name > last] if dropped_ms < 0 else []
    found: Iterable[str | TableRecord] = tables
    if request.include_dropped:
        after = None if dropped_ms < 0 else (dropped_ms, last)
        # One name may be common among thousands of others.
        most = None if request.table else request.limit + 1
        found = chain(tables, life.dropped(request.tenant_id, request.namespace, after, most))
    for item in found:
        if request.table in (None, item if isinstance(item, str) else item.name.table):
            yield item


def _place(item: str | TableRecord) -> list[Any]:
    return [-1, item] if isinstance(item, str) else [item.dropped_ms or 0, item.uuid]


def _details(
    request: ListTables, tables: list[str], catalog: Catalog, small_files: SmallFileChecks
) -> Iterator[TableDetails]:
    for name in tables:
        try:
            yield _detailed(catalog.load(TableName(request.tenant_id, request.namespace, name)), small_files)
        except TableNotFound:  # dropped in the meantime
            continue
        except CatalogUnavailable:
            raise
        except FirnError as e:  # one unreadable table must not hide the others
            log.warning("the files of %s.%s could not be read: %s", request.namespace, name, e.message)


def _detailed(table: Table, small_files: SmallFileChecks) -> TableDetails:
    files = list_files(table)
    return TableDetails(
        table=table.name.table,
        records=sum(file.rows - file.deleted for file in files.data),
        files=len(files.data),
        bytes=files.bytes,
        small_files_count=small_files.count(table, files.data),
        online=is_online(table.properties),
        dynamic=is_dynamic_table(table.properties),
        changed_at=utc_or_none(last_change_ms(table)),
    )


def _namespaces_with_tables(request: ListTables, call: Call, catalog: Catalog) -> list[str] | None:
    """Where the tables may be that a request for the default namespace did not find."""
    if request.namespace != "default":
        return None
    every = (name for _, name in catalog.list_namespaces(request.tenant_id))
    names = (name for name in every if call.principal.may("reader", request.tenant_id, name))
    found = (name for name in names if catalog.list_tables(request.tenant_id, name))
    return list(islice(found, _MOST_NAMESPACES)) or None


def _dropped(record: TableRecord) -> DroppedTable:
    return DroppedTable(
        table=record.name.table,
        table_id=record.uuid,
        dropped_at=utc_or_none(record.dropped_ms),
        expires_at=utc_or_none(record.keep_until_ms),
    )
