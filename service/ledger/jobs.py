"""The ledger's table of long work: one row for each job of every kind, and who works on it."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, or_, select, update

from service.ledger.ledger import Ledger, _insert_new
from service.ledger.schema import jobs
from service.model.names import TableName

LIVE = ("queued", "running")
UNFINISHED = jobs.c.ended_ms.is_(None)
_UNREAD = b"null"

# Where a page of a log ends: when that job started, and its id, as others may have started with it.
Place = tuple[int, str | None]


@dataclass(frozen=True)
class JobRecord:
    """A job as the ledger knows it; the columns are explained in `schema.py`."""

    id: str
    kind: str
    table: TableName
    table_uuid: str = ""
    state: str = "running"
    claim: str | None = None
    listed: bool = False
    owner: str = ""
    fence: int = 1
    heartbeat: int = 0
    requested_by: str = ""
    progress: str = "{}"
    details: Mapping[str, Any] = field(default_factory=dict)
    outcome: bytes = b"null"
    batch: str | None = None
    cancelling_ms: int | None = None
    created_ms: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    leaves_files: bool = False


class JobRecords:
    """The table `jobs` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def me(self) -> str:
        return self._ledger.owners.me

    @property
    def shared(self) -> bool:
        """Whether other instances may be at work."""
        return self._ledger.owners.shared

    def left(self, record: JobRecord) -> bool:
        """Whether no instance works on a job any more: it was taken from its owner, or that is gone."""
        return not record.owner or self._ledger.owners.gone(record.owner)

    def first(self, what: str) -> AbstractContextManager[bool]:
        """Whether no instance is at something; if so, no other one is for the block. It does not wait."""
        return self._ledger.owners.first(what)

    def begin(self, record: JobRecord) -> bool:
        """Note a new job; false, and nothing is noted, if another unfinished one has its claim."""
        with self._ledger._writing() as connection:
            return add(connection, record)

    def start(self, job: JobRecord) -> None:
        """A job that was accepted before has its turn."""
        details = json.dumps(job.details, default=str)
        self._set(jobs.c.id == job.id, started_ms=job.started_ms, details=details)

    def run(self, job: str) -> None:
        """A job that was queued has a thread now."""
        self._set(jobs.c.id == job, jobs.c.state == "queued", state="running")

    def try_batch(self, held: JobRecord, batch: str) -> bool:
        """Note the batch that is about to be committed; false if the job is not its owner's any more."""
        return self._set(*_held(held), batch=batch)

    def holds(self, held: JobRecord) -> bool:
        """Whether a job is still its owner's: neither ended, nor taken by another instance."""
        with self._ledger._reading() as connection:
            return connection.execute(select(jobs.c.id).where(*_held(held))).scalar() is not None

    def beat(self, held: JobRecord) -> bool:
        """Show others that a job goes on; false if it is not its owner's any more."""
        return self._set(*_held(held), heartbeat=jobs.c.heartbeat + 1)

    def show(self, held: JobRecord, progress: str) -> bool:
        """Show others how far a job is; false if it is not its owner's any more."""
        return self._set(*_held(held), progress=progress)

    def look(self, ours: Mapping[str, str]) -> set[str]:
        """Note the progress of unfinished jobs, given by id; those of them that somebody asked to cancel."""
        with self._ledger._writing() as connection:
            for job, progress in ours.items():
                shown = update(jobs).where(jobs.c.id == job, UNFINISHED)
                connection.execute(shown.values(progress=progress, heartbeat=jobs.c.heartbeat + 1))
            asked = select(jobs.c.id).where(UNFINISHED, jobs.c.owner == self.me, jobs.c.cancelling_ms.is_not(None))
            return set(connection.execute(asked).scalars())

    def ask_cancel(self, job: str, now_ms: int) -> None:
        """Leave word for a job's owner to cancel it."""
        self._set(jobs.c.id == job, UNFINISHED, cancelling_ms=now_ms)

    def end(self, record: JobRecord) -> None:
        """Note how a job of ours ended, whatever others took it to have come to."""
        self._set(jobs.c.id == record.id, **_end(record))

    def end_held(self, held: JobRecord, ended: JobRecord) -> bool:
        """Note how a job ended; false, and nothing is noted, if it is not its owner's any more."""
        return self._set(*_held(held), **_end(ended))

    def take(self, seen: JobRecord, **values: Any) -> JobRecord | None:
        """Take a job from its owner, who can commit nothing for it any more; None if it has changed since.

        It is this instance's then, unless `values` say otherwise.
        """
        same = (
            jobs.c.id == seen.id,
            jobs.c.fence == seen.fence,
            jobs.c.heartbeat == seen.heartbeat,
            jobs.c.batch.is_not_distinct_from(seen.batch),
            UNFINISHED,
        )
        values = {"fence": jobs.c.fence + 1, "heartbeat": 0, "owner": self.me, **values}
        with self._ledger._writing() as connection:
            row = connection.execute(update(jobs).where(*same).values(**values).returning(jobs)).one_or_none()
        return None if row is None else as_record(row)

    def release(self, held: JobRecord, progress: str) -> bool:
        """Stop working on a job, which whoever comes next goes on with; false if it is not its owner's any more."""
        return self._set(*_held(held), state="interrupted", owner="", progress=progress)

    def note(self, job: str, **details: Any) -> None:
        """Add to the details of a job, ended or not."""
        with self._ledger._writing() as connection:
            this = select(jobs.c.details).where(jobs.c.id == job).with_for_update()
            known = connection.execute(this).scalar()
            if known is not None:
                both = json.dumps(json.loads(known) | details)
                connection.execute(update(jobs).where(jobs.c.id == job).values(details=both))

    def find(self, job: str) -> JobRecord | None:
        with self._ledger._reading() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == job)).one_or_none()
        return None if row is None else as_record(row)

    def unfinished(self) -> list[JobRecord]:
        """Jobs whose end is not noted, the first to begin first: in progress, or left by a crash."""
        with self._ledger._reading() as connection:
            rows = connection.execute(select(jobs).where(UNFINISHED).order_by(jobs.c.created_ms, jobs.c.id))
            return [as_record(row) for row in rows]

    def leaving_files(self) -> list[JobRecord]:
        """Jobs that ended and left files that nobody has removed yet."""
        with self._ledger._reading() as connection:
            return [as_record(row) for row in connection.execute(select(jobs).where(jobs.c.leaves_files))]

    def cleaned_up(self, job: str, **details: Any) -> None:
        """What a job left is removed."""
        self.note(job, **details)
        self._set(jobs.c.id == job, leaves_files=False)

    def listed(self, tenant: str, namespace: str | None, limit: int, since_ms: int) -> list[JobRecord]:
        """A tenant's listed jobs, or those of one of its namespaces, unless they ended before a time; the latest first
        and without their outcomes."""
        where = [jobs.c.listed, jobs.c.tenant == tenant, or_(UNFINISHED, jobs.c.ended_ms >= since_ms)]
        if namespace is not None:
            where.append(jobs.c.namespace == namespace)
        columns = [column for column in jobs.c if column is not jobs.c.outcome]
        asked = select(*columns).where(*where).order_by(jobs.c.created_ms.desc(), jobs.c.id).limit(limit)
        with self._ledger._reading() as connection:
            return [as_record(row) for row in connection.execute(asked)]

    def log(
        self,
        kind: str,
        limit: int,
        *,
        tenant: str | None = None,
        namespace: str | None = None,
        table: str | None = None,
        before: Place | None = None,
    ) -> list[JobRecord]:
        """The latest jobs of a kind that had their turn, newest first, without their outcomes."""
        where = [jobs.c.kind == kind, jobs.c.started_ms.is_not(None)]
        named = {jobs.c.tenant: tenant, jobs.c.namespace: namespace, jobs.c.table_name: table}
        where += [column == value for column, value in named.items() if value is not None]
        if before is not None:
            started_ms, job = before
            after = jobs.c.started_ms < started_ms
            where.append(after if job is None else or_(after, and_(jobs.c.started_ms == started_ms, jobs.c.id > job)))
        columns = [column for column in jobs.c if column is not jobs.c.outcome]
        asked = select(*columns).where(*where).order_by(jobs.c.started_ms.desc(), jobs.c.id).limit(limit)
        with self._ledger._reading() as connection:
            return [as_record(row) for row in connection.execute(asked)]

    def forget(self, kept_ms: Mapping[str, int | None], others_ms: int, now_ms: int) -> None:
        """Delete jobs that ended longer ago than their kind is kept; None keeps a kind."""
        going = {jobs.c.kind == kind: kept for kind, kept in kept_ms.items() if kept is not None}
        going[jobs.c.kind.not_in(list(kept_ms))] = others_ms
        with self._ledger._writing() as connection:
            for which, kept in going.items():
                connection.execute(delete(jobs).where(which, jobs.c.ended_ms < now_ms - kept, ~jobs.c.leaves_files))

    def _set(self, *where: ColumnElement[bool], **values: Any) -> bool:
        """Whether there was such a job to change."""
        with self._ledger._writing() as connection:
            changed = update(jobs).where(*where).values(**values).returning(jobs.c.id)
            return connection.execute(changed).scalar() is not None


