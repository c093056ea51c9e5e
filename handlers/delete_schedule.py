"""DELETE_SCHEDULE: delete a schedule."""

from typing import Literal

from pydantic import Field

from service.commits.commit import Commits
from service.jobs.schedules.schedules import Schedules
from service.model.call import Call
from service.operations.examples import response
from service.operations.operation import Example, Result, ScheduleRequest, operation

TENANT = {"tenant_id": "acme"}
WEEKLY = {"name": "weekly", "cron": "0 4 * * SUN", "task": {"operation": "COMPACT"}}
EXAMPLES = (
    Example(
        "Delete a schedule",
        {"operation": "DELETE_SCHEDULE", **TENANT, "name": "weekly"},
        response(snapshot=False, schedule_deleted=True, schedule_existed=True),
        given=({"operation": "CREATE_SCHEDULE", **TENANT, **WEEKLY},),
    ),
    Example(
        "Delete it only if it exists",
        {"operation": "DELETE_SCHEDULE", **TENANT, "name": "never-was", "if_exists": True},
        response(snapshot=False, schedule_deleted=False, schedule_existed=False),
    ),
)


class DeleteSchedule(ScheduleRequest):
    operation: Literal["DELETE_SCHEDULE"]
    if_exists: bool = Field(default=False, description="do nothing if the schedule does not exist")


class DeleteScheduleResult(Result):
    schedule_deleted: bool = Field(description="whether this request deleted it")
    schedule_existed: bool = Field(description="whether it existed before")


@operation(DeleteSchedule, DeleteScheduleResult, pool="tables", examples=EXAMPLES)
def delete_schedule(
    request: DeleteSchedule, call: Call, commits: Commits, schedules: Schedules
) -> DeleteScheduleResult:
    """Delete a schedule and its list of runs; a run in progress commits nothing more."""
    with commits.in_ledger(call) as change:
        deleted = schedules.delete(request.tenant_id, request.name, change.transaction, call.principal)
        if not deleted and not request.if_exists:
            schedules.find(request.tenant_id, request.name, call.principal)  # says what there is
        result = DeleteScheduleResult(schedule_deleted=deleted, schedule_existed=deleted)
        change.respond(result)
    return result
