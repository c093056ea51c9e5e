"""Where tables are, by UUID: a table keeps its UUID when it is renamed, dropped or restored.

Such a step is a job (`ledger/jobs.py`) that claims the table, so that there is one at a time.
"""

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, select, update

from service.errors import CommitConflict
from service.ledger.database import follows, insert_new
from service.ledger.dynamic_tables import follow_renamed, forget_dynamic_table
from service.ledger.jobs import UNFINISHED, JobRecord, JobRecords, add, as_record
from service.ledger.ledger import Ledger, NewBatch, end_batch
from service.ledger.schedules import RUN, SUSPENDED
from service.ledger.schema import exports, ingestion_tables, ingestions, jobs, places, schedules
from service.model.ingest.reserved import trigger_name
from service.model.names import TableName
from service.model.times import now_ms

HERE, DROPPED = "here", "dropped"
RENAME, DROP, RESTORE, REMOVE = "RENAME_TABLE", "DROP_TABLE", "RESTORE_TABLE", "REMOVE_TABLE"
STEPS = (RENAME, DROP, RESTORE)


@dataclass(frozen=True)
class TableRecord:
    """Where a table is, or was when it was dropped, and the step that is in progress."""

    uuid: str
    name: TableName
    state: str = HERE
    offline: bool = False
    dropped_ms: int | None = None
    keep_until_ms: int | None = None
    folder: str | None = None
    step: JobRecord | None = None

    @property
    def to(self) -> TableName:
        """Its name after the step."""
        to = self.step.details.get("to") if self.step else None
        return TableName(self.name.tenant, self.name.namespace, to or self.name.table)

    @property
    def companion(self) -> "TableRecord | None":
        """The table that goes with it in its step, as if the step were its own."""
        found = self.step.details.get("companion") if self.step else None
        if self.step is None or found is None:
            return None
        step = replace(self.step, details={**self.step.details, **found, "companion": None})
        return TableRecord(found["uuid"], replace(self.name, table=found["name"]), step=step)


@dataclass(frozen=True)
class TableStep:
    """A rename, a drop or a restore: with the new name of the table, or with its folder and the time to keep it."""

    kind: str
    to: str | None = None
    keep_until_ms: int | None = None
    folder: str | None = None
    companion: "Companion | None" = None


@dataclass(frozen=True)
class Companion:
    """A table that goes where another one goes: a quarantine, its name before and after, and its folder."""

    uuid: str
    name: str
    to: str | None
    folder: str | None = None


