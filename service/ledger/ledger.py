"""Firn's own small database: what was begun, what came of it, what was answered, how often each table was written."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, case, create_engine, delete, event, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from service.errors import LedgerUnavailable
from service.ledger.schema import batches, keys, metadata, write_counts
from service.names import TableName
from service.settings import Settings

_KEPT_DAYS = 30
_AT_ONCE = 500  # values in one IN (…)


@dataclass(frozen=True)
class Batch:
    """A change as the ledger knows it; `state` is begun, done or void."""

    batch: str
    table: TableName
    table_uuid: str
    operation: str
    state: str
    snapshot_id: int | None
    requests: int
    records: int


@dataclass(frozen=True)
class KeyNote:
    """What is known of an idempotency key: what it stood for, the batch it was last in, and its answer."""

    fingerprint: str
    batch: str | None
    answer: bytes | None


@dataclass(frozen=True)
class Begun:
    """A change to note before it is tried."""

    batch: str
    table: TableName
    table_uuid: str
    operation: str
    request_ids: Sequence[str]
    records: int = 0
    keys: Mapping[str, str] | None = None
    """Fingerprints by key id."""


class Ledger:
    """One SQLAlchemy address; its tables are made when it is opened."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        with _translated():
            metadata.create_all(self._engine)

    def begin(self, change: Begun) -> None:
        """Note a change, and the keys of those who asked for it, in one transaction."""
        values = {
            "batch": change.batch,
            "tenant": change.table.tenant,
            "namespace": change.table.namespace,
            "table_name": change.table.table,
            "table_uuid": change.table_uuid,
            "operation": change.operation,
            "requests": len(change.request_ids),
            "records": change.records,
            "request_ids": "\n".join(change.request_ids),
            "state": "begun",
            "begun_ms": _now_ms(),
        }
        with self._writing() as connection:
            connection.execute(insert(batches), values)
            if change.keys:
                _replace_keys(connection, change.keys, change.batch)

    def end(
        self,
        batch: str,
        snapshot_id: int | None,
        answers: Mapping[str, bytes] | None = None,
        writes: tuple[str, int] | None = None,
    ) -> None:
        """Note what a change came to: the snapshot it made, or that it made none.

        With it, in one transaction, its answers by key id, and how many WRITEs its table has had.
        """
        state = "void" if snapshot_id is None else "done"
        with self._writing() as connection:
            connection.execute(
                update(batches)
                .where(batches.c.batch == batch)
                .values(state=state, snapshot_id=snapshot_id, ended_ms=_now_ms())
            )
            if answers:
                step = update(keys).where(keys.c.id == bindparam("key_id")).values(answer=bindparam("body"))
                connection.execute(step, [{"key_id": key, "body": body} for key, body in answers.items()])
            if writes:
                _keep_count(connection, *writes)

    def find(self, batch: str) -> Batch | None:
        """What is noted of a change."""
        with self._reading() as connection:
            row = connection.execute(select(batches).where(batches.c.batch == batch)).one_or_none()
        return None if row is None else _batch(row)

    def unfinished(self) -> list[Batch]:
        """Changes whose end is not noted: what a crash left behind."""
        with self._reading() as connection:
            rows = connection.execute(select(batches).where(batches.c.state == "begun")).all()
        return [_batch(row) for row in rows]

    def awaited_snapshots(self, table_uuid: str) -> set[int]:
        """Snapshots that answers not yet stored will be made from."""
        with self._reading() as connection:
            unanswered = select(keys.c.batch).where(keys.c.answer.is_(None), keys.c.batch.is_not(None)).distinct()
            waiting = list(connection.execute(unanswered).scalars())
            found: set[int] = set()
            for i in range(0, len(waiting), _AT_ONCE):
                # The batches by their keys: of one table there may be a great many.
                asked = select(batches.c.table_uuid, batches.c.state, batches.c.snapshot_id)
                rows = connection.execute(asked.where(batches.c.batch.in_(waiting[i : i + _AT_ONCE]))).all()
                found |= {int(r.snapshot_id) for r in rows if (r.table_uuid, r.state) == (table_uuid, "done")}
            return found

    def key(self, key_id: str) -> KeyNote | None:
        """What is noted of an idempotency key."""
        with self._reading() as connection:
            row = connection.execute(select(keys).where(keys.c.id == key_id)).one_or_none()
        return None if row is None else KeyNote(row.fingerprint, row.batch, row.answer)

    def answer(self, key_id: str, fingerprint: str, body: bytes) -> None:
        """Keep the answer of a request by its key, whether or not a batch was noted with it."""
        with self._writing() as connection:
            known = update(keys).where(keys.c.id == key_id).values(answer=body).returning(keys.c.id)
            if connection.execute(known).scalar() is None:
                values = {"id": key_id, "fingerprint": fingerprint, "answer": body, "noted_ms": _now_ms()}
                connection.execute(insert(keys), values)

    def writes(self, table_uuid: str) -> int:
        """How many WRITEs of a table have been counted."""
        with self._reading() as connection:
            asked = select(write_counts.c.writes).where(write_counts.c.table_uuid == table_uuid)
            return int(connection.execute(asked).scalar() or 0)

    def count_writes(self, table_uuid: str, total: int) -> None:
        """Keep how many WRITEs of a table there have been."""
        with self._writing() as connection:
            _keep_count(connection, table_uuid, total)

    def forget(self, batches_before_ms: int, keys_before_ms: int) -> None:
        """Let go of the notes of changes that ended before a time, and of keys noted before one."""
        with self._writing() as connection:
            connection.execute(delete(batches).where(batches.c.ended_ms < batches_before_ms))
            undecided = select(batches.c.batch).where(batches.c.state == "begun")
            old = keys.c.noted_ms < keys_before_ms
            connection.execute(delete(keys).where(old, keys.c.batch.is_(None) | keys.c.batch.not_in(undecided)))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with _translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Readers wait for no writer."""
        with _translated(), self._engine.connect().execution_options(reads=True) as connection:
            yield connection


def open_ledger(settings: Settings) -> Ledger:
    """The ledger under FIRN_HOME."""
    ledger = Ledger(f"sqlite:///{settings.home / 'ledger.db'}")
    tidy(ledger, settings)
    return ledger


def tidy(ledger: Ledger, settings: Settings) -> None:
    """Let go of what is past its time."""
    hour = 3600 * 1000
    keys_hours = settings.limits.keys_kept_hours
    # A key without an answer is worth nothing without the note of its batch.
    batches_hours = max(_KEPT_DAYS * 24, keys_hours)
    ledger.forget(_now_ms() - batches_hours * hour, _now_ms() - keys_hours * hour)


def _replace_keys(connection: Connection, fingerprints: Mapping[str, str], batch: str) -> None:
    """An earlier note of a key is of an attempt that came to nothing."""
    ids = list(fingerprints)
    for i in range(0, len(ids), _AT_ONCE):
        connection.execute(delete(keys).where(keys.c.id.in_(ids[i : i + _AT_ONCE])))
    now = _now_ms()
    rows = [{"id": k, "fingerprint": f, "batch": batch, "noted_ms": now} for k, f in fingerprints.items()]
    connection.execute(insert(keys), rows)


def _keep_count(connection: Connection, table_uuid: str, total: int) -> None:
    known = write_counts.c.writes
    higher = case((known < total, total), else_=known)  # totals need not come in their order
    step = update(write_counts).where(write_counts.c.table_uuid == table_uuid).values(writes=higher)
    if connection.execute(step.returning(write_counts.c.writes)).scalar() is None:
        connection.execute(insert(write_counts), {"table_uuid": table_uuid, "writes": total})


def _batch(row: Any) -> Batch:
    table = TableName(row.tenant, row.namespace, row.table_name)
    return Batch(row.batch, table, row.table_uuid, row.operation, row.state, row.snapshot_id, row.requests, row.records)


def _engine(url: str) -> Engine:
    # A reader never waits for a connection: one of them is the thread that all requests come in on.
    timeout = {"timeout": 30} if url.startswith("sqlite") else {}
    engine = create_engine(url, connect_args=timeout, pool_size=8, max_overflow=-1)
    if url.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def _durable(connection, _record):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
            # pysqlite would begin transactions late, as readers, and then fail to become writers.
            connection.isolation_level = None
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")

        @event.listens_for(engine, "begin")
        def _as_writer(connection):  # type: ignore[no-untyped-def]  # SQLAlchemy types neither argument
            reads = connection.get_execution_options().get("reads")
            connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

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
