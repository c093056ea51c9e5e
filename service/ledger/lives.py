"""The ledger's notes of where tables are: renamed, dropped or on their way, each known by its UUID."""

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Index,
    String,
    Table,
    Text,
    delete,
    false,
    select,
    update,
)

from service.errors import CommitConflict
from service.ledger.compactions import compaction_log
from service.ledger.jobs import jobs
from service.ledger.ledger import Begun, Ledger, _insert_new
from service.ledger.repartitions import repartitions
from service.ledger.schedules import schedules
from service.ledger.schema import metadata
from service.names import TableName

HERE, DROPPED = "here", "dropped"
RENAME, DROP, RESTORE, REMOVE = "rename", "drop", "restore", "remove"

lives = Table(
    "lives",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),  # of a dropped one: what it was called
    Column("state", String(10), nullable=False),  # here, dropped
    Column("step", String(10), index=True),  # rename, drop, restore or remove, while it is under way
    Column("to_name", String(63)),  # what that makes of its name
    Column("batch", String(40), nullable=False, server_default=""),
    Column("owner", String(40), nullable=False, server_default=""),
    Column("offline", Boolean, nullable=False, server_default=false()),
    Column("dropped_ms", BigInteger),
    Column("keep_until_ms", BigInteger),
    Column("folder", Text),  # that is to go with a dropped table; null where others may need what is in it
)
Index("lives_by_name", lives.c.tenant, lives.c.namespace, lives.c.table_name)


@dataclass(frozen=True)
class Life:
    """Where a table is, or was when it was dropped, and the step that is under way with it."""

    uuid: str
    name: TableName
    state: str = HERE
    step: str | None = None
    to_name: str | None = None
    batch: str = ""
    owner: str = ""
    offline: bool = False
    dropped_ms: int | None = None
    keep_until_ms: int | None = None
    folder: str | None = None

    @property
    def to(self) -> TableName:
        """Its address after the step."""
        return TableName(self.name.tenant, self.name.namespace, self.to_name or self.name.table)


@dataclass(frozen=True)
class Step:
    """What is to become of a table: another name, another state."""

    kind: str
    to_name: str | None = None
    keep_until_ms: int | None = None
    folder: str | None = None