class TableRecords:
    """The table `places` of a ledger. It has no row for a table that was never renamed, dropped or set offline."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def find(self, table_uuid: str) -> TableRecord | None:
        return next(iter(self._found(places.c.table_uuid == table_uuid)), None)

    def begin(self, change: NewBatch, record: TableRecord, step: TableStep) -> TableRecord:
        """Record a step with its batch and the idempotency keys of its request, in one transaction.

        CommitConflict, and nothing is recorded, if another step of the table is in progress.
        """
        companion = step.companion
        details: dict[str, Any] = {"to": step.to, "keep_until_ms": step.keep_until_ms, "folder": step.folder}
        details["companion"] = None if companion is None else asdict(companion)
        job = replace(self._job(step.kind, record), batch=change.batch, details=details)
        with self._ledger._writing() as connection:
            self._ledger.add_batch(connection, change)
            free = add(connection, job)
            _put(connection, record)
            if companion is not None:
                _put(connection, TableRecord(companion.uuid, replace(record.name, table=companion.name)))
            if not free or _state(connection, record.uuid) != record.state:
                raise CommitConflict("another request is renaming, dropping or restoring this table; try again")
        return replace(record, step=job)

    def end(
        self, record: TableRecord, *, happened: bool, schedules_follow: bool = True, companion_follows: bool = False
    ) -> None:
        """Record how a step ended, together with its batch, and move what is kept by the name of the table.

        With `schedules_follow=False` the schedules of the old name stay with that name. With `companion_follows` its
        companion took the same step.
        """
        assert record.step is not None
        with self._ledger._writing() as connection:
            if not _end(connection, jobs.c.id == record.step.id, "done" if happened else "failed"):
                return  # another instance has recorded it
            end_batch(connection, record.step.batch or "", 0 if happened else None)
            if not happened:
                return
            companion, now = record.companion if companion_follows else None, now_ms()
            for one in (record, companion):
                if one is None or one.step is None:
                    continue
                this = places.c.table_uuid == one.uuid
                connection.execute(update(places).where(this).values(**_after(one, one.step, now)))
                if one.step.kind != DROP:
                    _follow(connection, one, schedules_follow)
                _move_trigger(connection, one, one.step)

    def companion_of_step(self, table_uuid: str, batch: str) -> TableName | None:
        """The name that the companion of a table got in a step, or had if it was dropped; None if there was none."""
        companion = self._companion(table_uuid, batch)
        return None if companion is None else companion.to

    def dropped_in_step(self, table_uuid: str, batch: str) -> list[TableRecord]:
        """A table that was dropped, and the companion that was dropped with it."""
        companion = self._companion(table_uuid, batch)
        found = [self.find(one) for one in (table_uuid, companion.uuid if companion else None) if one]
        return [one for one in found if one is not None and one.state == DROPPED]

    def _companion(self, table_uuid: str, batch: str) -> TableRecord | None:
        of_it = (jobs.c.table_uuid == table_uuid, jobs.c.batch == batch, jobs.c.kind.in_(STEPS))
        for row in self._ledger.rows(select(jobs).where(*of_it)):
            step = as_record(row)
            return TableRecord(step.table_uuid, step.table, step=step).companion
        return None

    def mark_dropped(self, record: TableRecord, keep_until_ms: int) -> None:
        """Record a table as dropped that was found in the namespace for dropped ones."""
        moving = select(jobs.c.id).where(jobs.c.claim == record.uuid, UNFINISHED).exists()
        with self._ledger._writing() as connection:
            _put(connection, record)
            free = (places.c.table_uuid == record.uuid, places.c.state == HERE, ~moving)
            values = {"state": DROPPED, "dropped_ms": now_ms(), "keep_until_ms": keep_until_ms}
            connection.execute(update(places).where(*free).values(**values))

    def restorable(
        self, tenant: str, namespace: str, now_ms: int, after: tuple[int, str] | None = None, limit: int | None = None
    ) -> list[TableRecord]:
        """The dropped tables of a namespace that can be restored, latest first: those after a time and a UUID."""
        where = [places.c.tenant == tenant, places.c.namespace == namespace, places.c.state == DROPPED]
        where += [places.c.keep_until_ms > now_ms, jobs.c.id.is_(None)]
        if after is not None:
            where.append(follows(after, places.c.dropped_ms, places.c.table_uuid))
        return self._found(*where, order=(places.c.dropped_ms.desc(), places.c.table_uuid), limit=limit)

    def overdue(self, now_ms: int) -> list[TableRecord]:
        """Dropped tables whose retention time has passed."""
        return self._found(places.c.state == DROPPED, places.c.keep_until_ms <= now_ms, order=(places.c.keep_until_ms,))

    def start_removal(self, record: TableRecord) -> bool:
        """Begin to remove the files of a dropped table; false if another request restores or removes it."""
        owners = self._ledger.owners
        if record.step is not None:
            free = record.step.kind == REMOVE and (record.step.owner == owners.me or owners.gone(record.step.owner))
            return free and JobRecords(self._ledger).take(record.step) is not None
        job = self._job(REMOVE, record)
        with self._ledger._writing() as connection:
            if not add(connection, job):
                return False
            if _state(connection, record.uuid) == DROPPED:
                return True
            connection.execute(delete(jobs).where(jobs.c.id == job.id))
            return False

    def forget(self, table_uuid: str) -> None:
        """Delete the row of a dropped table, whose files are removed."""
        with self._ledger._writing() as connection:
            for kept in (places, ingestion_tables, exports):
                connection.execute(delete(kept).where(kept.c.table_uuid == table_uuid))
            forget_dynamic_table(connection, table_uuid)
            of_it = (schedules.c.namespace == SUSPENDED, schedules.c.table_name == table_uuid)
            triggers = connection.execute(delete(schedules).where(*of_it).returning(schedules.c.id)).scalars().all()
            connection.execute(delete(jobs).where(jobs.c.kind == RUN, jobs.c.claim.in_(triggers)))
            _end(connection, jobs.c.claim == table_uuid, "done")

    def set_offline(self, table_uuid: str, name: TableName, offline: bool) -> None:
        """Record that a table may be offline, or no longer is; its own properties say whether it is."""
        with self._ledger._writing() as connection:
            if offline:
                _put(connection, TableRecord(table_uuid, name))
            connection.execute(update(places).where(places.c.table_uuid == table_uuid).values(offline=offline))

    def offline(self, tenant: str, namespace: str) -> list[TableRecord]:
        """The tables of a namespace that may be offline."""
        of_it = (places.c.tenant == tenant, places.c.namespace == namespace)
        return self._found(*of_it, places.c.state == HERE, places.c.offline)

    def _job(self, kind: str, record: TableRecord) -> JobRecord:
        job_id, me, now = uuid.uuid4().hex, self._ledger.owners.me, now_ms()
        claim = record.uuid
        return JobRecord(job_id, kind, record.name, claim, claim=claim, owner=me, created_ms=now, started_ms=now)

    def _found(
        self, *where: ColumnElement[bool], order: Sequence[Any] = (), limit: int | None = None
    ) -> list[TableRecord]:
        step = [column.label(f"step_{column.name}") for column in jobs.c]
        asked = select(places, *step).outerjoin(jobs, and_(jobs.c.claim == places.c.table_uuid, UNFINISHED))
        return [_record(row) for row in self._ledger.rows(asked.where(*where).order_by(*order).limit(limit))]


def _put(connection: Connection, record: TableRecord) -> None:
    """Insert the row of a table, or update its name if it is not dropped."""
    named = {"tenant": record.name.tenant, "namespace": record.name.namespace, "table_name": record.name.table}
    new = insert_new(connection, places).values(table_uuid=record.uuid, state=HERE, **named)
    here = places.c.state == HERE
    # Another program may have renamed it since.
    connection.execute(new.on_conflict_do_update(index_elements=[places.c.table_uuid], set_=named, where=here))


def _state(connection: Connection, table_uuid: str) -> str | None:
    return connection.execute(select(places.c.state).where(places.c.table_uuid == table_uuid)).scalar()


def _end(connection: Connection, job: ColumnElement[bool], state: str) -> bool:
    ended = update(jobs).where(job, UNFINISHED).values(state=state, ended_ms=now_ms())
    return connection.execute(ended.returning(jobs.c.id)).scalar() is not None


def _after(record: TableRecord, step: JobRecord, now_ms: int) -> dict[str, Any]:
    """The values of a table's row after a step."""
    if step.kind == DROP:
        kept = {name: step.details[name] for name in ("keep_until_ms", "folder")}
        return {"state": DROPPED, "dropped_ms": now_ms, **kept}
    return {"state": HERE, "table_name": record.to.table, "dropped_ms": None, "keep_until_ms": None, "folder": None}


