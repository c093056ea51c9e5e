"""HISTORY: the commits of a table, from metadata and the ledger alone."""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.ledger.ledger import Ledger
from service.operations.operation import Confirmable, Example, Metadata, Result, TableRequest, operation
from service.queries.history import HistoryEntry, history_entries

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "stock"}
GIVEN: tuple[dict[str, Any], ...] = (
    {
        "operation": "CREATE_TABLE",
        **ADDRESS,
        "schema": {"fields": {"item": {"type": "string"}, "count": {"type": "integer"}}},
    },
    {"operation": "WRITE", **ADDRESS, "records": [{"item": "tea", "count": 3}, {"item": "rice", "count": 5}]},
    {"operation": "UPDATE", **ADDRESS, "updates": {"count": 4}, "filter": {"item": "tea"}, "create_backup": True},
)
_ANY = dict.fromkeys(("snapshot_id", "timestamp", "request_ids"), "<any>")
_UPDATE = {
    **_ANY,
    "parent_id": "<any>",
    "operation": "UPDATE",
    "iceberg_operation": "overwrite",
    "rows_added": 0,
    "rows_removed": 0,
    "rows_updated": 1,
    "files_added": 1,
    "files_removed": 1,
    "tags": [],
    "is_current": True,
    "is_ancestor": True,
}
_WRITE = {
    **_UPDATE,
    "parent_id": None,
    "operation": "WRITE",
    "iceberg_operation": "append",
    "rows_added": 2,
    "rows_updated": 0,
    "files_removed": 0,
    "tags": "<any>",
    "is_current": False,
}


def _example(title: str, request: dict[str, Any], snapshots: list[dict[str, Any]], has_more: bool) -> Example:
    metadata = {"request_id": "<any>", "execution_time_ms": "<any>", "snapshot_id": "<any>"}
    answer = {"success": True, "snapshots": snapshots, "total": 2, "has_more": has_more, "metadata": metadata}
    return Example(title, {"operation": "HISTORY", **ADDRESS, **request}, answer, given=GIVEN)


EXAMPLES = (
    _example("What became of a table, newest first", {}, [_UPDATE, _WRITE], has_more=False),
    _example("The latest commit", {"limit": 1}, [_UPDATE], has_more=True),
)


class History(Confirmable, TableRequest):
    operation: Literal["HISTORY"]
    limit: int = Field(default=100, ge=1, le=1000, description="at most so many snapshots")
    offset: int = Field(default=0, ge=0, le=2_000_000_000, description="skip so many first")


class Committed(BaseModel):
    snapshot_id: int = Field(description="what `as_of`, DIFF and ROLLBACK take")
    parent_id: int | None = Field(
        description="the snapshot that it was built on, which may have expired; null for a table's first"
    )
    timestamp: datetime = Field(description="when it was committed")
    operation: str = Field(
        description="the operation that made it, such as WRITE or COMPACT; of a commit that is noted no longer, or "
        "that another program made, Iceberg's word for it, as in `iceberg_operation`"
    )
    iceberg_operation: str = Field(description="append, overwrite, delete; or replace, which changes files and no rows")
    request_ids: list[str] = Field(
        description="`metadata.request_id` of every request that shares this commit, in the order in which they came; "
        "empty where that is noted no longer, and for other programs' commits"
    )
    rows_added: int = Field(description="rows that came")
    rows_removed: int = Field(description="rows that went")
    rows_updated: int = Field(
        description="rows that an edit of Firn's changed. Another program's commit does not tell them: there they, and "
        "rows that were copied into other files, count as removed and added"
    )
    files_added: int = Field(description="data files that came")
    files_removed: int = Field(description="data files that went")
    tags: list[str] = Field(description="tags on it, backups among them, which keep it from expiring")
    is_current: bool = Field(description="whether it is what the table holds now")
    is_ancestor: bool = Field(
        description="whether what the table holds now was built on it; false where another program went back behind it"
    )


class HistoryResult(Result):
    snapshots: list[Committed] = Field(description="newest first")
    total: int = Field(description="snapshots that the table has; older ones have expired")
    has_more: bool = Field(description="whether there are older ones than these")


@operation(History, HistoryResult, pool="metadata", examples=EXAMPLES)
def history(request: History, catalog: Catalog, ledger: Ledger) -> HistoryResult:
    """List the commits of a table: when, which operation, for which requests, what came and what went."""
    table = catalog.load(request.table_name)
    page = history_entries(table, ledger, request.limit, request.offset)
    return HistoryResult(
        snapshots=[_committed(entry) for entry in page],
        total=table.snapshot_count,
        has_more=request.offset + len(page) < table.snapshot_count,
        metadata=Metadata(snapshot_id=table.current_snapshot_id),
    )


def _committed(entry: HistoryEntry) -> Committed:
    snapshot = entry.snapshot
    kind = snapshot.summary.get("operation", "unknown")
    return Committed(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_id,
        timestamp=datetime.fromtimestamp(snapshot.timestamp_ms // 1000, UTC).replace(
            microsecond=snapshot.timestamp_ms % 1000 * 1000
        ),
        operation=entry.asked.operation if entry.asked else kind,
        iceberg_operation=kind,
        request_ids=list(entry.asked.request_ids) if entry.asked else [],
        rows_added=entry.rows.added,
        rows_removed=entry.rows.removed,
        rows_updated=entry.rows.updated,
        files_added=snapshot.counted("added-data-files"),
        files_removed=snapshot.counted("deleted-data-files"),
        tags=list(entry.tags),
        is_current=entry.is_current,
        is_ancestor=entry.is_ancestor,
    )
