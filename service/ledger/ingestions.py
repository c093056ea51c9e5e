"""The ledger's log of files that were ingested or refused."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, or_, select

from service.ledger.database import insert_new
from service.ledger.ledger import Ledger
from service.ledger.schema import batches, ingestion_tables, ingestions, places
from service.model.names import TableName
from service.model.times import now_ms

IngestMode = Literal["restate", "append", "replay"]


@dataclass(frozen=True)
class IngestionRecord:
    """A file that was ingested or refused."""

    run_id: str
    ingest_date: str
    file: str
    content_hash: str
    dataset_hash: str
    mode: IngestMode
    records_read: int = 0
    records_ingested: int = 0
    records_rejected: int = 0
    file_bytes: int = 0
    file_modified_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    requested_by: str = ""
    state: Literal["done", "refused", "unchanged"] = "done"
    """`unchanged`: the table had its rows already."""
    snapshot_id: int | None = None
    error: str | None = None
    drift: str | None = None
    """JSON of how the columns of a file that was refused differ."""


@dataclass(frozen=True)
class RegisteredTable:
    """A table that was made from a table file, which is JSON here."""

    name: TableName
    uuid: str
    table_file: str


_FIELDS = tuple(IngestionRecord.__dataclass_fields__)


class IngestionRecords:
    """The table `ingestions` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def place(self) -> str:
        """Where the ledger is: the path of its file, or its URL without the password."""
        return self._ledger.place

    def add(self, table: TableName, table_uuid: str, done: Iterable[IngestionRecord]) -> None:
        """Record ingestions; those that are recorded already stay as they are."""
        place = {"tenant": table.tenant, "namespace": table.namespace, "table_name": table.table}
        rows = [{**asdict(one), **place, "table_uuid": table_uuid} for one in done]
        if not rows:
            return
        with self._ledger._writing() as connection:
            for row in rows:
                connection.execute(insert_new(connection, ingestions).values(**row).on_conflict_do_nothing())

    def register(self, table: TableName, table_uuid: str, table_file: str) -> None:
        """Record that a table was made from a table file, or that its name or file is another one now."""
        place = {"tenant": table.tenant, "namespace": table.namespace, "table_name": table.table}
        values = {**place, "table_file": table_file}
        known = select(*(ingestion_tables.c[name] for name in values)).where(
            ingestion_tables.c.table_uuid == table_uuid
        )
        if [dict(row._mapping) for row in self._ledger.rows(known)] == [values]:
            return  # so that it waits for nobody who writes to the ledger
        with self._ledger._writing() as connection:
            new = insert_new(connection, ingestion_tables).values(table_uuid=table_uuid, created_ms=now_ms(), **values)
            changed = or_(*(ingestion_tables.c[name] != value for name, value in values.items()))
            connection.execute(
                new.on_conflict_do_update(index_elements=[ingestion_tables.c.table_uuid], set_=values, where=changed)
            )

    def of_table(self, table_uuid: str, *where: ColumnElement[bool]) -> list[IngestionRecord]:
        """The ingestions of a table, oldest first."""
        listed = [ingestions.c[name] for name in _FIELDS]
        wanted = select(*listed).where(ingestions.c.table_uuid == table_uuid, *where)
        rows = self._ledger.rows(wanted.order_by(ingestions.c.ended_ms, ingestions.c.run_id))
        return [IngestionRecord(**row._mapping) for row in rows]

    def done(self, table_uuid: str, dates: Sequence[str] | None = None) -> list[IngestionRecord]:
        """The files that were ingested, oldest first; of some dates, or of all."""
        where = [ingestions.c.state == "done"]
        if dates is not None:
            where.append(ingestions.c.ingest_date.in_(dates))
        return self.of_table(table_uuid, *where)

    def tables(self) -> list[RegisteredTable]:
        """Every table that was made from a table file, and is not dropped, in the order of their names."""
        columns = ingestion_tables.c
        dropped = select(places.c.table_uuid).where(places.c.state == "dropped")
        wanted = select(ingestion_tables).where(columns.table_uuid.not_in(dropped))
        rows = self._ledger.rows(wanted.order_by(columns.tenant, columns.namespace, columns.table_name))
        return [
            RegisteredTable(TableName(row.tenant, row.namespace, row.table_name), row.table_uuid, row.table_file)
            for row in rows
        ]

    def knows(self, table_uuid: str | None = None) -> bool:
        """Whether a table was registered, or any, dropped or not."""
        known = select(ingestion_tables.c.table_uuid).limit(1)
        if table_uuid is not None:
            known = known.where(ingestion_tables.c.table_uuid == table_uuid)
        return bool(self._ledger.rows(known))

    def changes_since(self, table_uuid: str, since_ms: int) -> set[str]:
        """The operations of the changes of a table that began after a time and made a snapshot."""
        made = select(batches.c.operation).where(
            batches.c.table_uuid == table_uuid, batches.c.begun_ms >= since_ms, batches.c.snapshot_id > 0
        )
        return {str(row.operation) for row in self._ledger.rows(made.distinct())}


def as_summary(done: Iterable[IngestionRecord]) -> list[dict[str, Any]]:
    """Ingestions as the summary of their snapshot has them."""
    left_out = ("state", "snapshot_id", "error", "drift")
    return [{name: value for name, value in asdict(one).items() if name not in left_out} for one in done]


def read_ingestions(text: str, snapshot_id: int) -> list[IngestionRecord]:
    """The ingestions that the summary of a snapshot has, as JSON."""
    return [
        IngestionRecord(**{k: v for k, v in one.items() if k in _FIELDS}, snapshot_id=snapshot_id)
        for one in json.loads(text)
    ]
