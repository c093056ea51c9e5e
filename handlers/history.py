"""HISTORY: list the commits of a table, from metadata and the ledger alone."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog, Snapshot
from service.ledger.ledger import Ledger
from service.ledger.requests import BatchRequests
from service.model.times import utc
from service.operations.examples import create_table, response, write
from service.operations.operation import (
    Example,
    Metadata,
    Result,
    ReturnedId,
    TableRequest,
    omit_when_null,
    operation,
)
from service.operations.paging import Page, Paged
from service.queries.history import HistoryEntry, history_entries, newest_first

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "stock"}
GIVEN: tuple[dict[str, Any], ...] = (
    create_table(ADDRESS, {"item": "string", "count": "integer"}),
    write(ADDRESS, {"item": "tea", "count": 3}, {"item": "rice", "count": 5}),
    {"operation": "UPDATE", **ADDRESS, "updates": {"count": 4}, "filter": {"item": "tea"}, "create_backup": True},
)
_ANY = dict.fromkeys(("snapshot_id", "committed_at", "request_ids"), "<any>")
_UPDATE = {
    **_ANY,
    "parent_id": "<any>",
    "operation": "UPDATE",
    "iceberg_operation": "overwrite",
    "records_added": 0,
    "records_removed": 0,
    "records_updated": 1,
    "files_added": 1,
    "files_removed": 1,
    "tags": [],
    "is_current": True,
    "is_ancestor": True,
}
_WRITE = {
    **{name: value for name, value in _UPDATE.items() if name != "parent_id"},
    "operation": "WRITE",
    "iceberg_operation": "append",
    "records_added": 2,
    "records_updated": 0,
    "files_removed": 0,
    "tags": "<any>",
    "is_current": False,
}


def _example(title: str, request: dict[str, Any], snapshots: list[dict[str, Any]], **more: Any) -> Example:
    body = response(snapshots=snapshots, total=2, **more)
    return Example(title, {"operation": "HISTORY", **ADDRESS, **request}, body, given=GIVEN)


EXAMPLES = (
    _example("List a table's commits, newest first", {}, [_UPDATE, _WRITE]),
    _example("Show the latest commit", {"limit": 1}, [_UPDATE], next_cursor="<any>"),
)


class History(Paged, TableRequest):
    operation: Literal["HISTORY"]


class ListedRequest(BaseModel):
    """One of the requests of a commit that edits share."""

    request_id: str = Field(description="its `metadata.request_id`")
    operation: str = Field(description="its operation")
    records_added: int = Field(description="rows that it added")
    records_removed: int = Field(description="rows that it removed")
    records_updated: int = Field(description="rows that it updated")


class ListedCommit(BaseModel):
    snapshot_id: ReturnedId = Field(description="its id, for `as_of`, DIFF and ROLLBACK")
    parent_id: ReturnedId | None = omit_when_null("the previous snapshot, which may have expired; absent for the first")
    committed_at: datetime = Field(description="when it was committed")
    operation: str = Field(
        description="the operation that made it, such as WRITE or COMPACT; MIXED if requests with several operations "
        "share it; `iceberg_operation` if it is no longer recorded, or if another engine made the commit"
    )
    iceberg_operation: str = Field(description="append, overwrite, delete, or replace, which changes files but no rows")
    request_ids: list[str] = Field(
        description="`metadata.request_id` of every request in this commit, in order of arrival; empty if no longer "
        "recorded, and for commits of other engines"
    )
    requests: list[ListedRequest] | None = omit_when_null(
        "what each of these requests did, in the same order; only in a commit that edits share with other requests"
    )
    records_added: int = Field(description="rows added")
    records_removed: int = Field(description="rows removed")
    records_updated: int = Field(
        description="rows updated; in a commit of another engine, updated rows and rows copied to other files count as "
        "removed and added instead"
    )
    files_added: int = Field(description="data files added")
    files_removed: int = Field(description="data files removed")
    tags: list[str] = Field(description="its tags, including backups, which keep it from expiring")
    is_current: bool = Field(description="whether it is the current snapshot")
    is_ancestor: bool = Field(
        description="whether the current snapshot descends from it; false if another engine rolled back past it"
    )


class HistoryResult(Page, Result):
    snapshots: list[ListedCommit] = Field(description="newest first")
    total: int = Field(description="snapshots of the table; older ones have expired")


@operation(History, HistoryResult, pool="metadata", examples=EXAMPLES)
def history(request: History, catalog: Catalog, ledger: Ledger) -> HistoryResult:
    """List the commits of a table: their times, operations, requests, and the rows and files that they changed."""
    table = catalog.load(request.table_name)
    after = request.place(int, int, int)
    found = newest_first(table.snapshots())
    page, next_cursor = request.page((s for s in found if after is None or _place(s) < after), _place)
    return HistoryResult(
        snapshots=[_listed(entry) for entry in history_entries(table, ledger, page)],
        total=table.snapshot_count,
        next_cursor=next_cursor,
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _place(snapshot: Snapshot) -> tuple[int, int, int]:
    return snapshot.sequence_number, snapshot.timestamp_ms, snapshot.snapshot_id


def _listed(entry: HistoryEntry) -> ListedCommit:
    snapshot = entry.snapshot
    kind = snapshot.summary.get("operation", "unknown")
    return ListedCommit(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_id,
        committed_at=utc(snapshot.timestamp_ms),
        operation=entry.requests.operation if entry.requests else kind,
        iceberg_operation=kind,
        request_ids=list(entry.requests.request_ids) if entry.requests else [],
        requests=_requests(entry.requests) if entry.requests else None,
        records_added=entry.rows.added,
        records_removed=entry.rows.removed,
        records_updated=entry.rows.updated,
        files_added=snapshot.counted("added-data-files"),
        files_removed=snapshot.counted("deleted-data-files"),
        tags=list(entry.tags),
        is_current=entry.is_current,
        is_ancestor=entry.is_ancestor,
    )


def _requests(batch: BatchRequests) -> list[ListedRequest] | None:
    if len(batch.parts) < 2:
        return None
    return [
        ListedRequest(
            request_id=request_id,
            operation=part.operation,
            records_added=part.counts.inserted,
            records_removed=part.counts.deleted,
            records_updated=part.counts.updated,
        )
        for request_id, part in zip(batch.request_ids, batch.parts, strict=False)
    ]
