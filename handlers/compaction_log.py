"""COMPACTION_LOG: what compactions there were, and what came of them."""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.catalog.tables import Catalog
from service.errors import InvalidRequest
from service.ledger.jobs import JobRecord, JobRecords, Place
from service.model.names import TableName
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, operation

EXAMPLES = (
    Example(
        "List what compactions a table had",
        {"operation": "COMPACTION_LOG", "tenant_id": "acme", "namespace": "shop", "table": "quiet", "limit": 10},
        response(snapshot=False, compactions=[], truncated=False),
        given=(
            {
                "operation": "CREATE_TABLE",
                "tenant_id": "acme",
                "namespace": "shop",
                "table": "quiet",
                "schema": {"fields": {"id": {"type": "long"}}},
            },
        ),
    ),
)


class CompactionLog(Request):
    operation: Literal["COMPACTION_LOG"]
    table: str | None = Field(
        default=None,
        description="only this one; without it those of the namespace that is named, or else of all of the tenant's",
    )
    limit: int = Field(default=100, ge=1, le=1000, description="at most so many are listed")
    before: str | None = Field(
        default=None,
        description="only those that began before this time; or the last one's `id`, to page on with those after it",
    )


class LoggedCompaction(BaseModel):
    id: str = Field(description="its own")
    namespace: str = Field(description="the table's namespace")
    table: str = Field(description="the table's name at that time")
    asked_by: str = Field(description="`request <id>`, `schedule <name>` or `auto`")
    state: str = Field(description="running, done, failed, cancelled or interrupted")
    started_at: datetime = Field(description="when it began")
    ended_at: datetime | None = Field(description="null while it runs")
    request: Any = Field(description="what was wished")
    stats: Any = Field(
        description="what was counted before and after, as COMPACT answers it, also where it was ended early; null "
        "while it runs, and where an instance that ended had committed nothing"
    )
    predicted: Any = Field(description="what was expected of it, where that was worked out before")
    error: Any = Field(description="what it failed with; where it is done, what failed once files had been merged")


class CompactionLogResult(Result):
    compactions: list[LoggedCompaction] = Field(description="newest first; kept for 90 days")
    truncated: bool = Field(description="whether there are more")


@operation(CompactionLog, CompactionLogResult, pool="metadata", examples=EXAMPLES)
def compaction_log(request: CompactionLog, catalog: Catalog, records: JobRecords) -> CompactionLogResult:
    """List past and running compactions: when, who asked, what was counted before and after."""
    before = _place(request.before, records)
    # Without a table, those of the namespace if one is named.
    namespace = request.namespace if request.table or "namespace" in request.model_fields_set else None
    found = records.log(
        "COMPACT", request.limit + 1, tenant=request.tenant_id, namespace=namespace, table=request.table, before=before
    )
    if request.table is not None and not found:
        # A name that was misspelt has no history either.
        catalog.load(TableName(request.tenant_id, request.namespace, request.table))
    return CompactionLogResult(
        compactions=[_logged(job) for job in found[: request.limit]], truncated=len(found) > request.limit
    )


def _logged(job: JobRecord) -> LoggedCompaction:
    told = {name: job.details.get(name) for name in ("request", "stats", "predicted", "error")}
    return LoggedCompaction(
        id=job.id,
        namespace=job.table.namespace,
        table=job.table.table,
        asked_by=job.requested_by,
        state=job.state,
        started_at=_moment(job.started_ms or 0),
        ended_at=None if job.ended_ms is None else _moment(job.ended_ms),
        **told,
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def _place(before: str | None, records: JobRecords) -> Place | None:
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
                f"before: {before[:80]!r} is no time and no compaction's id; write it as 2024-01-31T12:00:00Z",
                field="before",
            ) from e
        return job.started_ms, job.id
    # A time between two milliseconds is after the earlier one.
    return -(-(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000), None
