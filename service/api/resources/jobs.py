"""GET and DELETE /jobs/{id}: the outcome of long work, and its cancellation."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from handlers.list_jobs import ListedJob
from service.api.exchange import api_of, call_of, failures, response_of
from service.commits.commit import Commits
from service.errors import Forbidden, NotFound
from service.guard.policies import Policies, sees_all
from service.jobs.jobs import Jobs, job_not_found
from service.ledger.jobs import JobRecord
from service.model.call import Call
from service.model.identity.principal import Access, Role
from service.model.names import TableName
from service.operations import envelope
from service.operations.operation import Parts, Result
from service.operations.schedule_results import RunResult, visible_run
from service.pipeline.response import Response as PipelineResponse

JOB = "/jobs/{id}"
router = APIRouter()
_BULK_PROGRESS: Any = {
    "phase": {"type": "string", "description": "staged, writing, committing, done"},
    "records": {"type": "integer"},
    "bytes": {"type": "integer", "description": "of the body"},
}


class JobWithOutcome(ListedJob):
    """A job, and how it ended."""

    progress: dict[str, Any] = Field(
        description="of a bulk load these fields; jobs of other kinds have their own",
        json_schema_extra={"properties": _BULK_PROGRESS},
    )
    result: dict[str, Any] | SkipJsonSchema[None] = Field(
        None,
        description="once done: the response, as without async; of the run of a schedule, once it has ended",
    )
    error: dict[str, Any] | SkipJsonSchema[None] = Field(
        None, description="once failed, cancelled or interrupted: as in a failure"
    )


class JobResult(Result):
    job: JobWithOutcome


@router.get(
    JOB,
    operation_id="job",
    summary="The state, the progress and the outcome of a job",
    response_model=JobResult,
    response_description="the job",
    responses=failures(401, 403, 404, 500, 503),
)
async def job(request: Request, id: str) -> Any:
    return await _respond(request, "reader", api_of(request).service.parts[Jobs].describe, id)


@router.delete(
    JOB,
    operation_id="cancel_job",
    summary="Cancel a job; one that has ended stays as it is",
    response_model=JobResult,
    response_description="the job; it ends as cancelled a moment later",
    responses=failures(401, 403, 404, 500, 503),
)
async def cancel_job(request: Request, id: str) -> Any:
    return await _respond(request, "writer", api_of(request).service.parts[Jobs].cancel, id)


async def _respond(request: Request, role: Role, ask: Callable[[str], dict[str, Any]], job_id: str) -> Response:
    call, parts = call_of(request), api_of(request).service.parts
    jobs = parts[Jobs]

    def asked() -> dict[str, Any]:
        record = jobs.record_of(job_id)
        name = record.table
        place = Access(role, name.tenant, name.namespace or None)  # the run of a schedule may be about all of a tenant
        if not call.principal.allows(replace(place, role="reader")):
            raise job_not_found(job_id)  # as if there were none
        call.about(name)
        call.principal.check(place)
        described = _visible(ask(job_id), name, parts[Policies], call)
        # Who started it may have seen more of the table.
        if _sees_whole(parts, call, record):
            return described
        return {field: value for field, value in described.items() if field not in ("result", "error")}

    described = await asyncio.to_thread(asked)
    found = JobResult.model_construct(job=described)  # type: ignore[arg-type]  # the fields of one
    return response_of(request, PipelineResponse(200, envelope.success(found, call.id, call.elapsed_ms)))


def _visible(described: dict[str, Any], place: TableName, policies: Policies, call: Call) -> dict[str, Any]:
    """A job; of the run of a schedule, what the sender may see of its outcomes."""
    match described.get("result"):
        case {"run": RunResult() as run, **others}:
            seen = visible_run(run, place.tenant, partial(policies.sees_whole, call.principal))
            return {**described, "result": {**others, "run": seen}}
    return described


def _sees_whole(parts: Parts, call: Call, job: JobRecord) -> bool:
    """Whether no policy hides rows of the table that a job is about from somebody, whatever its name is now; or they
    started it, and it is an EXPORT, which shows them nothing else."""
    name, uuid = job.table, job.table_uuid
    if job.kind == "EXPORT" and job.details.get("started_by") == call.principal.name:
        return True
    if not name.table or sees_all(call.principal, name):
        return True
    if not uuid:
        return not parts[Policies].is_bound(call.principal, name)
    try:
        parts[Policies].check_whole_table(call.principal, parts[Commits].find(name, uuid))
    except (Forbidden, NotFound):  # without the table nobody can tell whether it had a policy
        return False
    return True
