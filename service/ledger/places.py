"""The ledger's notes of where tables are: each is known by its UUID, wherever it was renamed, dropped or restored to.

Such a step is a job (`ledger/jobs.py`) that claims the table, so there is one at a time.
"""

import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from service.errors import CommitConflict
from service.ledger.jobs import UNFINISHED, JobRecord, JobRecords, add, as_record
from service.ledger.ledger import Ledger, NewBatch, _insert_new
from service.ledger.schema import jobs, places, schedules
from service.model.names import TableName

HERE, DROPPED = "here", "dropped"
RENAME, DROP, RESTORE, REMOVE = "RENAME_TABLE", "DROP_TABLE", "RESTORE_TABLE", "REMOVE_TABLE"
STEPS = (RENAME, DROP, RESTORE)


@dataclass(frozen=True)
class TableRecord:
    """Where a table is, or was when it was dropped, and the step that is in progress with it."""

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
        """Its address after the step."""
        to = self.step.details.get("to") if self.step else None
        return TableName(self.name.tenant, self.name.namespace, to or self.name.table)


@dataclass(frozen=True)
class TableStep:
    """A rename, drop or restore to take: the table's new name, or how long and with which folder it is kept."""

    kind: str
    to: str | None = None
    keep_until_ms: int | None = None
    folder: str | None = None


class TableRecords:
    """The table `places` of a ledger. A table without a row is where its name says."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def find(self, table_uuid: str) -> TableRecord | None:
        return next(iter(self._found(places.c.table_uuid == table_uuid)), None)

    def begin(self, change: NewBatch, life: TableRecord, step: TableStep) -> TableRecord:
        """Note a step and its batch, with the idempotency keys of its request, in one transaction; the table with it.

        CommitConflict, and nothing is noted, if another one is in progress with the table.
        """
        details = {"to": step.to, "keep_until_ms": step.keep_until_ms, "folder": step.folder}
        job = replace(self._job(step.kind, life), batch=change.batch, details=details)
        with self._ledger._writing() as connection:
            self._ledger._note(connection, change)
            free = add(connection, job)
            _make(connection, life)
            if not free or _state(connection, life.uuid) != life.state:
                raise CommitConflict("another request renames, drops or restores this table just now; try again")
        return replace(life, step=job)

    def end(self, life: TableRecord, *, happened: bool, schedules_follow: bool = True) -> None:
        """Note how a step ended; with it, in one transaction, its batch, and what is kept by the table's name.

        With `schedules_follow=False` those of its old name stay with that name.
        """
        assert life.step is not None
        with self._ledger._writing() as connection:
            if not _end(connection, jobs.c.id == life.step.id, "done" if happened else "failed"):
                return  # somebody else has looked
            self._ledger._end(connection, life.step.batch or "", 0 if happened else None)
            if happened:
                this = places.c.table_uuid == life.uuid
                connection.execute(update(places).where(this).values(**_after(life, life.step)))
                if life.step.kind != DROP:
                    _follow(connection, life, schedules_follow)

    def take_for_dropped(self, life: TableRecord, keep_until_ms: int) -> None:
        """Note a table as dropped that was found where dropped ones are."""
        moving = select(jobs.c.id).where(jobs.c.claim == life.uuid, UNFINISHED).exists()
        with self._ledger._writing() as connection:
            _make(connection, life)
            free = (places.c.table_uuid == life.uuid, places.c.state == HERE, ~moving)
            values = {"state": DROPPED, "dropped_ms": _now_ms(), "keep_until_ms": keep_until_ms}
            connection.execute(update(places).where(*free).values(**values))

    def dropped(self, tenant: str, namespace: str, table: str | None = None) -> list[TableRecord]:
        """A namespace's dropped tables, or those of one name, the last one dropped first."""
        where = [places.c.tenant == tenant, places.c.namespace == namespace, places.c.state == DROPPED]
        if table is not None:
            where.append(places.c.table_name == table)
        return self._found(*where, order=places.c.dropped_ms.desc())

    def overdue(self, now_ms: int) -> list[TableRecord]:
        """Dropped tables that need not be kept any longer."""
        return self._found(places.c.state == DROPPED, places.c.keep_until_ms <= now_ms, order=places.c.keep_until_ms)

    def take_away(self, life: TableRecord) -> bool:
        """Begin to remove a dropped table's files; false if it is being restored, or removed by another instance."""
        owners = self._ledger.owners
        if life.step is not None:
            free = life.step.kind == REMOVE and (life.step.owner == owners.me or owners.gone(life.step.owner))
            return free and JobRecords(self._ledger).take(life.step) is not None
        job = self._job(REMOVE, life)
        with self._ledger._writing() as connection:
            if not add(connection, job):
                return False
            if _state(connection, life.uuid) == DROPPED:
                return True
            connection.execute(delete(jobs).where(jobs.c.id == job.id))
            return False

    def forget(self, table_uuid: str) -> None:
        """A dropped table and its files are removed."""
        with self._ledger._writing() as connection:
            connection.execute(delete(places).where(places.c.table_uuid == table_uuid))
            _end(connection, jobs.c.claim == table_uuid, "done")

    def set_offline(self, table_uuid: str, name: TableName, offline: bool) -> None:
        """Note that a table may be offline, or is not any more; its own properties say whether it is."""
        with self._ledger._writing() as connection:
            if offline:
                _make(connection, TableRecord(table_uuid, name))
            connection.execute(update(places).where(places.c.table_uuid == table_uuid).values(offline=offline))

    def offline(self, tenant: str, namespace: str) -> list[TableRecord]:
        """A namespace's tables that may be offline."""
        of_it = (places.c.tenant == tenant, places.c.namespace == namespace)
        return self._found(*of_it, places.c.state == HERE, places.c.offline)

    def _job(self, kind: str, life: TableRecord) -> JobRecord:
        me, now_ms = self._ledger.owners.me, _now_ms()
        return JobRecord(
            uuid.uuid4().hex,
            kind,
            life.name,
            life.uuid,
            claim=life.uuid,
            owner=me,
            created_ms=now_ms,
            started_ms=now_ms,
        )

    def _found(self, *where: ColumnElement[bool], order: Any = None) -> list[TableRecord]:
        step = [column.label(f"step_{column.name}") for column in jobs.c]
        asked = select(places, *step).outerjoin(jobs, and_(jobs.c.claim == places.c.table_uuid, UNFINISHED))
        with self._ledger._reading() as connection:
            return [_record(row) for row in connection.execute(asked.where(*where).order_by(order))]


