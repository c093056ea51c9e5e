"""A tenant's schedules: made, listed, deleted and run on demand."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from service.catalog.tables import Catalog
from service.errors import ScheduleNotFound, nearest
from service.jobs.schedules.runner import ClaimedRun, SkipReason, TablesOf
from service.jobs.schedules.scheduler import Scheduler, to_ms
from service.jobs.schedules.task import RequestRouter, check_task, dumps
from service.jobs.schedules.times import ScheduleTiming, check_timing, next_run
from service.ledger.jobs import JobRecord
from service.ledger.schedules import Schedule, ScheduleNotes
from service.model.names import TableName
from service.model.properties import compaction_policy, is_online
from service.model.window import in_window
from service.settings import CompactionSettings

Scope = Literal["table", "namespace", "all"]


@dataclass(frozen=True)
class SchedulePlan:
    """What CREATE_SCHEDULE asks for."""

    tenant: str
    name: str
    timing: ScheduleTiming
    scope: Scope
    namespace: str | None
    table: str | None
    task: dict[str, Any]
    enabled: bool = True


class Schedules:
    """The schedules of all tenants, and this instance's part in running them."""

    def __init__(self, notes: ScheduleNotes, catalog: Catalog, scheduler: Scheduler) -> None:
        self._notes = notes
        self._catalog = catalog
        self._door: RequestRouter | None = None
        self.scheduler = scheduler

    def open(self, door: RequestRouter) -> None:
        """Say where the requests of schedules go in: the router, which is made after this."""
        self._door = door
        self.scheduler.open(door)

    def create(self, plan: SchedulePlan, *, replace: bool) -> tuple[Schedule, bool]:
        """The schedule as it is noted now, and whether it took the place of another."""
        assert self._door is not None, "the schedules were not opened"
        now_ms = self.scheduler.now_ms()
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        check_timing(plan.timing, now)
        task = check_task(plan.task, self._door)
        if plan.scope == "table":
            self._catalog.load(TableName(plan.tenant, plan.namespace or "", plan.table or ""))
        following = next_run(plan.timing, now) if plan.enabled else None
        made = Schedule(
            uuid.uuid4().hex,
            plan.tenant,
            plan.name,
            " ".join(plan.timing.cron.split()),
            plan.timing.timezone,
            plan.timing.delay_s,
            plan.scope,
            plan.namespace,
            plan.table,
            dumps(task),
            plan.enabled,
            plan.timing.catch_up,
            created_ms=now_ms,
            next_ms=None if following is None else to_ms(following),
        )
        replaced = self._notes.put(made, replacing=replace)
        return self.find(plan.tenant, plan.name), replaced

    def of_tenant(self, tenant: str) -> list[Schedule]:
        """In the order of their names."""
        return self._notes.of_tenant(tenant)

    def runs(self, schedules: list[Schedule], each: int) -> dict[str, list[JobRecord]]:
        """Their latest runs, newest first, by the schedules' ids."""
        return self._notes.runs([schedule.id for schedule in schedules], each)

    def find(self, tenant: str, name: str) -> Schedule:
        found = self._notes.find(tenant, name)
        if found is not None:
            return found
        known = [schedule.name for schedule in self._notes.of_tenant(tenant)]
        near = nearest(name, known)
        if near:
            hint = f"did you mean {near!r}?"
        else:
            hint = f"it has {', '.join(known[:10])}" if known else "it has none yet; make one with CREATE_SCHEDULE"
        raise ScheduleNotFound(
            f"there is no schedule {name!r} of tenant {tenant!r}; {hint}", field="name", suggestion=near
        )

    def delete(self, tenant: str, name: str) -> bool:
        """Forget a schedule; whether there was one. A run of it that is under way commits nothing more."""
        return self._notes.delete(tenant, name)

    def run(self, schedule: Schedule, request_id: str) -> ClaimedRun | None:
        """Begin a run now; None where the schedule runs already."""
        return self.scheduler.run_now(schedule, f"request {request_id}")

    def found_run(self, run: str) -> JobRecord | None:
        return self._notes.jobs.find(run)


def tables_of(catalog: Catalog) -> TablesOf:
    """Which tables a schedule has, as a function of it."""

    def found(schedule: Schedule) -> list[TableName]:
        tenant, namespace = schedule.tenant, schedule.namespace
        if namespace is not None and schedule.table is not None:
            return [TableName(tenant, namespace, schedule.table)]
        places = catalog.list_namespaces(tenant) if namespace is None else [(tenant, namespace)]
        return [TableName(*place, table) for place in places for table in catalog.list_tables(*place)]

    return found


def skip_reason(catalog: Catalog, settings: CompactionSettings, now_ms: Callable[[], int]) -> SkipReason:
    """Why a scheduled operation must not begin on a table now, as a function of both and of whether it is due."""

    def reason(name: TableName, operation: str, by_clock: bool) -> str | None:
        properties = catalog.load(name).properties
        if not is_online(properties):
            return "the table is offline"
        if operation != "COMPACT" or not by_clock:
            return None
        window = compaction_policy(properties, settings).window
        if in_window(window, datetime.fromtimestamp(now_ms() / 1000, UTC)):
            return None
        return f"it is outside of the table's window, {window}"

    return reason
