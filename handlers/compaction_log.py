"""COMPACTION_LOG: list past and running compactions."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.errors import InvalidRequest
from service.ledger.jobs import JobRecord, JobRecords, Place
from service.model.names import TableName
from service.model.times import utc, utc_or_none
from service.operations.examples import create_table, response
from service.operations.operation import Example, Request, Result, omit_when_null, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "quiet"}
EXAMPLES = (
    Example(
        "List a table's compactions",
        {"operation": "COMPACTION_LOG", **ADDRESS, "limit": 10},
        response(snapshot=False, compactions=[], truncated=False),
        given=(create_table(ADDRESS, {"id": "long"}),),
    ),
)


class CompactionLog(Request):
    operation: Literal["COMPACTION_LOG"]
    table: str | None = Field(
        default=None, description="only this table; default: the tables of `namespace` if it is sent, or of the tenant"
    )
    limit: int = Field(default=100, ge=1, le=1000, description="the maximum number to list")
    before: str | None = Field(
        default=None, description="only those that started before this time; or the last `id` of the previous page"
    )


class LoggedCompaction(BaseModel):
    id: str = Field(description="the compaction's id")
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name at that time")
    requested_by: str = Field(description="`request <id>`, `schedule <name>` or `auto`")
    state: str = Field(description="running, done, failed, cancelled or interrupted")
    started_at: datetime = Field(description="when it started")
    ended_at: datetime | None = omit_when_null("absent while it runs")
    request: Any = omit_when_null("the options of the request")
    stats: Any = omit_when_null(
        "counts before and after, as in COMPACT's response, also if it ended early; absent while it runs, or "
        "if its instance stopped before it committed anything"
    )
    predicted: Any = omit_when_null("the prediction, if one was made")
    error: Any = omit_when_null("why it failed; if it is done, what failed after files were merged")


class CompactionLogResult(Result):
    compactions: list[LoggedCompaction] = Field(description="newest first; kept for 90 days")
    truncated: bool = Field(description="whether there are more")


@operation(CompactionLog, CompactionLogResult, pool="metadata", examples=EXAMPLES)
def compaction_log(request: CompactionLog, catalog: Catalog, records: JobRecords) -> CompactionLogResult:
    """List past and running compactions: when they ran, who started them, and what they changed."""
    # Without a table, a namespace limits the list only if the request names it.
    namespace = request.namespace if request.table or "namespace" in request.model_fields_set else None
    found = records.log(
        "COMPACT",
        request.limit + 1,
        tenant=request.tenant_id,
        namespace=namespace,
        table=request.table,
        before=_place(request.before, records),
    )
    if request.table is not None and not found:
        # A misspelt name has no compactions either: this refuses it.
        catalog.load(TableName(request.tenant_id, request.namespace, request.table))
    return CompactionLogResult(
        compactions=[_logged(job) for job in found[: request.limit]], truncated=len(found) > request.limit
    )


def _logged(job: JobRecord) -> LoggedCompaction:
    details = {name: job.details.get(name) for name in ("request", "stats", "predicted", "error")}
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


def _place(before: str | None, records: JobRecords) -> Place | None:
    """Where the list begins: after a job, or at a time."""
    if before is None:
        return None
    try:
        moment = datetime.fromisoformat(before)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = moment - datetime.fromtimestamp(0, UTC)
    except (ValueError, OverflowError) as e:
        job = records.find(before)
        if job is None or job.started_ms is None:
            raise InvalidRequest(
                f"before: {before[:80]!r} is neither a time nor a compaction's id; send a time as 2024-01-31T12:00:00Z",
                field="before",
            ) from e
        return job.started_ms, job.id
    # Rounded up: a time between two milliseconds is after the first of them.
    return -(-since // timedelta(milliseconds=1)), None
