"""CREATE_SCHEDULE: run an operation at the times of a cron expression."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from service.commits.commit import Commits
from service.errors import InvalidRequest
from service.jobs.schedules.schedules import SchedulePlan, Schedules, Scope
from service.jobs.schedules.times import ScheduleTiming, parse_delay
from service.model.call import Call
from service.model.names import check_name
from service.model.times import utc_or_none
from service.operations.examples import create_table, response
from service.operations.operation import Example, Reach, Result, ScheduleRequest, omit_when_null, operation
from service.operations.paging import check_scope

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
CREATED = response(
    snapshot=False, schedule_created=True, schedule_replaced=False, scope="table", tables=1, next_run_at="<any>"
)
EXAMPLES = (
    Example(
        "Compact a table every night",
        {
            "operation": "CREATE_SCHEDULE",
            **ADDRESS,
            "name": "nightly",
            "cron": "0 2 * * *",
            "timezone": "Europe/Zurich",
            "task": {"operation": "COMPACT"},
        },
        CREATED,
        given=(create_table(ADDRESS, {"id": "long"}),),
    ),
    Example(
        "Compact all tables of a tenant at 18:15 on working days",
        {
            "operation": "CREATE_SCHEDULE",
            "tenant_id": "acme",
            "scope": "tenant",
            "name": "after-work",
            "cron": "0 18 * * MON-FRI",
            "timezone": "America/New_York",
            "delay": "15m",
            "task": {"operation": "COMPACT", "max_files": 500},
            "catch_up": False,
        },
        {**CREATED, "scope": "tenant", "tables": 0},
    ),
)


class CreateSchedule(ScheduleRequest):
    operation: Literal["CREATE_SCHEDULE"]
    name: Annotated[str, AfterValidator(partial(check_name, field="name"))] = Field(
        description="the schedule's name, unique in the tenant"
    )
    cron: str = Field(
        max_length=200,
        description="a cron expression such as `0 2 * * *`: minute, hour, day of month, month, day of week",
    )
    timezone: str = Field(default="UTC", max_length=100, description="an IANA time zone, such as `Europe/Zurich`")
    delay: str | None = Field(default=None, description="run this much later: a number of `s`, `m`, `h` or `d`")
    table: str | None = Field(default=None, description="the table, if the schedule covers only one")
    scope: Scope | None = Field(
        default=None,
        description="`table`, `namespace` (all of its tables) or `tenant` (all tables of the tenant); default: "
        "`table` if the request names one, or else `namespace`",
    )
    task: dict[str, Any] = Field(
        description='what to run: `{"operation": "COMPACT"}` and other fields of that operation, but not the address'
    )
    enabled: bool = Field(default=True, description="whether it runs automatically; RUN_SCHEDULE always runs it")
    catch_up: bool = Field(default=True, description="run once, as soon as possible, after missed runs")
    replace: bool = Field(default=False, description="replace the schedule with this name, if there is one")

    @property
    def reach(self) -> Reach:
        return "tenant" if self.scope == "tenant" else "namespace"


class CreateScheduleResult(Result):
    schedule_created: bool = Field(description="whether the schedule is new")
    schedule_replaced: bool = Field(description="whether it replaced another schedule")
    scope: Scope = Field(description="which tables it covers")
    tables: int = Field(description="how many these are now; tables created later are covered too")
    next_run_at: datetime | None = omit_when_null("when it is next due; absent if it is disabled")


@operation(CreateSchedule, CreateScheduleResult, pool="tables", examples=EXAMPLES)
def create_schedule(
    request: CreateSchedule, call: Call, commits: Commits, schedules: Schedules
) -> CreateScheduleResult:
    """Schedule an operation on tables by a cron expression in a time zone."""
    scope = _scope(request)
    delay_s = parse_delay(request.delay) if request.delay is not None else 0
    schedule = schedules.planned(
        SchedulePlan(
            request.tenant_id,
            request.name,
            ScheduleTiming(request.cron, request.timezone, delay_s, request.catch_up),
            scope,
            None if scope == "tenant" else request.namespace,
            request.table,
            request.task,
            request.enabled,
            call.principal,
        )
    )
    tables = len(schedules.scheduler.tables_of(schedule))
    with commits.in_ledger(call) as change:
        stored, replaced = schedules.store(
            schedule, change.transaction, replace=request.replace, principal=call.principal
        )
        result = CreateScheduleResult(
            schedule_created=not replaced,
            schedule_replaced=replaced,
            scope=scope,
            tables=tables,
            next_run_at=utc_or_none(stored.next_ms),
        )
        change.respond(result)
    return result


def _scope(request: CreateSchedule) -> Scope:
    scope = request.scope or ("table" if request.table is not None else "namespace")
    if scope == "table" and request.table is None:
        raise InvalidRequest('table is missing; scope "table" requires it', field="table")
    if scope != "table" and request.table is not None:
        raise InvalidRequest(f'table contradicts scope "{scope}"; send only one of them', field="table")
    check_scope(request, scope)
    return scope