def _follow(connection: Connection, record: TableRecord, schedules_follow: bool) -> None:
    """Give what is kept by the name of a table, and is about this table, its new name."""
    for kept in (jobs, ingestions, ingestion_tables):
        connection.execute(update(kept).where(kept.c.table_uuid == record.uuid).values(table_name=record.to.table))
    follow_renamed(connection, record.uuid, record.to.table)
    if not schedules_follow or record.to == record.name:
        return
    old = record.name
    named = (schedules.c.tenant == old.tenant, schedules.c.namespace == old.namespace)
    of_it = (*named, schedules.c.table_name == old.table)
    connection.execute(update(schedules).where(*of_it).values(table_name=record.to.table))


def _move_trigger(connection: Connection, record: TableRecord, step: JobRecord) -> None:
    """Suspend the schedule that a dropped table's file asks for, so that another table of its name does not get it."""
    before, after = (SUSPENDED, record.uuid), (record.to.namespace, record.to.table)
    if step.kind == DROP:
        before, after = after, before
    of_it = (schedules.c.tenant == record.name.tenant, schedules.c.name == trigger_name(record.uuid))
    place = (schedules.c.namespace == before[0], schedules.c.table_name == before[1])
    values = {"namespace": after[0], "table_name": after[1]}
    connection.execute(update(schedules).where(*of_it, *place).values(**values))


def _record(row: Row[Any]) -> TableRecord:
    same = ("state", "offline", "dropped_ms", "keep_until_ms", "folder")
    name = TableName(row.tenant, row.namespace, row.table_name)
    step = None if row.step_id is None else as_record(row, "step_")
    return TableRecord(row.table_uuid, name, step=step, **{column: row._mapping[column] for column in same})
