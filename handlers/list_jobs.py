"""LIST_JOBS: list long-running work."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.jobs.job import State
from service.jobs.jobs import Jobs
from service.model.times import as_ms
from service.operations.examples import create_table, response, write
from service.operations.operation import Example, Result, omit_when_null, operation
from service.operations.paging import Page, Paged, ScopedRequest

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "letters"}
EXAMPLES = (
    Example(
        "List current and past jobs",
        {"operation": "LIST_JOBS", "tenant_id": "acme", "scope": "tenant", "limit": 10},
        response(snapshot=False, jobs="<any>"),
        given=(
            create_table(ADDRESS, {"text": "string"}),
            write(ADDRESS, {"text": "hello"}),
            {"operation": "COMPACT", **ADDRESS, "async": True},
        ),
    ),
)


class ListJobs(Paged, ScopedRequest):
    operation: Literal["LIST_JOBS"]


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


class ListJobsResult(Page, Result):
    jobs: list[ListedJob] = Field(description="newest first; jobs are listed for a week after their end")


@operation(ListJobs, ListJobsResult, pool="metadata", examples=EXAMPLES)
def list_jobs(request: ListJobs, jobs: Jobs) -> ListJobsResult:
    """List the jobs of a namespace or of a tenant, newest first: what each does, its progress, and how it ended."""
    after = request.place(int, str)
    found = jobs.latest(request.tenant_id, request.only_namespace, request.limit + 1, after)
    page, next_cursor = request.page([ListedJob(**job) for job in found], lambda job: (as_ms(job.created_at), job.id))
    return ListJobsResult(jobs=page, next_cursor=next_cursor)
