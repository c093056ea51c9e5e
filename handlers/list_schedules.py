"""LIST_SCHEDULES: list a tenant's schedules."""

from typing import Literal

from pydantic import Field

from service.jobs.schedules.schedules import Schedules
from service.ledger.schedules import Schedule
from service.operations.examples import create_table, response
from service.operations.operation import Example, Request, Result, operation
from service.operations.schedule_results import ScheduleResult, schedule_result

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "parcels"}
HOURLY = {"name": "hourly", "cron": "30 * * * *", "task": {"operation": "COMPACT", "force": True}}
LISTED = {
    "name": "hourly",
    "cron": "30 * * * *",
    "timezone": "UTC",
    "scope": "table",
    "namespace": "shop",
    "table": "parcels",
    "task": HOURLY["task"],
    "enabled": True,
    "catch_up": True,
    "created_at": "<any>",
    "next_run_at": "<any>",
    "runs": [],
}
EXAMPLES = (
    Example(
        "List a tenant's schedules",
        {"operation": "LIST_SCHEDULES", "tenant_id": "acme", "runs": 5},
        response(snapshot=False, schedules=[LISTED]),
        given=(create_table(ADDRESS, {"id": "long"}), {"operation": "CREATE_SCHEDULE", **ADDRESS, **HOURLY}),
    ),
)


class ListSchedules(Request):
    operation: Literal["LIST_SCHEDULES"]
    name: str | None = Field(default=None, description="only the schedule with this name, if it exists")
    table: str | None = Field(
        default=None, description="only the schedules of this table; `namespace` alone: only those of the namespace"
    )
    runs: int = Field(default=0, ge=0, le=50, description="how many of the latest runs to list; 50 are kept")


class ListSchedulesResult(Result):
    schedules: list[ScheduleResult] = Field(description="in the order of their names")


@operation(ListSchedules, ListSchedulesResult, pool="metadata", examples=EXAMPLES)
def list_schedules(request: ListSchedules, schedules: Schedules) -> ListSchedulesResult:
    """List a tenant's schedules: when each is due, what it runs, and how its last run ended."""
    found = [s for s in schedules.of_tenant(request.tenant_id) if _matches(request, s)]
    runs = schedules.runs(found, max(2, request.runs))
    return ListSchedulesResult(schedules=[schedule_result(s, runs[s.id], request.runs) for s in found])


def _matches(request: ListSchedules, schedule: Schedule) -> bool:
    """A table or a namespace in the request matches only the schedules of exactly that table or namespace."""
    addressed = request.table is not None or "namespace" in request.model_fields_set
    return (
        request.name in (None, schedule.name)
        and request.table in (None, schedule.table)
        and (not addressed or request.namespace == schedule.namespace)
    )
