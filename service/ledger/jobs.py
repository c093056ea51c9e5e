"""The ledger's notes of long work, so that a restart knows of it."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, LargeBinary, String, Table, Text, delete, insert, select, update

from service.errors import CommitConflict
from service.ledger.ledger import Ledger
from service.ledger.schema import metadata
from service.names import TableName

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False),
    # queued, running, done, failed, cancelled, interrupted
    Column("state", String(12), nullable=False, index=True),
    Column("batch", String(40)),  # the last one that was tried
    Column("progress", Text, nullable=False),  # JSON
    Column("outcome", LargeBinary, nullable=False),  # JSON: the answer, or the error; while it runs, the answer to be
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, index=True),
    Column("owner", String(40), nullable=False, server_default=""),
    Column("cancel", BigInteger),  # when it was asked for, where the owner is to see to it
)
LIVE = ("queued", "running")
_UNREAD = b"null"
_IS_LIVE = jobs.c.state.in_(LIVE)


@dataclass(frozen=True)
class JobNote:
    """A job as the ledger knows it."""

    id: str
    kind: str
    table: TableName
    table_uuid: str
    state: str
    batch: str | None
    progress: str
    outcome: bytes
    begun_ms: int
    ended_ms: int | None = None
    owner: str = ""
    """The instance that works on it."""
    cancelling: bool = False
    """Whether its owner was asked to call it off."""


class JobNotes:
    """The table `jobs` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def shared(self) -> bool:
        """Whether other instances see them, too."""
        return self._ledger.owners.shared

    def begin(self, note: JobNote) -> None:
        values = {
            "id": note.id,
            "kind": note.kind,
            "tenant": note.table.tenant,
            "namespace": note.table.namespace,
            "table_name": note.table.table,
            "table_uuid": note.table_uuid,
            "state": note.state,
            "batch": note.batch,
            "progress": note.progress,
            "outcome": note.outcome,
            "begun_ms": note.begun_ms,
            "owner": self._ledger.owners.me,
        }
        with self._ledger._writing() as connection:
            connection.execute(insert(jobs), values)

    def started(self, job: str) -> None:
        """One that was queued runs now."""
        with self._ledger._writing() as connection:
            queued = (jobs.c.id == job, jobs.c.state == "queued")
            connection.execute(update(jobs).where(*queued).values(state="running"))

    def try_batch(self, job: str, batch: str) -> None:
        """Note the batch that is about to be committed; CommitConflict if others have given the job up meanwhile."""
        ours = (jobs.c.id == job, jobs.c.state == "running")
        with self._ledger._writing() as connection:
            noted = update(jobs).where(*ours).values(batch=batch).returning(jobs.c.id)
            if connection.execute(noted).scalar() is None:
                raise CommitConflict("another instance gave this job up, as it could not see us; send it again")

    def end(self, job: str, state: str, progress: str, outcome: bytes, ended_ms: int) -> None:
        """Note how a job of ours ended, whatever others took it to have come to."""
        values = {"state": state, "progress": progress, "outcome": outcome, "ended_ms": ended_ms}
        with self._ledger._writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job).values(**values))

    def settle(self, job: str, state: str, outcome: bytes, ended_ms: int) -> None:
        """Note what became of a job whose instance has left it behind, if it has no end yet."""
        values = {"state": state, "outcome": outcome, "ended_ms": ended_ms}
        with self._ledger._writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job, _IS_LIVE).values(**values))

    def show(self, job: str, progress: str) -> None:
        """Note how far a job is, for other instances to tell."""
        with self._ledger._writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job, _IS_LIVE).values(progress=progress))

    def ask_cancel(self, job: str, now_ms: int) -> None:
        """Leave word for a job's owner that it is to be called off."""
        with self._ledger._writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job, _IS_LIVE).values(cancel=now_ms))

    def to_cancel(self) -> set[str]:
        """Jobs of ours that somebody left word to call off."""
        asked = (_IS_LIVE, jobs.c.owner == self._ledger.owners.me, jobs.c.cancel.is_not(None))
        with self._ledger._reading() as connection:
            return set(connection.execute(select(jobs.c.id).where(*asked)).scalars())

    def find(self, job: str) -> JobNote | None:
        with self._ledger._reading() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == job)).one_or_none()
        return None if row is None else _note(row, row.outcome)

    def latest(self, tenant: str, namespace: str | None, limit: int) -> list[JobNote]:
        """A tenant's jobs, or those of one of its namespaces, the latest first and without what came of them."""
        theirs = [jobs.c.tenant == tenant, *([] if namespace is None else [jobs.c.namespace == namespace])]
        columns = [column for column in jobs.c if column is not jobs.c.outcome]
        asked = select(*columns).where(*theirs).order_by(jobs.c.begun_ms.desc(), jobs.c.id).limit(limit)
        with self._ledger._reading() as connection:
            return [_note(row, _UNREAD) for row in connection.execute(asked)]

    def left(self, job: JobNote) -> bool:
        """Whether a job's instance has left it behind."""
        return self._ledger.owners.gone(job.owner)

    def unfinished(self) -> list[JobNote]:
        """Jobs whose end is not noted: under way, or left behind by a crash."""
        with self._ledger._reading() as connection:
            return [_note(row, row.outcome) for row in connection.execute(select(jobs).where(_IS_LIVE))]

    def forget(self, before_ms: int) -> None:
        """Let go of jobs that ended before a time."""
        with self._ledger._writing() as connection:
            connection.execute(delete(jobs).where(jobs.c.ended_ms < before_ms))


def _note(row: Any, outcome: bytes) -> JobNote:
    table = TableName(row.tenant, row.namespace, row.table_name)
    return JobNote(
        row.id,
        row.kind,
        table,
        row.table_uuid,
        row.state,
        row.batch,
        row.progress,
        outcome,
        row.begun_ms,
        row.ended_ms,
        row.owner,
        row.cancel is not None,
    )
