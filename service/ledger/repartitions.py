"""The ledger's notes of repartitions under way: what they have on disk is removed should their instance end."""

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, String, Table, Text, delete, insert, select

from service.ledger.ledger import Ledger
from service.ledger.schema import metadata
from service.names import TableName

repartitions = Table(
    "repartitions",
    metadata,
    Column("id", String(60), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False),
    Column("target", String(63)),  # the table that is made, where that is another one
    Column("folder", Text, nullable=False),
    Column("owner", String(40), nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
)


@dataclass(frozen=True)
class RepartitionNote:
    """A repartition under way: the table it reads, and the folder whose files no snapshot holds yet."""

    id: str
    table: TableName
    table_uuid: str
    target: TableName | None
    folder: str
    begun_ms: int
    owner: str = ""
    """The instance that works on it."""


class RepartitionNotes:
    """The table `repartitions` of a ledger. A note is there from before the first file until none needs removing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def begin(self, note: RepartitionNote) -> None:
        values = {
            "id": note.id,
            "tenant": note.table.tenant,
            "namespace": note.table.namespace,
            "table_name": note.table.table,
            "table_uuid": note.table_uuid,
            "target": None if note.target is None else note.target.table,
            "folder": note.folder,
            "owner": self._ledger.owners.me,
            "begun_ms": note.begun_ms,
        }
        with self._ledger._writing() as connection:
            connection.execute(insert(repartitions), values)

    def end(self, repartition: str) -> None:
        with self._ledger._writing() as connection:
            connection.execute(delete(repartitions).where(repartitions.c.id == repartition))

    def left(self) -> list[RepartitionNote]:
        """Those that their instance has left behind, the first to begin first."""
        with self._ledger._reading() as connection:
            rows = connection.execute(select(repartitions).order_by(repartitions.c.begun_ms)).all()
        notes = [
            RepartitionNote(
                row.id,
                TableName(row.tenant, row.namespace, row.table_name),
                row.table_uuid,
                None if row.target is None else TableName(row.tenant, row.namespace, row.target),
                row.folder,
                row.begun_ms,
                row.owner,
            )
            for row in rows
        ]
        return [note for note in notes if self._ledger.owners.gone(note.owner)]