class Lives:
    """The table `lives` of a ledger. A table without a row is where its name says."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def find(self, table_uuid: str) -> Life | None:
        return next(iter(self._found(lives.c.table_uuid == table_uuid)), None)

    def begin(self, change: Begun, life: Life, step: Step) -> None:
        """Note a step and its batch, with the keys of who asked for it, in one transaction.

        CommitConflict, and nothing is noted, where another one is under way with the table.
        """
        values = {
            "step": step.kind,
            "to_name": step.to_name,
            "batch": change.batch,
            "owner": self._ledger.owners.me,
            "keep_until_ms": step.keep_until_ms,
            "folder": step.folder,
        }
        with self._ledger._writing() as connection:
            self._ledger._note(connection, change)
            _make(connection, life)
            free = (lives.c.table_uuid == life.uuid, lives.c.step.is_(None), lives.c.state == life.state)
            taken = update(lives).where(*free).values(**values).returning(lives.c.table_uuid)
            if connection.execute(taken).scalar() is None:
                raise CommitConflict("somebody else renames, drops or restores this table just now; try again")

    def end(self, life: Life, *, happened: bool, schedules_follow: bool = True) -> None:
        """Note what became of a step; with it, in one transaction, of its batch, and what is kept by the table's name.

        With `schedules_follow=False` those of its old name stay with that name.
        """
        ended: dict[str, Any] = {"step": None, "to_name": None, "owner": ""}
        with self._ledger._writing() as connection:
            this = (lives.c.table_uuid == life.uuid, lives.c.step == life.step, lives.c.batch == life.batch)
            values = ended | (_after(life, _now_ms()) if happened else {})
            if not happened and life.step == DROP:
                values["keep_until_ms"] = None
            noted = update(lives).where(*this).values(**values).returning(lives.c.table_uuid)
            if connection.execute(noted).scalar() is None:
                return  # somebody else has looked
            self._ledger._end(connection, life.batch, 0 if happened else None)
            if happened and life.step in (RENAME, RESTORE):
                _follow(connection, life, schedules_follow)

    def take_for_dropped(self, life: Life, keep_until_ms: int) -> None:
        """Note a table as dropped that was found where dropped ones are."""
        with self._ledger._writing() as connection:
            _make(connection, life)
            free = (lives.c.table_uuid == life.uuid, lives.c.step.is_(None), lives.c.state == HERE)
            values = {"state": DROPPED, "dropped_ms": _now_ms(), "keep_until_ms": keep_until_ms}
            connection.execute(update(lives).where(*free).values(**values))

    def dropped(self, tenant: str, namespace: str, table: str | None = None) -> list[Life]:
        """A namespace's dropped tables, or those of one name, the last one dropped first."""
        where = [lives.c.tenant == tenant, lives.c.namespace == namespace, lives.c.state == DROPPED]
        if table is not None:
            where.append(lives.c.table_name == table)
        return self._found(*where, order=lives.c.dropped_ms.desc())

    def overdue(self, now_ms: int) -> list[Life]:
        """Dropped tables that need be kept no longer."""
        return self._found(lives.c.state == DROPPED, lives.c.keep_until_ms <= now_ms, order=lives.c.keep_until_ms)

    def take_away(self, life: Life) -> bool:
        """Begin to remove a dropped table's files; false where somebody restores it, or removes it already."""
        if life.step is not None and not (life.step == REMOVE and self._can_be_ours(life)):
            return False
        values = {"step": REMOVE, "owner": self._ledger.owners.me, "batch": ""}
        same = (lives.c.step.is_(None) if life.step is None else lives.c.step == life.step, lives.c.owner == life.owner)
        with self._ledger._writing() as connection:
            this = (lives.c.table_uuid == life.uuid, lives.c.state == DROPPED, *same)
            taken = update(lives).where(*this).values(**values).returning(lives.c.table_uuid)
            return connection.execute(taken).scalar() is not None

    def forget(self, table_uuid: str) -> None:
        """There is no such table any more."""
        with self._ledger._writing() as connection:
            connection.execute(delete(lives).where(lives.c.table_uuid == table_uuid))

    def _can_be_ours(self, life: Life) -> bool:
        owners = self._ledger.owners
        return life.owner == owners.me or owners.gone(life.owner)

    def set_offline(self, table_uuid: str, name: TableName, offline: bool) -> None:
        """Note that a table may be, or is no more, offline; its own properties say whether it is."""
        with self._ledger._writing() as connection:
            if offline:
                _make(connection, Life(table_uuid, name))
            connection.execute(update(lives).where(lives.c.table_uuid == table_uuid).values(offline=offline))

    def offline(self, tenant: str, namespace: str) -> list[Life]:
        """A namespace's tables that may be offline."""
        of_it = (lives.c.tenant == tenant, lives.c.namespace == namespace)
        return self._found(*of_it, lives.c.state == HERE, lives.c.offline)

    def _found(self, *where: ColumnElement[bool], order: Any = None) -> list[Life]:
        with self._ledger._reading() as connection:
            return [_life(row) for row in connection.execute(select(lives).where(*where).order_by(order))]


def _make(connection: Connection, life: Life) -> None:
    """See to it that there is a row of a table; one without a step has the name that it is known by now."""
    named = {"tenant": life.name.tenant, "namespace": life.name.namespace, "table_name": life.name.table}
    new = _insert_new[connection.dialect.name](lives).values(table_uuid=life.uuid, state=HERE, **named)
    idle = lives.c.step.is_(None) & (lives.c.state == HERE)
    # Another program may have renamed it since.
    connection.execute(new.on_conflict_do_update(index_elements=[lives.c.table_uuid], set_=named, where=idle))


def _after(life: Life, now_ms: int) -> dict[str, Any]:
    """What a step that happened makes of a table's row."""
    if life.step == DROP:
        return {"state": DROPPED, "dropped_ms": now_ms}
    return {"state": HERE, "table_name": life.to.table, "dropped_ms": None, "keep_until_ms": None}


def _follow(connection: Connection, life: Life, schedules_follow: bool) -> None:
    """Have what is kept by a table's name, and is about this table, know its new one."""
    for notes in (compaction_log, repartitions, jobs):
        connection.execute(update(notes).where(notes.c.table_uuid == life.uuid).values(table_name=life.to.table))
    if not schedules_follow or life.to == life.name:
        return
    old = life.name
    named = (schedules.c.tenant == old.tenant, schedules.c.namespace == old.namespace)
    of_it = (*named, schedules.c.table_name == old.table)
    connection.execute(update(schedules).where(*of_it).values(table_name=life.to.table))


def _life(row: Any) -> Life:
    return Life(
        row.table_uuid,
        TableName(row.tenant, row.namespace, row.table_name),
        row.state,
        row.step,
        row.to_name,
        row.batch,
        row.owner,
        bool(row.offline),
        row.dropped_ms,
        row.keep_until_ms,
        row.folder,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
