"""LIST_SCHEDULES: what is run when, and what came of it."""

from typing import Literal

from pydantic import Field

from service.jobs.schedules.schedules import Schedules
from service.ledger.schedules import Schedule
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, operation
from service.operations.schedule_results import ScheduleResult, schedule_result

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "parcels"}
TASK = {"operation": "COMPACT", "force": True}
EXAMPLES = (
    Example(
        "See what is scheduled",
        {"operation": "LIST_SCHEDULES", "tenant_id": "acme", "runs": 5},
        response(
            snapshot=False,
            schedules=[
                {
                    "name": "hourly",
                    "cron": "30 * * * *",
                    "timezone": "UTC",
                    "delay": None,
                    "scope": "table",
                    "namespace": "shop",
                    "table": "parcels",
                    "task": TASK,
                    "enabled": True,
                    "catch_up": True,
                    "created_at": "<any>",
                    "next_run": "<any>",
                    "running": None,
                    "last_run": None,
                    "runs": [],
                }
            ],
        ),
        given=(
            {"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}},
            {"operation": "CREATE_SCHEDULE", **ADDRESS, "name": "hourly", "cron": "30 * * * *", "task": TASK},
        ),
    ),
)


class ListSchedules(Request):
    operation: Literal["LIST_SCHEDULES"]
    name: str | None = Field(default=None, description="only the one of this name, if it is there")
    table: str | None = Field(
        default=None, description="only those of this table; with `namespace` alone those of that namespace"
    )
    runs: int = Field(default=0, ge=0, le=50, description="list so many of each one's latest runs; 50 are kept")


class ListSchedulesResult(Result):
    schedules: list[ScheduleResult] = Field(description="in the order of their names")


@operation(ListSchedules, ListSchedulesResult, pool="metadata", examples=EXAMPLES)
def list_schedules(request: ListSchedules, schedules: Schedules) -> ListSchedulesResult:
    """List a tenant's schedules: when each is due, what it does, how its last run ended."""
    found = [s for s in schedules.of_tenant(request.tenant_id) if _meant(request, s)]
    runs = schedules.runs(found, max(2, request.runs))
    return ListSchedulesResult(schedules=[schedule_result(s, runs[s.id], request.runs) for s in found])


def _meant(request: ListSchedules, schedule: Schedule) -> bool:
    """Where a table or a namespace is named, what belongs to it alone."""
    where = request.table is not None or "namespace" in request.model_fields_set
    return (
        request.name in (None, schedule.name)
        and request.table in (None, schedule.table)
        and (not where or request.namespace == schedule.namespace)
    )
