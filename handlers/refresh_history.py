"""REFRESH_HISTORY: list the refreshes of dynamic tables."""

from typing import Literal

from pydantic import Field

from service.dynamic.definitions import Definitions
from service.dynamic.rights import Sight
from service.ledger.dynamic_tables import RefreshFilter, RefreshOutcome
from service.model.call import Call
from service.model.names import TableName
from service.model.times import read_time_ms
from service.operations.dynamic.examples import CREATED, DETAILS, REFRESH
from service.operations.dynamic.requests import NamedDynamicTable
from service.operations.dynamic.results import RefreshEntry, refresh_entry
from service.operations.examples import response
from service.operations.operation import Example, Result, operation
from service.operations.paging import Page, Paged, ScopedRequest

EXAMPLES = (
    Example(
        "List the refreshes of a dynamic table",
        {"operation": "REFRESH_HISTORY", **DETAILS, "state": "done"},
        response(snapshot=False, refreshes=[REFRESH]),
        given=CREATED,
    ),
)


class RefreshHistory(NamedDynamicTable, Paged, ScopedRequest):
    operation: Literal["REFRESH_HISTORY"]
    table: str | None = Field(default=None, description="only this dynamic table; default: all of the scope")
    state: RefreshOutcome | None = Field(default=None, description="only refreshes in this state")
    since: str | None = Field(default=None, description="only those that started at this time or later")
    pass_id: str | None = Field(default=None, max_length=100, description="only those of this pass")


class RefreshHistoryResult(Page, Result):
    refreshes: list[RefreshEntry] = Field(description="newest first; the latest 2,000 of each table are kept")


@operation(RefreshHistory, RefreshHistoryResult, pool="metadata", examples=EXAMPLES)
def refresh_history(request: RefreshHistory, call: Call, definitions: Definitions) -> RefreshHistoryResult:
    """List the refreshes of dynamic tables: when and how each was made, what it read, and how many rows it changed."""
    place = request.place(int, str)
    since_ms = None if request.since is None else read_time_ms(request.since, "since")
    which = RefreshFilter(request.only_namespace, request.table, request.state, since_ms, request.pass_id)
    after = None if place is None else (place[0], place[1])
    found = definitions.records.refreshes(request.tenant_id, which, after, request.limit + 1)
    if request.table is not None and not found and after is None:
        # A misspelt name has no refreshes either: this refuses it.
        definitions.load(TableName(request.tenant_id, request.namespace, request.table))
    page, next_cursor = request.page(found, lambda one: [one.started_ms, one.id])
    uuids = {one.table_uuid for one in page if one.state == "failed"}
    sight, tables = Sight(call.principal, definitions), {uuid: definitions.records.find(uuid) for uuid in uuids}
    shown = [refresh_entry(one, tables.get(one.table_uuid), sight) for one in page]
    return RefreshHistoryResult(refreshes=shown, next_cursor=next_cursor)
