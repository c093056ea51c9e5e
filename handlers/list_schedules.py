"""LIST_SCHEDULES: list a tenant's schedules."""

from functools import cache, partial
from typing import Literal

from pydantic import Field

from service.guard.policies import Policies
from service.jobs.schedules.schedules import Schedules
from service.ledger.schedules import ScheduleFilter
from service.model.call import Call
from service.operations.examples import create_table, response
from service.operations.operation import Example, Result, operation
from service.operations.paging import Page, Paged, ScopedRequest, limit_field
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
        {"operation": "LIST_SCHEDULES", "tenant_id": "acme", "scope": "tenant", "runs": 5},
        response(snapshot=False, schedules=[LISTED]),
        given=(create_table(ADDRESS, {"id": "long"}), {"operation": "CREATE_SCHEDULE", **ADDRESS, **HOURLY}),
    ),
)


class ListSchedules(Paged, ScopedRequest):
    operation: Literal["LIST_SCHEDULES"]
    limit: int = limit_field(1000, 1000)
    name: str | None = Field(default=None, description="only the schedule with this name, if it exists")
    table: str | None = Field(default=None, description="only the schedules of this table; default: all of the scope")
    runs: int = Field(default=0, ge=0, le=50, description="how many of the latest runs to list; 50 are kept")


class ListSchedulesResult(Page, Result):
    schedules: list[ScheduleResult] = Field(description="in the order of their names")


@operation(ListSchedules, ListSchedulesResult, pool="metadata", examples=EXAMPLES)
def list_schedules(request: ListSchedules, call: Call, schedules: Schedules, policies: Policies) -> ListSchedulesResult:
    """List the schedules of a namespace or of a tenant: when each is due, what it runs, and how its last run ended."""
    which = ScheduleFilter(request.only_namespace, request.table, request.name)
    [after] = request.place(str) or [None]
    found = schedules.of_tenant(request.tenant_id, which, after, request.limit + 1)
    page, next_cursor = request.page(found, lambda schedule: [schedule.name])
    runs = schedules.runs(page, max(2, request.runs))
    sees_whole = cache(partial(policies.sees_whole, call.principal))
    listed = [
        schedule_result(schedule, runs[schedule.id], request.runs, call.principal, sees_whole) for schedule in page
    ]
    return ListSchedulesResult(schedules=listed, next_cursor=next_cursor)
