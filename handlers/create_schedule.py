"""CREATE_SCHEDULE: an operation on one table, a namespace's or all of them, at the times of a cron expression."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, field_validator

from service.errors import InvalidRequest
from service.jobs.schedules.schedules import SchedulePlan, Schedules, Scope
from service.jobs.schedules.times import ScheduleTiming, check_delay
from service.model.names import check_name
from service.operations.examples import response
from service.operations.operation import Example, Request, Result, operation
from service.operations.schedule_results import moment

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
GIVEN = ({"operation": "CREATE_TABLE", **ADDRESS, "schema": {"fields": {"id": {"type": "long"}}}},)


def _answer(tables: int) -> dict[str, Any]:
    return response(
        snapshot=False,
        schedule_created=True,
        schedule_replaced=False,
        scope="table" if tables else "all",
        tables=tables,
        next_run="<any>",
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
        _answer(1),
        GIVEN,
    ),
    Example(
        "Compact all of a tenant's tables on working days, a quarter of an hour after six",
        {
            "operation": "CREATE_SCHEDULE",
            "tenant_id": "acme",
            "name": "after-work",
            "cron": "0 18 * * MON-FRI",
            "timezone": "America/New_York",
            "delay": "15m",
            "task": {"operation": "COMPACT", "max_files": 500},
            "catch_up": False,
        },
        _answer(0),
    ),
)


class CreateSchedule(Request):
    operation: Literal["CREATE_SCHEDULE"]
    name: str = Field(description="the schedule's name; one of each to a tenant")
    cron: str = Field(
        max_length=200,
        description="minute, hour, day of the month, month and day of the week, as cron takes them: `0 2 * * *`",
    )
    timezone: str = Field(default="UTC", max_length=100, description="by the clock of which place: `Europe/Zurich`")
    delay: str | None = Field(
        default=None, description="so much later than the expression says: a number of `s`, `m`, `h` or `d`"
    )
    table: str | None = Field(default=None, description="the table, where it is for one")
    scope: Scope | None = Field(
        default=None,
        description="`table`, `namespace` (all of its tables) or `all` (all of the tenant's); by default what is named",
    )
    task: dict[str, Any] = Field(
        description='what to run: `{"operation": "COMPACT"}`, with further fields of that operation but no address'
    )
    enabled: bool = Field(default=True, description="whether it runs by itself; RUN_SCHEDULE runs it all the same")
    catch_up: bool = Field(
        default=True, description="run once, as soon as may be, if it was due while no instance was there"
    )
    replace: bool = Field(default=False, description="take the place of a schedule of this name, if there is one")

    @field_validator("name")
    @classmethod
    def _is_a_schedules_name(cls, value: str) -> str:
        return check_name(value, "name")


class CreateScheduleResult(Result):
    schedule_created: bool = Field(description="whether there was none of this name")
    schedule_replaced: bool = Field(description="whether it took the place of one")
    scope: Scope = Field(description="which tables it has")
    tables: int = Field(description="how many these are now; later ones are among them from then on")
    next_run: datetime | None = Field(description="when it is due next; null where it is not enabled")


@operation(CreateSchedule, CreateScheduleResult, pool="tables", examples=EXAMPLES)
def create_schedule(request: CreateSchedule, schedules: Schedules) -> CreateScheduleResult:
    """Run an operation again and again, at the times of a cron expression, by the clock of a place."""
    scope = _scope(request)
    delay_s = check_delay(request.delay) if request.delay is not None else 0
    plan = SchedulePlan(
        request.tenant_id,
        request.name,
        ScheduleTiming(request.cron, request.timezone, delay_s, request.catch_up),
        scope,
        None if scope == "all" else request.namespace,
        request.table,
        request.task,
        request.enabled,
    )
    made, replaced = schedules.create(plan, replace=request.replace)
    return CreateScheduleResult(
        schedule_created=not replaced,
        schedule_replaced=replaced,
        scope=scope,
        tables=len(schedules.scheduler.tables_of(made)),
        next_run=moment(made.next_ms),
    )


def _scope(request: CreateSchedule) -> Scope:
    """Which tables are meant: what is named, unless the request says it."""
    named = "namespace" in request.model_fields_set
    scope = request.scope or ("table" if request.table is not None else "namespace" if named else "all")
    if scope == "table" and request.table is None:
        raise InvalidRequest('table is missing; scope "table" is for one table', field="table")
    if scope != "table" and request.table is not None:
        raise InvalidRequest(f'table does not go with scope "{scope}"; leave one of them out', field="table")
    if scope == "all" and named:
        raise InvalidRequest('namespace does not go with scope "all"; leave one of them out', field="namespace")
    return scope
