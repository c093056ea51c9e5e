"""The ledger's notes of compactions: when, of which table, who asked, what was expected and what came of it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, String, Table, Text, and_, delete, insert, or_, select, update

from service.ledger.ledger import Ledger
from service.ledger.schema import metadata
from service.names import TableName

compaction_log = Table(
    "compaction_log",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False, index=True),
    Column("asked_by", String(200), nullable=False),  # "request <id>", "schedule <name>", "auto"
    Column("state", String(12), nullable=False, index=True),  # running, done, failed, cancelled, interrupted
    Column("request", Text, nullable=False),  # JSON: what was wished
    Column("stats", Text),  # JSON: what was counted
    Column("predicted", Text),  # JSON: what was expected, where it was worked out before
    Column("error", Text),
    Column("begun_ms", BigInteger, nullable=False, index=True),
    Column("ended_ms", BigInteger, index=True),
    Column("owner", String(40), nullable=False, server_default=""),
)


# Where in the log a page ends: when that compaction began, and its id, as others may have begun with it.
Place = tuple[int, str | None]


@dataclass(frozen=True)
class CompactionNote:
    """A compaction as the ledger knows it; the texts are JSON."""

    id: str
    table: TableName
    table_uuid: str
    asked_by: str
    state: str
    request: str
    stats: str | None
    predicted: str | None
    error: str | None
    begun_ms: int
    ended_ms: int | None = None
    owner: str = ""
    """The instance that worked on it."""


class CompactionNotes:
    """The table `compaction_log` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def begin(self, note: CompactionNote) -> None:
        values = {
            "id": note.id,
            "tenant": note.table.tenant,
            "namespace": note.table.namespace,
            "table_name": note.table.table,
            "table_uuid": note.table_uuid,
            "asked_by": note.asked_by[:200],
            "state": note.state,
            "request": note.request,
            "predicted": note.predicted,
            "begun_ms": note.begun_ms,
            "owner": self._ledger.owners.me,
        }
        with self._ledger._writing() as connection:
            connection.execute(insert(compaction_log), values)

    def end(
        self, compaction: str, state: str, ended_ms: int, *, stats: str | None = None, error: str | None = None
    ) -> None:
        values = {"state": state, "ended_ms": ended_ms, "stats": stats, "error": error}
        with self._ledger._writing() as connection:
            connection.execute(update(compaction_log).where(compaction_log.c.id == compaction).values(**values))

    def expect(self, compaction: str, predicted: str) -> None:
        """Note what was expected of it, and later how that compares with what was measured."""
        with self._ledger._writing() as connection:
            noted = update(compaction_log).where(compaction_log.c.id == compaction)
            connection.execute(noted.values(predicted=predicted))

    def of_table(self, table: TableName, limit: int, before: Place | None = None) -> list[CompactionNote]:
        """The latest of a table by its name, newest first."""
        where = [
            compaction_log.c.tenant == table.tenant,
            compaction_log.c.namespace == table.namespace,
            compaction_log.c.table_name == table.table,
        ]
        return self._latest(where, limit, before)

    def of_tenant(
        self, tenant: str, limit: int, before: Place | None = None, namespace: str | None = None
    ) -> list[CompactionNote]:
        """The latest of a tenant, or of one of its namespaces, newest first."""
        where = [compaction_log.c.tenant == tenant]
        if namespace is not None:
            where.append(compaction_log.c.namespace == namespace)
        return self._latest(where, limit, before)

    def latest(self, limit: int) -> list[CompactionNote]:
        """The latest of all."""
        return self._latest([], limit, None)

    def place(self, compaction: str) -> Place | None:
        """Where in the log a compaction stands."""
        with self._ledger._reading() as connection:
            asked = select(compaction_log.c.begun_ms).where(compaction_log.c.id == compaction)
            begun_ms = connection.execute(asked).scalar()
        return None if begun_ms is None else (begun_ms, compaction)

    def unfinished(self) -> list[CompactionNote]:
        """Those under way, or left behind by an instance that is gone."""
        return self._latest([compaction_log.c.state == "running"], 10_000, None)

    def left(self, note: CompactionNote) -> bool:
        """Whether a compaction's instance has left it behind."""
        return self._ledger.owners.gone(note.owner)

    def unasked(self, table_uuid: str) -> AbstractContextManager[bool]:
        """Whether no instance compacts a table of its own accord; if so, no other one does for the block."""
        return self._ledger.owners.first(f"auto {table_uuid}")

    def forget(self, before_ms: int) -> None:
        """Let go of notes of compactions that ended before a time."""
        with self._ledger._writing() as connection:
            connection.execute(delete(compaction_log).where(compaction_log.c.ended_ms < before_ms))

    def _latest(self, where: list[Any], limit: int, before: Place | None) -> list[CompactionNote]:
        if before is not None:
            begun_ms, compaction = before
            after = compaction_log.c.begun_ms < begun_ms
            if compaction is not None:
                after = or_(after, and_(compaction_log.c.begun_ms == begun_ms, compaction_log.c.id > compaction))
            where = [*where, after]
        asked = (
            select(compaction_log)
            .where(*where)
            .order_by(compaction_log.c.begun_ms.desc(), compaction_log.c.id)
            .limit(limit)
        )
        with self._ledger._reading() as connection:
            return [_note(row) for row in connection.execute(asked)]


def _note(row: Any) -> CompactionNote:
    return CompactionNote(
        row.id,
        TableName(row.tenant, row.namespace, row.table_name),
        row.table_uuid,
        row.asked_by,
        row.state,
        row.request,
        row.stats,
        row.predicted,
        row.error,
        row.begun_ms,
        row.ended_ms,
        row.owner,
    )
