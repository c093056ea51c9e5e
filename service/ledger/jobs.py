"""The ledger's table of long work: one row for each job of every kind, and who works on it."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, or_, select, update

from service.ledger.database import follows, insert_new
from service.ledger.ledger import Also, Ledger, Transaction
from service.ledger.schema import jobs
from service.model.names import TableName

LIVE = ("queued", "running")
UNFINISHED = jobs.c.ended_ms.is_(None)
_UNREAD = b"null"
_WITHOUT_OUTCOME = [column for column in jobs.c if column is not jobs.c.outcome]
# The end of a page: when its last job was created or started, and its id, because several may be at once.
Place = tuple[int, str]


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
        """Whether no instance works on a job any more: it has no owner, or its owner is gone."""
        return not record.owner or self._ledger.owners.gone(record.owner)

    def first(self, what: str) -> AbstractContextManager[bool]:
        """Whether no instance does this now; if so, no other one does during the block. It does not wait."""
        return self._ledger.owners.first(what)

    def begin(self, record: JobRecord, also: Also | None = None) -> bool:
        """Record a new job; false, and nothing is recorded, if another unfinished job has its claim."""
        with self._ledger.transaction() as transaction:
            added = add(transaction.connection, record)
            if added and also:
                also(transaction)
            return added

    def start(self, job: JobRecord) -> None:
        """A job that was accepted before now starts."""
        details = json.dumps(job.details, default=str)
        self._set(jobs.c.id == job.id, started_ms=job.started_ms, details=details)

    def run(self, job: str) -> None:
        """A job that was queued now has a thread."""
        self._set(jobs.c.id == job, jobs.c.state == "queued", state="running")

    def try_batch(
        self, held: JobRecord, batch: str, promise: bytes | None = None, within: Transaction | None = None
    ) -> bool:
        """Record the batch that is about to be committed, and the response if it is, unless that was recorded before;
        false if the job is not its owner's any more."""
        values = {"batch": batch} if promise is None else {"batch": batch, "outcome": promise}
        return self._set(*_held(held), within=within, **values)

    def holds(self, held: JobRecord) -> bool:
        """Whether a job is still its owner's: neither ended, nor taken by another instance."""
        return self._ledger.row(select(jobs.c.id).where(*_held(held))) is not None

    def beat(self, held: JobRecord) -> bool:
        """Send a heartbeat of a job; false if it is not its owner's any more."""
        return self._set(*_held(held), heartbeat=jobs.c.heartbeat + 1)

    def show(self, held: JobRecord, progress: str) -> bool:
        """Record the progress of a job; false if it is not its owner's any more."""
        return self._set(*_held(held), progress=progress)

    def look(self, ours: Mapping[str, str]) -> set[str]:
        """Record the progress of unfinished jobs by id, with a heartbeat; which of our jobs are to be cancelled."""
        with self._ledger._writing() as connection:
            for job, progress in ours.items():
                shown = update(jobs).where(jobs.c.id == job, UNFINISHED)
                connection.execute(shown.values(progress=progress, heartbeat=jobs.c.heartbeat + 1))
            asked = select(jobs.c.id).where(UNFINISHED, jobs.c.owner == self.me, jobs.c.cancelling_ms.is_not(None))
            return set(connection.execute(asked).scalars())

    def request_cancel(self, job: str, now_ms: int) -> None:
        """Ask the owner of a job to cancel it."""
        self._set(jobs.c.id == job, UNFINISHED, cancelling_ms=now_ms)

    def end(self, record: JobRecord, within: Transaction | None = None) -> None:
        """Record how a job of ours ended, even if another instance has recorded another end."""
        self._set(jobs.c.id == record.id, within=within, **_end(record))

    def end_held(self, held: JobRecord, ended: JobRecord) -> bool:
        """Record how a job ended; false, and nothing is recorded, if it is not its owner's any more."""
        return self._set(*_held(held), **_end(ended))

    def take(self, seen: JobRecord, **values: Any) -> JobRecord | None:
        """Take a job from its owner, which can commit nothing for it any more; None if the job has changed since.

        Its new owner is this instance, unless `values` say otherwise.
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
        """Stop working on a job, so that any instance can continue it; false if it is not its owner's any more."""
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
        row = self._ledger.row(select(jobs).where(jobs.c.id == job))
        return None if row is None else as_record(row)

    def unfinished(self) -> list[JobRecord]:
        """Jobs without a recorded end, oldest first: in progress, or left by a crash."""
        return self._found(select(jobs).where(UNFINISHED).order_by(jobs.c.created_ms, jobs.c.id))

    def with_leftover_files(self) -> list[JobRecord]:
        """Jobs that ended and left files that are not removed yet."""
        return self._found(select(jobs).where(jobs.c.leaves_files))

    def cleaned_up(self, job: str, **details: Any) -> None:
        """The files that a job left are removed."""
        self.note(job, **details)
        self._set(jobs.c.id == job, leaves_files=False)

    def listed(
        self, tenant: str, namespace: str | None, limit: int, since_ms: int, after: Place | None = None
    ) -> list[JobRecord]:
        """The listed jobs of a tenant or of one of its namespaces, without those that ended before a time.

        Latest first, those after a place if one is given, and without their outcomes.
        """
        where = [jobs.c.listed, jobs.c.tenant == tenant, or_(UNFINISHED, jobs.c.ended_ms >= since_ms)]
        if namespace is not None:
            where.append(jobs.c.namespace == namespace)
        if after is not None:
            where.append(follows(after, jobs.c.created_ms, jobs.c.id))
        asked = select(*_WITHOUT_OUTCOME).where(*where).order_by(jobs.c.created_ms.desc(), jobs.c.id)
        return self._found(asked.limit(limit))

    def log(
        self,
        kind: str,
        limit: int,
        *,
        tenant: str | None = None,
        namespace: str | None = None,
        table: str | None = None,
        before_ms: int | None = None,
        after: Place | None = None,
    ) -> list[JobRecord]:
        """The latest jobs of a kind that have started, newest first, without their outcomes."""
        where = [jobs.c.kind == kind, jobs.c.started_ms.is_not(None)]
        named = {jobs.c.tenant: tenant, jobs.c.namespace: namespace, jobs.c.table_name: table}
        where += [column == value for column, value in named.items() if value is not None]
        if before_ms is not None:
            where.append(jobs.c.started_ms < before_ms)
        if after is not None:
            where.append(follows(after, jobs.c.started_ms, jobs.c.id))
        asked = select(*_WITHOUT_OUTCOME).where(*where).order_by(jobs.c.started_ms.desc(), jobs.c.id)
        return self._found(asked.limit(limit))

    def forget(self, kept_ms: Mapping[str, int | None], others_ms: int, now_ms: int) -> None:
        """Delete jobs that ended longer ago than their kind is kept; None keeps a kind for ever."""
        old = [(jobs.c.kind == kind, kept) for kind, kept in kept_ms.items() if kept is not None]
        with self._ledger._writing() as connection:
            for which, kept in (*old, (jobs.c.kind.not_in(list(kept_ms)), others_ms)):
                connection.execute(delete(jobs).where(which, jobs.c.ended_ms < now_ms - kept, ~jobs.c.leaves_files))

    def _set(self, *where: ColumnElement[bool], within: Transaction | None = None, **values: Any) -> bool:
        """Whether there was such a job to change."""
        with self._ledger._writing(within) as connection:
            changed = connection.execute(update(jobs).where(*where).values(**values).returning(jobs.c.id))
            return changed.first() is not None

    def _found(self, query: Select[Any]) -> list[JobRecord]:
        return [as_record(row) for row in self._ledger.rows(query)]


def add(connection: Connection, record: JobRecord) -> bool:
    """Record a new job in a transaction of the caller's; false if another unfinished job has its claim."""
    values = vars(record) | {
        "tenant": record.table.tenant,
        "namespace": record.table.namespace,
        "table_name": record.table.table,
        "requested_by": record.requested_by[:200],
        "details": json.dumps(record.details, default=str),
    }
    del values["table"]
    new = insert_new(connection, jobs).values(**values).on_conflict_do_nothing()
    return connection.execute(new.returning(jobs.c.id)).scalar() is not None


def as_record(row: Row[Any], prefix: str = "") -> JobRecord:
    """A job from a row with the columns of the table, each with a prefix; the outcome may be missing."""
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
