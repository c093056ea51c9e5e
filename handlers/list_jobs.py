"""LIST_JOBS: what long work there is, and was."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from service.jobs.job import State
from service.jobs.jobs import Jobs
from service.operations.examples import response
from service.operations.operation import Example, Result, WideRequest, operation

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "letters"}
EXAMPLES = (
    Example(
        "See what is under way, and what was",
        {"operation": "LIST_JOBS", "tenant_id": "acme", "limit": 10},
        response(
            snapshot=False,
            jobs=[
                {
                    "id": "<any>",
                    "kind": "COMPACT",
                    "table": {**ADDRESS, "tenant_id": "<any>"},
                    "state": "<any>",
                    "cancelling": False,
                    "progress": "<any>",
                    "created_at": "<any>",
                    "ended_at": "<any>",
                }
            ],
            has_more=False,
        ),
        given=(
            {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"text": {"type": "string"}}}},
            {"operation": "WRITE", **ADDRESS, "records": [{"text": "hello"}]},
            {"operation": "COMPACT", **ADDRESS, "async": True},
        ),
    ),
)


class ListJobs(WideRequest):
    operation: Literal["LIST_JOBS"]
    limit: int = Field(default=100, ge=1, le=1000, description="at most so many jobs")


class JobTold(BaseModel):
    """A job, as `GET /jobs/{id}` shows it, without what came of it."""

    id: str = Field(description="what stands under /jobs/{id}")
    kind: str = Field(description="BULK, or the operation")
    table: dict[str, str] = Field(description="its address: tenant_id, namespace, table")
    state: State = Field(description="queued, running, done, failed, cancelled or interrupted")
    cancelling: bool = Field(default=False, description="whether it was called off and has not ended yet")
    progress: dict[str, Any] = Field(description="how far it is, or was at its end")
    created_at: datetime = Field(description="when it was begun")
    ended_at: datetime | None = Field(default=None, description="when it ended; null while it has not")


class ListJobsResult(Result):
    jobs: list[JobTold] = Field(description="the latest first; those that ended more than a week ago are forgotten")
    has_more: bool = Field(description="whether there are older ones than these")


@operation(ListJobs, ListJobsResult, pool="metadata", examples=EXAMPLES)
def list_jobs(request: ListJobs, jobs: Jobs) -> ListJobsResult:
    """List a tenant's jobs, the latest first: what each does, how far it is, how it ended."""
    found = jobs.latest(request.tenant_id, request.namespace, request.limit + 1)
    return ListJobsResult(jobs=[JobTold(**job) for job in found[: request.limit]], has_more=len(found) > request.limit)
