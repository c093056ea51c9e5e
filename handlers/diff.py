"""DIFF: compare two states of a table by rows."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.as_of import snapshot_as_of
from service.catalog.tables import Catalog, Snapshot, Table
from service.guard.policies import Policies
from service.jobs.background import Background
from service.model.as_of import AS_OF, AsOf
from service.model.call import Call
from service.operations.examples import accepted, create_table, response, write
from service.operations.operation import (
    AcceptedResult,
    Example,
    Metadata,
    Result,
    ReturnedId,
    TableRequest,
    async_field,
    omit_when_null,
    operation,
)
from service.operations.paging import Page, Paged, pinned
from service.queries.diff import Differences, DiffPage, DiffProgress
from service.queries.fitting import fitting

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "menu"}
GIVEN: tuple[dict[str, Any], ...] = (
    create_table(ADDRESS, {"dish": "string", "price": "decimal(6,2)"}, primary_key=["dish"]),
    write(ADDRESS, {"dish": "soup", "price": "7.00"}, {"dish": "stew", "price": "14.00"}),
    {
        "operation": "UPSERT",
        **ADDRESS,
        "records": [{"dish": "soup", "price": "7.50"}, {"dish": "tart", "price": "5.00"}],
    },
    {"operation": "DELETE", **ADDRESS, "filter": {"dish": "stew"}},
)
_FIRST, _LAST = "4358829213746520102", "1886043621045928221"
_SOUP = {"change": "updated", "before": {"dish": "soup", "price": "7.00"}, "after": {"dish": "soup", "price": "7.50"}}
_STEW = {"change": "deleted", "before": {"dish": "stew", "price": "14.00"}}
_UNSOUP = {**_SOUP, "before": _SOUP["after"], "after": _SOUP["before"]}
_TART = {"change": "inserted", "after": {"dish": "tart", "price": "5.00"}}
_COUNTS: dict[str, Any] = {"records_inserted": 1, "records_deleted": 1, "records_updated": 1}
_ANSWER: dict[str, Any] = response(
    from_snapshot="<any>",
    to_snapshot="<any>",
    **_COUNTS,
    key_cols=["dish"],
    changes=[_SOUP, _STEW, _TART],
    files_read="<any>",
    files_shared=0,
)
EXAMPLES = (
    Example(
        "Compare two snapshots",
        {"operation": "DIFF", **ADDRESS, "from_snapshot": _FIRST, "to_snapshot": _LAST},
        _ANSWER,
        given=GIVEN,
        taken={"from_snapshot": (2, "metadata.snapshot_id"), "to_snapshot": (4, "metadata.snapshot_id")},
    ),
    Example(
        "Only count the changes until now",
        {"operation": "DIFF", **ADDRESS, "from_snapshot": _FIRST, "limit": 0},
        {**_ANSWER, "changes": []},
        given=GIVEN,
        taken={"from_snapshot": (2, "metadata.snapshot_id")},
    ),
    Example(
        "Compare in the background",
        {"operation": "DIFF", **ADDRESS, "from_snapshot": _FIRST, "async": True},
        accepted(),
        given=GIVEN,
        taken={"from_snapshot": (2, "metadata.snapshot_id")},
    ),
    Example(
        "The first page of the changes in reverse",
        {"operation": "DIFF", **ADDRESS, "from_snapshot": _LAST, "to_snapshot": _FIRST, "limit": 1},
        {**_ANSWER, "changes": [_UNSOUP], "next_cursor": "<any>"},
        given=GIVEN,
        taken={"from_snapshot": (4, "metadata.snapshot_id"), "to_snapshot": (2, "metadata.snapshot_id")},
    ),
)


class Diff(Paged, TableRequest):
    operation: Literal["DIFF"]
    from_snapshot: AsOf = Field(description=f"the earlier state: {AS_OF}")
    to_snapshot: AsOf | None = Field(
        default=None, description="the later state, named in the same way; default: the current one"
    )
    key_cols: list[str] | None = Field(
        default=None,
        description="a removed and an added row with equal values in these columns count as one update; default: the "
        "primary key, or that of the later snapshot if a column of it is missing; [] for no updates",
    )
    async_: bool = async_field()
    limit: int = Field(
        default=1000, ge=0, le=10_000, description="the maximum number of changes in one response; 0 only counts them"
    )


class Change(BaseModel):
    change: Literal["inserted", "deleted", "updated"] = Field(description="how the row changed")
    before: dict[str, Any] | None = omit_when_null("the row before; absent if it was inserted")
    after: dict[str, Any] | None = omit_when_null("the row after; absent if it was deleted")


class DiffResult(Page, Result):
    from_snapshot: ReturnedId = Field(description="the snapshot of the earlier state")
    to_snapshot: ReturnedId = Field(description="the snapshot of the later state")
    records_inserted: int = Field(description="rows inserted, each counted as often as it was")
    records_deleted: int = Field(description="rows deleted")
    records_updated: int = Field(description="rows updated: a removed and an added row with the same key")
    key_cols: list[str] = Field(description="the key columns used; [] if none")
    changes: list[Change] = Field(
        description="one page of changes, always in the same order; a cursor keeps the two states"
    )
    files_read: int = Field(
        description="data files that are only in one of the two, or have other rows deleted; no others are opened"
    )
    files_shared: int = Field(description="data files that are in both")


@operation(Diff, DiffResult, pool="queries", examples=EXAMPLES, also=(AcceptedResult,))
def diff(
    request: Diff,
    call: Call,
    catalog: Catalog,
    background: Background,
    differences: Differences,
    policies: Policies,
) -> DiffResult | AcceptedResult:
    """List the rows that were inserted, deleted and updated between any two states of a table."""
    table = catalog.load(request.table_name)
    compare = _comparison(request, table, differences)  # states that do not exist are refused at once
    if not request.async_:
        return compare(call)
    # All who may read the table see the results of its jobs.
    policies.check_whole_table(call.principal, table, "with async")
    return AcceptedResult.of(
        background.start("DIFF", table, DiffProgress(), call, lambda job: job.respond(compare(job)))
    )


def _comparison(request: Diff, table: Table, differences: Differences) -> Callable[[Call], DiffResult]:
    """What the request compares. The states are those of now, however long a job waits."""
    place = request.place(str, int, int, list, int)
    if place is None:
        before = snapshot_as_of(table, request.from_snapshot, "from_snapshot")
        after, keys, done = _after(request, table) or before, request.key_cols, 0
    else:
        uuid, first, second, keys, done = place
        before, after = (pinned(table, uuid, snapshot_id) for snapshot_id in (first, second))

    def compare(of: Call) -> DiffResult:
        found = differences.between(of, table, before, after, keys, DiffPage(request.limit, done))
        counts = found.compared
        changes = [Change(change=c.kind, before=c.before, after=c.after) for c in counts.changes]
        changes = changes[: fitting(of.room, changes)]
        end = done + len(changes)
        more = request.limit and end < counts.inserted + counts.deleted + counts.updated
        next_place = [table.uuid, before.snapshot_id, after.snapshot_id, list(found.keys), end]
        return DiffResult(
            from_snapshot=before.snapshot_id,
            to_snapshot=after.snapshot_id,
            records_inserted=counts.inserted,
            records_deleted=counts.deleted,
            records_updated=counts.updated,
            key_cols=list(found.keys),
            changes=changes,
            next_cursor=request.cursor_at(next_place) if more else None,
            files_read=found.files_read,
            files_shared=found.files_shared,
            metadata=Metadata(snapshot_id=after.snapshot_id),
        )

    return compare


def _after(request: Diff, table: Table) -> Snapshot | None:
    if request.to_snapshot is not None:
        return snapshot_as_of(table, request.to_snapshot, "to_snapshot")
    return None if table.current_snapshot_id is None else table.snapshot(table.current_snapshot_id, "to_snapshot")
