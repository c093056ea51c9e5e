"""The schedules in the ledger. A run is a job that claims its schedule, so that there is one at a time."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, delete, func, literal, or_, select, update

from service.errors import ScheduleExists
from service.ledger.database import insert_new, parts
from service.ledger.jobs import UNFINISHED, JobRecord, JobRecords, add, as_record
from service.ledger.ledger import Ledger, Transaction
from service.ledger.schema import jobs, schedules
from service.model.names import DROPPED_NAMESPACE, TableName

RUN = "RUN_SCHEDULE"
# The namespace of schedules whose table is dropped, which have its UUID for a name; no request can name it.
SUSPENDED = DROPPED_NAMESPACE[0]
_RUNS_KEPT = 50
# What a schedule that replaces another one does not change.
_KEPT = ("id", "tenant", "name", "created_ms")
_IS_LIVE = or_(schedules.c.namespace.is_(None), schedules.c.namespace != SUSPENDED)


@dataclass(frozen=True)
class Schedule:
    """A schedule as the ledger knows it; `task` is JSON."""

    id: str
    tenant: str
    name: str
    cron: str
    timezone: str
    delay_s: int
    scope: str
    namespace: str | None
    table: str | None
    task: str
    enabled: bool
    catch_up: bool
    created_ms: int
    next_ms: int | None
    owner: str | None = None
    """Who created it, with whose rights it runs: a principal as JSON; None if it was created without authentication."""
    run: JobRecord | None = None
    """The run in progress, or left by an instance that is gone."""


@dataclass(frozen=True)
class ScheduleFilter:
    """Which schedules: those for exactly this namespace or table, and of this name; None for any."""

    namespace: str | None = None
    table: str | None = None
    name: str | None = None


class ScheduleRecords:
    """The table `schedules` of a ledger, and the jobs that are runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.jobs = JobRecords(ledger)

    def put(self, made: Schedule, *, replacing: bool, within: Transaction | None = None) -> bool:
        """Store a schedule; true if it replaced the one of that name, of which it keeps the runs.

        It also keeps the next due time, if the times are the same, or if that time has passed and it catches up.
        """
        values = vars(made) | {"table_name": made.table}
        del values["table"], values["run"]
        with self._ledger._writing(within) as connection:
            new = insert_new(connection, schedules).values(**values).on_conflict_do_nothing()
            if connection.execute(new.returning(schedules.c.id)).scalar() is not None:
                return False
            if not replacing:
                raise ScheduleExists(
                    f"schedule {made.name!r} already exists; choose another name, or send replace: true", field="name"
                )
            changed = {name: value for name, value in values.items() if name not in _KEPT} | {"next_ms": _next_of(made)}
            connection.execute(update(schedules).where(*_named(made.tenant, made.name)).values(**changed))
            return True

    def of_tenant(
        self, tenant: str, which: ScheduleFilter | None = None, after: str | None = None, limit: int | None = None
    ) -> list[Schedule]:
        """A tenant's schedules by name, or some of them: at most `limit` of those after a name."""
        where = [schedules.c.tenant == tenant, _IS_LIVE]
        if which is not None:
            named = {"namespace": which.namespace, "table_name": which.table, "name": which.name}
            where += [schedules.c[column] == value for column, value in named.items() if value is not None]
        if after is not None:
            where.append(schedules.c.name > after)
        return self._found(*where, order=schedules.c.name, limit=limit)

    def find(self, tenant: str, name: str, within: Transaction | None = None) -> Schedule | None:
        return next(iter(self._found(*_named(tenant, name), within=within)), None)

    def delete(self, tenant: str, name: str, within: Transaction | None = None) -> bool:
        """Delete a schedule and its runs; a run in progress can no longer commit anything."""
        with self._ledger._writing(within) as connection:
            gone = delete(schedules).where(*_named(tenant, name)).returning(schedules.c.id)
            schedule = connection.execute(gone).scalar()
            if schedule is not None:
                connection.execute(delete(jobs).where(jobs.c.kind == RUN, jobs.c.claim == schedule))
            return schedule is not None

    def due_or_running(self, now_ms: int) -> list[Schedule]:
        """The schedules that are due or running, the longest due first."""
        due = schedules.c.enabled & (schedules.c.next_ms <= now_ms) & _IS_LIVE
        return self._found(or_(jobs.c.id.is_not(None), due), order=schedules.c.next_ms)

    def claim(
        self,
        seen: Schedule,
        requested_by: str,
        now_ms: int,
        tally: str,
        *,
        due: bool,
        next_ms: int | None = None,
        run_id: str | None = None,
        within: Transaction | None = None,
    ) -> JobRecord | None:
        """Begin a run: the due one, after which `next_ms` is due, or one that was requested.

        None, and nothing is recorded, if another instance was faster.
        """
        run = self._run(seen, requested_by, now_ms, tally, seen.next_ms if due else None)
        run = replace(run, id=run_id or run.id)
        with self._ledger._writing(within) as connection:
            # Other instances that are about to begin it wait here.
            now = connection.execute(select(schedules).where(schedules.c.id == seen.id).with_for_update()).one_or_none()
            if now is None or (due and not (now.enabled and now.next_ms == seen.next_ms)):
                return None
            if not _add(connection, run):
                return None
            if due:
                connection.execute(update(schedules).where(schedules.c.id == seen.id).values(next_ms=next_ms))
            return run

    def miss(self, seen: Schedule, now_ms: int, tally: str, next_ms: int | None) -> bool:
        """Skip a due run; false if another instance was faster."""
        missed = self._run(seen, "schedule", now_ms, tally, seen.next_ms)
        due = (schedules.c.id == seen.id, schedules.c.next_ms == seen.next_ms)
        with self._ledger._writing() as connection:
            moved = update(schedules).where(*due).values(next_ms=next_ms).returning(schedules.c.id)
            if connection.execute(moved).scalar() is None:
                return False
            return _add(connection, replace(missed, state="missed", fence=0, ended_ms=now_ms))

    def runs(self, of: Sequence[str], each: int) -> dict[str, list[JobRecord]]:
        """The latest runs of each of these schedules, newest first."""
        newest_first = (jobs.c.created_ms.desc(), jobs.c.id)
        rank = func.row_number().over(partition_by=jobs.c.claim, order_by=newest_first).label("rank")
        found: dict[str, list[JobRecord]] = {schedule: [] for schedule in of}
        for some in parts(of):
            ranked = select(jobs, rank).where(jobs.c.kind == RUN, jobs.c.claim.in_(some)).subquery()
            for row in self._ledger.rows(select(ranked).where(ranked.c.rank <= each).order_by(ranked.c.rank)):
                found[row.claim].append(as_record(row))
        return found

    def _run(self, of: Schedule, requested_by: str, now_ms: int, tally: str, due_ms: int | None) -> JobRecord:
        return JobRecord(
            uuid.uuid4().hex,
            RUN,
            TableName(of.tenant, of.namespace or "", of.table or ""),
            claim=of.id,
            owner=self.jobs.me,
            requested_by=requested_by[:200],
            progress=tally,
            details={"due_ms": due_ms},
            created_ms=now_ms,
            started_ms=now_ms,
        )

    def _found(
        self,
        *where: ColumnElement[bool],
        order: Any = None,
        limit: int | None = None,
        within: Transaction | None = None,
    ) -> list[Schedule]:
        run = [column.label(f"run_{column.name}") for column in jobs.c]
        asked = select(schedules, *run).outerjoin(jobs, and_(jobs.c.claim == schedules.c.id, UNFINISHED))
        asked = asked.where(*where).order_by(order).limit(limit)
        return [_schedule(row) for row in self._ledger.rows(asked, within=within)]