def add(connection: Connection, record: JobRecord) -> bool:
    """Note a new job; false if another unfinished one has its claim."""
    values = vars(record) | {
        "tenant": record.table.tenant,
        "namespace": record.table.namespace,
        "table_name": record.table.table,
        "requested_by": record.requested_by[:200],
        "details": json.dumps(record.details, default=str),
    }
    del values["table"]
    new = _insert_new[connection.dialect.name](jobs).values(**values).on_conflict_do_nothing()
    return connection.execute(new.returning(jobs.c.id)).scalar() is not None


def as_record(row: Row[Any], prefix: str = "") -> JobRecord:
    """A job from a row that has the table's columns, each with a prefix; the outcome may be left out."""
    got = row._mapping
    values = {name: got.get(prefix + name, _UNREAD) for name in (column.name for column in jobs.c)}
    table = TableName(values.pop("tenant"), values.pop("namespace"), values.pop("table_name"))
    return JobRecord(table=table, **values | {"details": json.loads(values["details"])})


def _held(held: JobRecord) -> tuple[ColumnElement[bool], ...]:
    return jobs.c.id == held.id, jobs.c.fence == held.fence, jobs.c.owner == held.owner, UNFINISHED


def _end(ended: JobRecord) -> dict[str, Any]:
    return {
        "state": ended.state,
        "progress": ended.progress,
        "details": json.dumps(ended.details, default=str),
        "outcome": ended.outcome,
        "ended_ms": ended.ended_ms,
        "leaves_files": ended.leaves_files,
    }
