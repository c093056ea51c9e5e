"""DELETE_SCHEDULE: an end to it."""

from typing import Any, Literal

from pydantic import Field

from service.jobs.schedules.schedules import Schedules
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, operation


def _answer(*, there: bool) -> dict[str, Any]:
    return response(snapshot=False, schedule_deleted=there, schedule_existed=there)


EXAMPLES = (
    Example(
        "Delete a schedule",
        {"operation": "DELETE_SCHEDULE", "tenant_id": "acme", "name": "weekly"},
        _answer(there=True),
        (
            {
                "operation": "CREATE_SCHEDULE",
                "tenant_id": "acme",
                "name": "weekly",
                "cron": "0 4 * * SUN",
                "task": {"operation": "COMPACT"},
            },
        ),
    ),
    Example(
        "Delete it if it is there",
        {"operation": "DELETE_SCHEDULE", "tenant_id": "acme", "name": "never-was", "if_exists": True},
        _answer(there=False),
    ),
)


class DeleteSchedule(Request):
    operation: Literal["DELETE_SCHEDULE"]
    name: str = Field(description="the schedule's name")
    if_exists: bool = Field(default=False, description="succeed where there is none of this name")


class DeleteScheduleResult(Result):
    schedule_deleted: bool = Field(description="whether this request deleted it")
    schedule_existed: bool = Field(description="whether it was there")


@operation(DeleteSchedule, DeleteScheduleResult, pool="tables", examples=EXAMPLES)
def delete_schedule(request: DeleteSchedule, schedules: Schedules) -> DeleteScheduleResult:
    """Delete a schedule and what is known of its runs; one that is under way commits nothing more."""
    if not request.if_exists:
        schedules.find(request.tenant_id, request.name)
    deleted = schedules.delete(request.tenant_id, request.name)
    return DeleteScheduleResult(schedule_deleted=deleted, schedule_existed=deleted)
