"""The ledger's notes of schedules and of their runs: each due run is claimed by one instance, and fenced."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from service.errors import ScheduleExists
from service.ledger.ledger import Ledger, _insert_new
from service.ledger.schema import metadata

_RUNS_KEPT = 50

schedules = Table(
    "schedules",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("name", String(63), nullable=False),
    Column("cron", String(200), nullable=False),
    Column("timezone", String(100), nullable=False),
    Column("delay_s", BigInteger, nullable=False),
    Column("scope", String(10), nullable=False),  # table, namespace, all
    Column("namespace", String(63)),
    Column("table_name", String(63)),
    Column("task", Text, nullable=False),  # JSON: a request without an address
    Column("enabled", Boolean, nullable=False),
    Column("catch_up", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("next_ms", BigInteger, index=True),  # null while disabled, and where no time is left
    Column("fence", BigInteger, nullable=False, server_default="0"),  # grows with each claim
    Column("run", String(40), index=True),  # the one under way
    Column("owner", String(40), nullable=False, server_default=""),  # of the run; empty where it was let go
    Column("beat", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint("tenant", "name"),
)

schedule_runs = Table(
    "schedule_runs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("schedule", String(40), nullable=False, index=True),
    Column("state", String(12), nullable=False),  # running, done, partly, failed, interrupted, missed
    Column("asked_by", String(200), nullable=False),  # "schedule", "request <id>"
    Column("due_ms", BigInteger),  # null where somebody asked for it
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("tally", Text, nullable=False),  # JSON: what became of which table
    Column("error", Text),
)


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
    fence: int = 0
    run: str | None = None
    owner: str = ""
    beat: int = 0


@dataclass(frozen=True)
class Run:
    """One run of a schedule; `tally` is JSON."""

    id: str
    schedule: str
    state: str
    asked_by: str
    due_ms: int | None
    begun_ms: int
    ended_ms: int | None
    attempts: int
    tally: str
    error: str | None = None


@dataclass(frozen=True)
class Claim:
    """A run that is this instance's as long as the schedule has this fence."""

    schedule: Schedule
    run: Run