def _next_of(made: Schedule) -> Any:
    """When a schedule that replaces another is due; the ledger decides, because a run may be claimed at this moment."""
    if made.next_ms is None:
        return None
    old = schedules.c
    same_times = and_(old.cron == made.cron, old.timezone == made.timezone, old.delay_s == made.delay_s)
    overdue = and_(old.next_ms <= made.created_ms, literal(made.catch_up))
    stays = and_(old.enabled, old.next_ms.is_not(None), or_(same_times, overdue))
    return case((stays, old.next_ms), else_=made.next_ms)


def _named(tenant: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return schedules.c.tenant == tenant, schedules.c.name == name


def _add(connection: Connection, run: JobRecord) -> bool:
    """Record a run, and delete those that are too old."""
    if not add(connection, run):
        return False
    of_it = (jobs.c.kind == RUN, jobs.c.claim == run.claim)
    latest = select(jobs.c.id).where(*of_it).order_by(jobs.c.created_ms.desc(), jobs.c.id).limit(_RUNS_KEPT)
    connection.execute(delete(jobs).where(*of_it, jobs.c.id.not_in(latest)))
    return True


def _schedule(row: Row[Any]) -> Schedule:
    values = {column.name: row._mapping[column.name] for column in schedules.c}
    run = None if row.run_id is None else as_record(row, "run_")
    if values["scope"] == "all":  # as it was called before
        values["scope"] = "tenant"
    return Schedule(table=values.pop("table_name"), run=run, **values)
