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
    Column("state", String(10), nullable=False, index=True),  # running, done, failed
    Column("batch", String(40)),  # the last one that was tried
    Column("progress", Text, nullable=False),  # JSON
    Column("outcome", LargeBinary, nullable=False),  # JSON: the answer, or the error; while it runs, the answer to be
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, index=True),
    Column("owner", String(40), nullable=False, server_default=""),
)


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


class JobNotes:
    """The table `jobs` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

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

    def try_batch(self, job: str, batch: str) -> None:
        """Note the batch that is about to be committed; CommitConflict if others have given the job up meanwhile."""
        ours = (jobs.c.id == job, jobs.c.state == "running")
        with self._ledger._writing() as connection:
            noted = update(jobs).where(*ours).values(batch=batch).returning(jobs.c.id)
            if connection.execute(noted).scalar() is None:
                raise CommitConflict("another instance gave this job up, as it could not see us; send it again")

    def end(self, job: str, state: str, progress: str | None, outcome: bytes, ended_ms: int) -> None:
        values: dict[str, Any] = {"state": state, "outcome": outcome, "ended_ms": ended_ms}
        if progress is not None:
            values["progress"] = progress
        with self._ledger._writing() as connection:
            connection.execute(update(jobs).where(jobs.c.id == job).values(**values))

    def find(self, job: str) -> JobNote | None:
        with self._ledger._reading() as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == job)).one_or_none()
        return None if row is None else _note(row)

    def left(self, job: JobNote) -> bool:
        """Whether a job's instance has left it behind."""
        return self._ledger.owners.gone(job.owner)

    def unfinished(self) -> list[JobNote]:
        """Jobs whose end is not noted: under way, or left behind by a crash."""
        with self._ledger._reading() as connection:
            return [_note(row) for row in connection.execute(select(jobs).where(jobs.c.state == "running"))]

    def forget(self, before_ms: int) -> None:
        """Let go of jobs that ended before a time."""
        with self._ledger._writing() as connection:
            connection.execute(delete(jobs).where(jobs.c.ended_ms < before_ms))


def _note(row: Any) -> JobNote:
    table = TableName(row.tenant, row.namespace, row.table_name)
    return JobNote(
        row.id,
        row.kind,
        table,
        row.table_uuid,
        row.state,
        row.batch,
        row.progress,
        row.outcome,
        row.begun_ms,
        row.ended_ms,
        row.owner,
    )