class ScheduleNotes:
    """The tables `schedules` and `schedule_runs` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def me(self) -> str:
        return self._ledger.owners.me

    def put(self, made: Schedule, *, replacing: bool) -> bool:
        """Note a schedule; true where it took the place of one of that name, whose run and past it keeps.

        So it does a run that is due already, if it catches up, and the next one where the times are the same.
        """
        values = {
            "cron": made.cron,
            "timezone": made.timezone,
            "delay_s": made.delay_s,
            "scope": made.scope,
            "namespace": made.namespace,
            "table_name": made.table,
            "task": made.task,
            "enabled": made.enabled,
            "catch_up": made.catch_up,
            "next_ms": made.next_ms,
        }
        named = {"id": made.id, "tenant": made.tenant, "name": made.name, "created_ms": made.created_ms}
        with self._ledger._writing() as connection:
            new = _insert_new[connection.dialect.name](schedules).values(**named, **values).on_conflict_do_nothing()
            if connection.execute(new.returning(schedules.c.id)).scalar() is not None:
                return False
            if not replacing:
                raise ScheduleExists(
                    f"schedule {made.name!r} exists already; choose another name, or send replace: true", field="name"
                )
            replaced = update(schedules).where(*_named(made.tenant, made.name))
            connection.execute(replaced.values(**{**values, "next_ms": _next_of(made)}))
            return True

    def of_tenant(self, tenant: str) -> list[Schedule]:
        return self._found(schedules.c.tenant == tenant, order=schedules.c.name)

    def find(self, tenant: str, name: str) -> Schedule | None:
        return next(iter(self._found(*_named(tenant, name))), None)

    def delete(self, tenant: str, name: str) -> bool:
        """Forget a schedule and its runs; one that is under way can no longer commit anything."""
        with self._ledger._writing() as connection:
            gone = delete(schedules).where(*_named(tenant, name)).returning(schedules.c.id)
            schedule = connection.execute(gone).scalar()
            if schedule is not None:
                connection.execute(delete(schedule_runs).where(schedule_runs.c.schedule == schedule))
            return schedule is not None

    def at_hand(self, now_ms: int) -> list[Schedule]:
        """Those that are due and those that run, the longest due first."""
        due = schedules.c.enabled & (schedules.c.next_ms <= now_ms)
        return self._found(or_(schedules.c.run.is_not(None), due), order=schedules.c.next_ms)

    def claim(
        self, seen: Schedule, asked_by: str, begun_ms: int, tally: str, *, due: bool, next_ms: int | None = None
    ) -> Claim | None:
        """Begin a run: the due one, after which `next_ms` is due, or one that somebody asked for.

        None where somebody else was first.
        """
        same = [*_same(seen), schedules.c.run.is_(None)]
        run = Run(uuid.uuid4().hex, seen.id, "running", asked_by[:200], None, begun_ms, None, 1, tally)
        values: dict[str, Any] = {"fence": schedules.c.fence + 1, "run": run.id, "owner": self.me, "beat": 0}
        if due:
            same += [schedules.c.enabled, schedules.c.next_ms == seen.next_ms]
            run, values["next_ms"] = replace(run, due_ms=seen.next_ms), next_ms
        with self._ledger._writing() as connection:
            row = connection.execute(update(schedules).where(*same).values(**values).returning(schedules)).one_or_none()
            if row is None:
                return None
            _insert(connection, run)
            return Claim(_schedule(row), run)

    def miss(self, seen: Schedule, now_ms: int, tally: str, next_ms: int | None) -> bool:
        """Leave a due run out; false where somebody else was first."""
        same = [*_same(seen), schedules.c.run.is_(None), schedules.c.next_ms == seen.next_ms]
        left_out = Run(uuid.uuid4().hex, seen.id, "missed", "schedule", seen.next_ms, now_ms, now_ms, 0, tally)
        with self._ledger._writing() as connection:
            noted = update(schedules).where(*same).values(next_ms=next_ms).returning(schedules.c.id)
            if connection.execute(noted).scalar() is None:
                return False
            _insert(connection, left_out)
            return True

    def let_go(self, seen: Schedule) -> bool:
        """Whether nobody can be at a run: it was let go, or whoever began it was alone here, and has ended."""
        owners = self._ledger.owners
        return not seen.owner or (not owners.shared and owners.gone(seen.owner))

    def gone(self, owner: str) -> bool:
        """Whether the instance that runs a schedule cannot be seen: it has ended, or has lost the ledger."""
        return self._ledger.owners.gone(owner)

    def take_over(self, seen: Schedule) -> Claim | None:
        """Go on with a run that was left, or seems to be; None where it has not stood still."""
        same = [*_same(seen), schedules.c.run == seen.run, schedules.c.beat == seen.beat]
        values = {"fence": schedules.c.fence + 1, "owner": self.me, "beat": 0}
        with self._ledger._writing() as connection:
            row = connection.execute(update(schedules).where(*same).values(**values).returning(schedules)).one_or_none()
            if row is None:
                return None
            again = {"state": "running", "attempts": schedule_runs.c.attempts + 1}
            noted = update(schedule_runs).where(schedule_runs.c.id == seen.run).values(**again)
            return Claim(_schedule(row), _run(connection.execute(noted.returning(schedule_runs)).one()))

    def beat(self, claim: Claim) -> bool:
        """Show others that a run goes on; false where it is ours no more."""
        with self._ledger._writing() as connection:
            noted = update(schedules).where(*_held(claim)).values(beat=schedules.c.beat + 1)
            return connection.execute(noted.returning(schedules.c.id)).scalar() is not None

    def holds(self, claim: Claim) -> bool:
        """Whether a run is still ours."""
        with self._ledger._reading() as connection:
            return connection.execute(select(schedules.c.id).where(*_held(claim))).scalar() is not None

    def note(self, claim: Claim, tally: str) -> bool:
        """Note how far a run is; false where it is ours no more."""
        ours = select(schedules.c.id).where(*_held(claim)).exists()
        with self._ledger._writing() as connection:
            noted = update(schedule_runs).where(schedule_runs.c.id == claim.run.id, ours).values(tally=tally)
            return connection.execute(noted.returning(schedule_runs.c.id)).scalar() is not None

    def end(self, claim: Claim, state: str, tally: str, error: str | None, ended_ms: int) -> bool:
        """Note the end of a run; false, and nothing is noted, where it is ours no more."""
        return self._let_go(claim, {"run": None, "owner": ""}, state=state, tally=tally, error=error, ended_ms=ended_ms)

    def release(self, claim: Claim, tally: str) -> bool:
        """Let a run go, for whoever comes next to go on with."""
        return self._let_go(claim, {"owner": ""}, state="interrupted", tally=tally)

    def run(self, run: str) -> Run | None:
        with self._ledger._reading() as connection:
            row = connection.execute(select(schedule_runs).where(schedule_runs.c.id == run)).one_or_none()
        return None if row is None else _run(row)

    def runs(self, of: Sequence[str], each: int) -> dict[str, list[Run]]:
        """The latest runs of schedules, so many of each, newest first."""
        place = func.row_number().over(
            partition_by=schedule_runs.c.schedule, order_by=(schedule_runs.c.begun_ms.desc(), schedule_runs.c.id)
        )
        found: dict[str, list[Run]] = {schedule: [] for schedule in of}
        with self._ledger._reading() as connection:
            for i in range(0, len(of), 500):
                placed = select(schedule_runs, place.label("place"))
                placed_of = placed.where(schedule_runs.c.schedule.in_(of[i : i + 500])).subquery()
                asked = select(placed_of).where(placed_of.c.place <= each).order_by(placed_of.c.place)
                for row in connection.execute(asked):
                    found[row.schedule].append(_run(row))
        return found

    def _let_go(self, claim: Claim, values: dict[str, Any], **noted: Any) -> bool:
        with self._ledger._writing() as connection:
            # The fence grows here too: what the run still has under way must not be committed any more.
            ended = update(schedules).where(*_held(claim)).values(fence=schedules.c.fence + 1, **values)
            if connection.execute(ended.returning(schedules.c.id)).scalar() is None:
                return False
            connection.execute(update(schedule_runs).where(schedule_runs.c.id == claim.run.id).values(**noted))
            return True

    def _found(self, *where: ColumnElement[bool], order: Any = None) -> list[Schedule]:
        with self._ledger._reading() as connection:
            return [_schedule(row) for row in connection.execute(select(schedules).where(*where).order_by(order))]


def _next_of(made: Schedule) -> Any:
    """When a schedule is due that takes the place of another; decided by the ledger, as that may just be claimed."""
    if made.next_ms is None:
        return None
    old = schedules.c
    same_times = and_(old.cron == made.cron, old.timezone == made.timezone, old.delay_s == made.delay_s)
    overdue = and_(old.next_ms <= made.created_ms, literal(made.catch_up))
    stays = and_(old.enabled, old.next_ms.is_not(None), or_(same_times, overdue))
    return case((stays, old.next_ms), else_=made.next_ms)


def _named(tenant: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return schedules.c.tenant == tenant, schedules.c.name == name


def _same(seen: Schedule) -> tuple[ColumnElement[bool], ...]:
    return schedules.c.id == seen.id, schedules.c.fence == seen.fence


def _held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return *_same(claim.schedule), schedules.c.run == claim.run.id


def _insert(connection: Connection, run: Run) -> None:
    connection.execute(insert(schedule_runs), vars(run))
    of_it = schedule_runs.c.schedule == run.schedule
    latest = select(schedule_runs.c.id).where(of_it).order_by(schedule_runs.c.begun_ms.desc(), schedule_runs.c.id)
    connection.execute(delete(schedule_runs).where(of_it, schedule_runs.c.id.not_in(latest.limit(_RUNS_KEPT))))


def _schedule(row: Any) -> Schedule:
    return Schedule(
        row.id,
        row.tenant,
        row.name,
        row.cron,
        row.timezone,
        row.delay_s,
        row.scope,
        row.namespace,
        row.table_name,
        row.task,
        row.enabled,
        row.catch_up,
        row.created_ms,
        row.next_ms,
        row.fence,
        row.run,
        row.owner,
        row.beat,
    )


def _run(row: Any) -> Run:
    return Run(
        row.id,
        row.schedule,
        row.state,
        row.asked_by,
        row.due_ms,
        row.begun_ms,
        row.ended_ms,
        row.attempts,
        row.tally,
        row.error,
    )
