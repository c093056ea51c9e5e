"""LIST_JOBS: list long-running work."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.jobs.job import State
from service.jobs.jobs import Jobs
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, Result, TenantRequest, omit_when_null, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "letters"}
EXAMPLES = (
    Example(
        "List current and past jobs",
        {"operation": "LIST_JOBS", "tenant_id": "acme", "limit": 10},
        response(snapshot=False, jobs="<any>", has_more=False),
        given=(
            create_table(ADDRESS, {"text": "string"}),
            write(ADDRESS, {"text": "hello"}),
            {"operation": "COMPACT", **ADDRESS, "async": True},
        ),
    ),
)


class ListJobs(TenantRequest):
    operation: Literal["LIST_JOBS"]
    limit: int = Field(default=100, ge=1, le=1000, description="the maximum number of jobs")


class ListedJob(BaseModel):
    """A job, as `GET /jobs/{id}` shows it, but without its result or error."""

    id: str = Field(description="its id, for /jobs/{id}")
    kind: str = Field(description="BULK, or the operation")
    table: dict[str, str] = Field(description="the table's address: tenant_id, namespace, table")
    state: State = Field(description="queued, running, done, failed, cancelled or interrupted")
    cancelling: bool = Field(default=False, description="whether it was cancelled but has not ended yet")
    progress: dict[str, Any] = Field(description="its current or last progress")
    created_at: datetime = Field(description="when it was created")
    ended_at: datetime | None = omit_when_null("when it ended; absent if it has not")


class ListJobsResult(Result):
    jobs: list[ListedJob] = Field(description="newest first; jobs are listed for a week after their end")
    has_more: bool = Field(description="whether there are older jobs")


@operation(ListJobs, ListJobsResult, pool="metadata", examples=EXAMPLES)
def list_jobs(request: ListJobs, jobs: Jobs) -> ListJobsResult:
    """List a tenant's jobs, newest first: what each does, its progress, and how it ended."""
    found = jobs.latest(request.tenant_id, request.namespace, request.limit + 1)
    return ListJobsResult(
        jobs=[ListedJob(**job) for job in found[: request.limit]], has_more=len(found) > request.limit
    )
