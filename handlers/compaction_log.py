"""COMPACTION_LOG: list past and running compactions."""

from datetime import datetime
from functools import cache, partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.guard.policies import Policies
from service.ledger.jobs import JobRecord, JobRecords
from service.model.call import Call
from service.model.names import TableName
from service.model.times import read_time_ms, utc, utc_or_none
from service.operations.examples import create_table, response
from service.operations.operation import Example, Result, omit_when_null, operation
from service.operations.paging import Page, Paged, ScopedRequest

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "quiet"}
EXAMPLES = (
    Example(
        "List a table's compactions",
        {"operation": "COMPACTION_LOG", **ADDRESS, "limit": 10},
        response(snapshot=False, compactions=[]),
        given=(create_table(ADDRESS, {"id": "long"}),),
    ),
)


class CompactionLog(Paged, ScopedRequest):
    operation: Literal["COMPACTION_LOG"]
    table: str | None = Field(default=None, description="only this table; default: all tables of the scope")
    before: str | None = Field(default=None, description="only those that started before this time")


class LoggedCompaction(BaseModel):
    id: str = Field(description="the compaction's id")
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name at that time")
    requested_by: str = Field(description="`request <id>`, `schedule <name>` or `auto`")
    state: str = Field(description="running, done, failed, cancelled or interrupted")
    started_at: datetime = Field(description="when it started")
    ended_at: datetime | None = omit_when_null("absent while it runs")
    request: Any = omit_when_null(
        "the options of the request; not for readers from whom a policy hides rows or columns"
    )
    stats: Any = omit_when_null(
        "counts before and after, as in COMPACT's response, also if it ended early; absent while it runs, or "
        "if its instance stopped before it committed anything"
    )
    predicted: Any = omit_when_null("the prediction, if one was made")
    error: Any = omit_when_null(
        "why it failed; if it is done, what failed after files were merged; "
        "not for readers from whom a policy hides rows or columns"
    )


class CompactionLogResult(Page, Result):
    compactions: list[LoggedCompaction] = Field(description="newest first; kept for 90 days")


@operation(CompactionLog, CompactionLogResult, pool="metadata", examples=EXAMPLES)
def compaction_log(
    request: CompactionLog, call: Call, catalog: Catalog, policies: Policies, records: JobRecords
) -> CompactionLogResult:
    """List past and running compactions: when they ran, who started them, and what they changed."""
    after = request.place(int, str)
    found = records.log(
        "COMPACT",
        request.limit + 1,
        tenant=request.tenant_id,
        namespace=request.only_namespace,
        table=request.table,
        before_ms=None if request.before is None else read_time_ms(request.before, "before"),
        after=after,
    )
    if request.table is not None and not found and after is None:
        # A misspelt name has no compactions either: this refuses it.
        catalog.load(TableName(request.tenant_id, request.namespace, request.table))
    page, next_cursor = request.page(found, lambda job: (job.started_ms, job.id))
    sees_whole = cache(partial(policies.sees_whole, call.principal))
    compactions = [_logged(job, whole=sees_whole(job.table, job.table_uuid)) for job in page]
    return CompactionLogResult(compactions=compactions, next_cursor=next_cursor)


def _logged(job: JobRecord, *, whole: bool) -> LoggedCompaction:
    # Options and errors can name columns and values that a policy hides.
    shown = ("request", "stats", "predicted", "error") if whole else ("stats", "predicted")
    details = {name: job.details.get(name) for name in shown}
    return LoggedCompaction(
        id=job.id,
        namespace=job.table.namespace,
        table=job.table.table,
        requested_by=job.requested_by,
        state=job.state,
        started_at=utc(job.started_ms or 0),
        ended_at=utc_or_none(job.ended_ms),
        **details,
    )
