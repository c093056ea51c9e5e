"""Creates, lists, deletes and runs a tenant's schedules."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from service.catalog.tables import Catalog
from service.errors import ScheduleExists, ScheduleNotFound, did_you_mean
from service.jobs.schedules.runner import SkipReason, TablesOf
from service.jobs.schedules.scheduler import Scheduler, next_run_ms
from service.jobs.schedules.tally import RunTally
from service.jobs.schedules.task import RequestRouter, check_task, dumps
from service.jobs.schedules.times import ScheduleTiming, check_timing
from service.ledger.jobs import JobRecord
from service.ledger.ledger import Transaction
from service.ledger.schedules import Schedule, ScheduleFilter, ScheduleRecords
from service.model.identity.principal import ANYONE, LOCAL, Access, Principal
from service.model.names import TableName
from service.model.properties import compaction_policy, is_online
from service.model.times import utc
from service.model.window import in_window
from service.settings import CompactionSettings

Scope = Literal["table", "namespace", "tenant"]


@dataclass(frozen=True)
class SchedulePlan:
    """The schedule that CREATE_SCHEDULE describes."""

    tenant: str
    name: str
    timing: ScheduleTiming
    scope: Scope
    namespace: str | None
    table: str | None
    task: dict[str, Any]
    enabled: bool = True
    owner: Principal = ANYONE
    """With whose rights it runs."""


class Schedules:
    """The schedules of all tenants, and the scheduler that runs them."""

    def __init__(self, notes: ScheduleRecords, catalog: Catalog, scheduler: Scheduler) -> None:
        self._notes = notes
        self._catalog = catalog
        self._router: RequestRouter | None = None
        self.scheduler = scheduler

    def open(self, router: RequestRouter) -> None:
        """Set the router of the schedules' requests, which is built after this."""
        self._router = router
        self.scheduler.open(router)

    def planned(self, plan: SchedulePlan) -> Schedule:
        """The schedule of a plan, which is checked; nothing is stored."""
        assert self._router is not None, "the schedules are not open"
        now_ms = self.scheduler.now_ms()
        now = utc(now_ms)
        check_timing(plan.timing, now)
        task = check_task(plan.task, self._router)
        if plan.scope == "table":
            self._catalog.load(TableName(plan.tenant, plan.namespace or "", plan.table or ""))
        return Schedule(
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
            next_ms=next_run_ms(plan.timing, now) if plan.enabled else None,
            owner=plan.owner.dumps(),
        )

    def store(
        self, schedule: Schedule, within: Transaction | None = None, *, replace: bool, principal: Principal = LOCAL
    ) -> tuple[Schedule, bool]:
        """Store a schedule; returns it as stored, and whether it replaced another, which its sender may change."""
        existing = self._notes.find(schedule.tenant, schedule.name, within)
        if existing is not None and not principal.may("writer", schedule.tenant, existing.namespace):
            raise ScheduleExists(
                f"the name {schedule.name!r} is taken by a schedule of this tenant that you may not change; choose "
                "another name",
                field="name",
            )
        replaced = self._notes.put(schedule, replacing=replace and existing is not None, within=within)
        return self._notes.find(schedule.tenant, schedule.name, within) or schedule, replaced

    def of_tenant(
        self, tenant: str, which: ScheduleFilter | None = None, after: str | None = None, limit: int | None = None
    ) -> list[Schedule]:
        """Some of a tenant's schedules, by name: at most `limit` of those after a name."""
        return self._notes.of_tenant(tenant, which, after, limit)

    def runs(self, schedules: list[Schedule], each: int) -> dict[str, list[JobRecord]]:
        """The latest runs of schedules, newest first, by schedule id."""
        return self._notes.runs([schedule.id for schedule in schedules], each)

    def find(self, tenant: str, name: str, principal: Principal = LOCAL) -> Schedule:
        """A schedule that the principal may change: Forbidden if it may only see it; if not even that, it is as one
        that does not exist."""
        found = self._notes.find(tenant, name)
        if found is not None and principal.may("reader", tenant, found.namespace):
            principal.check(Access("writer", tenant, found.namespace))
            return found
        known = [s.name for s in self._notes.of_tenant(tenant) if principal.may("reader", tenant, s.namespace)]
        listed = f"it has {', '.join(known[:10])}" if known else "it has none yet; make one with CREATE_SCHEDULE"
        near, hint = did_you_mean(name, known, listed)
        raise ScheduleNotFound(
            f"there is no schedule {name!r} of tenant {tenant!r}; {hint}", field="name", suggestion=near
        )

    def delete(self, tenant: str, name: str, within: Transaction | None = None, principal: Principal = LOCAL) -> bool:
        """Delete a schedule; false if there was none that the principal may see. A run in progress commits nothing
        more."""
        found = self._notes.find(tenant, name, within)
        if found is None or not principal.may("reader", tenant, found.namespace):
            return False
        principal.check(Access("writer", tenant, found.namespace))
        return self._notes.delete(tenant, name, within)

    def claim(self, schedule: Schedule, request_id: str, run_id: str, within: Transaction) -> JobRecord | None:
        """Record a run that `scheduler.go` is to begin; None if the schedule runs already."""
        requested_by, now_ms = f"request {request_id}", self.scheduler.now_ms()
        return self._notes.claim(
            schedule, requested_by, now_ms, RunTally().dumps(), due=False, run_id=run_id, within=within
        )

    def find_run(self, run: str) -> JobRecord | None:
        return self._notes.jobs.find(run)


def tables_of(catalog: Catalog) -> TablesOf:
    """A function that lists the tables of a schedule."""

    def found(schedule: Schedule) -> list[TableName]:
        tenant, namespace = schedule.tenant, schedule.namespace
        if namespace is not None and schedule.table is not None:
            return [TableName(tenant, namespace, schedule.table)]
        namespaces = catalog.list_namespaces(tenant) if namespace is None else [(tenant, namespace)]
        return [TableName(*place, table) for place in namespaces for table in catalog.list_tables(*place)]

    return found


def skip_reason(catalog: Catalog, settings: CompactionSettings, now_ms: Callable[[], int]) -> SkipReason:
    """A function that says why a scheduled operation must not start on a table now."""

    def reason(name: TableName, operation: str, by_clock: bool) -> str | None:
        properties = catalog.load(name).properties
        if not is_online(properties):
            return "the table is offline"
        window = compaction_policy(properties, settings).window
        if operation != "COMPACT" or not by_clock or in_window(window, utc(now_ms())):
            return None
        return f"it is outside of the table's window, {window}"

    return reason
