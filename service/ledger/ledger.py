"""Firn's own small database: what was begun, what came of it, how often each table was written."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from service.errors import LedgerUnavailable
from service.names import TableName
from service.settings import Settings

_KEPT_DAYS = 30
_metadata = MetaData()

mutations = Table(
    "mutations",
    _metadata,
    Column("batch", String(40), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("table_name", String(63), nullable=False),
    Column("table_uuid", String(36), nullable=False, index=True),
    Column("operation", String(40), nullable=False),
    Column("request_id", String(200), nullable=False, index=True),
    Column("state", String(10), nullable=False, index=True),  # begun, done, void
    Column("snapshot_id", BigInteger),
    Column("begun_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
)

write_counts = Table(
    "write_counts",
    _metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("writes", Integer, nullable=False),
)


@dataclass(frozen=True)
class Mutation:
    """A change that was begun and whose end the ledger does not know yet."""

    batch: str
    table: TableName
    table_uuid: str


class Ledger:
    """One SQLAlchemy address; its tables are made when it is opened."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        with _translated():
            _metadata.create_all(self._engine)

    def begin(self, batch: str, table: TableName, table_uuid: str, operation: str, request_id: str) -> None:
        """Note a change before it is tried."""
        values = {
            "batch": batch,
            "tenant": table.tenant,
            "namespace": table.namespace,
            "table_name": table.table,
            "table_uuid": table_uuid,
            "operation": operation,
            "request_id": request_id[:200],
            "state": "begun",
            "begun_ms": _now_ms(),
        }
        with _translated(), self._engine.begin() as connection:
            connection.execute(insert(mutations).values(**values))

    def end(self, batch: str, snapshot_id: int | None) -> None:
        """Note what a change came to: the snapshot it made, or that it made none."""
        state = "void" if snapshot_id is None else "done"
        with _translated(), self._engine.begin() as connection:
            connection.execute(
                update(mutations)
                .where(mutations.c.batch == batch)
                .values(state=state, snapshot_id=snapshot_id, ended_ms=_now_ms())
            )

    def unfinished(self) -> list[Mutation]:
        """Changes whose end is not noted: what a crash left behind."""
        with _translated(), self._engine.begin() as connection:
            rows = connection.execute(select(mutations).where(mutations.c.state == "begun")).all()
        return [Mutation(r.batch, TableName(r.tenant, r.namespace, r.table_name), r.table_uuid) for r in rows]

    def count_write(self, table_uuid: str) -> int:
        """One more WRITE to a table; returns how many there have been."""
        with _translated(), self._engine.begin() as connection:
            step = (
                update(write_counts)
                .where(write_counts.c.table_uuid == table_uuid)
                .values(writes=write_counts.c.writes + 1)
                .returning(write_counts.c.writes)
            )
            counted = connection.execute(step).scalar()
            if counted is None:
                connection.execute(insert(write_counts).values(table_uuid=table_uuid, writes=1))
                counted = 1
            return int(counted)

    def forget(self, before_ms: int) -> None:
        """Let go of the notes of changes that ended before this time."""
        with _translated(), self._engine.begin() as connection:
            connection.execute(delete(mutations).where(mutations.c.ended_ms < before_ms))

    def close(self) -> None:
        self._engine.dispose()


def open_ledger(settings: Settings) -> Ledger:
    """The ledger under FIRN_HOME; what ended long ago is let go."""
    ledger = Ledger(f"sqlite:///{settings.home / 'ledger.db'}")
    ledger.forget(_now_ms() - _KEPT_DAYS * 24 * 3600 * 1000)
    return ledger


def _engine(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 30} if url.startswith("sqlite") else {})
    if url.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def _durable(connection, _record):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
            # pysqlite would begin transactions late, as readers, and then fail to become writers.
            connection.isolation_level = None
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")

        @event.listens_for(engine, "begin")
        def _as_writer(connection):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as e:
        said = str(e.__cause__ or e).partition("\n")[0]
        raise LedgerUnavailable(f"the ledger does not answer: {said}; try again") from e


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