def _make(connection: Connection, life: TableRecord) -> None:
    """Have a row of a table; if it is not dropped, with the name that it has now."""
    named = {"tenant": life.name.tenant, "namespace": life.name.namespace, "table_name": life.name.table}
    new = _insert_new[connection.dialect.name](places).values(table_uuid=life.uuid, state=HERE, **named)
    here = places.c.state == HERE
    # Another program may have renamed it since.
    connection.execute(new.on_conflict_do_update(index_elements=[places.c.table_uuid], set_=named, where=here))


def _state(connection: Connection, table_uuid: str) -> str | None:
    return connection.execute(select(places.c.state).where(places.c.table_uuid == table_uuid)).scalar()


def _end(connection: Connection, job: ColumnElement[bool], state: str) -> bool:
    ended = update(jobs).where(job, UNFINISHED).values(state=state, ended_ms=_now_ms())
    return connection.execute(ended.returning(jobs.c.id)).scalar() is not None


def _after(life: TableRecord, step: JobRecord) -> dict[str, Any]:
    """What a step that happened makes of a table's row."""
    if step.kind == DROP:
        kept = {name: step.details[name] for name in ("keep_until_ms", "folder")}
        return {"state": DROPPED, "dropped_ms": _now_ms(), **kept}
    return {"state": HERE, "table_name": life.to.table, "dropped_ms": None, "keep_until_ms": None, "folder": None}


def _follow(connection: Connection, life: TableRecord, schedules_follow: bool) -> None:
    """Have what is kept by a table's name, and is about this table, know its new one."""
    connection.execute(update(jobs).where(jobs.c.table_uuid == life.uuid).values(table_name=life.to.table))
    if not schedules_follow or life.to == life.name:
        return
    old = life.name
    named = (schedules.c.tenant == old.tenant, schedules.c.namespace == old.namespace)
    of_it = (*named, schedules.c.table_name == old.table)
    connection.execute(update(schedules).where(*of_it).values(table_name=life.to.table))


def _record(row: Any) -> TableRecord:
    return TableRecord(
        row.table_uuid,
        TableName(row.tenant, row.namespace, row.table_name),
        row.state,
        bool(row.offline),
        row.dropped_ms,
        row.keep_until_ms,
        row.folder,
        None if row.step_id is None else as_record(row, "step_"),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
