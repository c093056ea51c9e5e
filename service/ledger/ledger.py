"""Firn's own small database: changes and their outcomes, idempotency keys and their responses, counts of WRITEs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from sqlalchemy import ColumnElement, Connection, Executable, Row, bindparam, delete, func, insert, select, update

from service.errors import KeyBusy
from service.ledger import database
from service.ledger.database import insert_new, parts, translated
from service.ledger.owners import SharedInstances, SingleInstance
from service.ledger.schema import batches, keys, request_rows, shares, write_counts
from service.model.keyed.records import RequestPart, RequestRows, read_parts, write_parts
from service.model.names import TableName
from service.model.row_marks import RowShares
from service.model.times import HOUR_MS, now_ms
from service.settings import Settings

_KEPT_DAYS = 30
# So many of the latest changes of each table are kept for longer, because its history names their requests.
_LAST, _LAST_KEPT_DAYS = 400, 366
BEGUN, TAKEN = "begun", "taken"
UNFINISHED = (BEGUN, TAKEN)
NO_SNAPSHOT = 0  # the snapshot of a change that is done and made none
Also = Callable[["Transaction"], object]  # records something else in the transaction of what it is passed to


@dataclass(frozen=True)
class Batch:
    """A change as the ledger knows it; `state` is begun, taken (over by another instance), done or void."""

    batch: str
    table: TableName
    table_uuid: str
    operation: str
    state: str
    snapshot_id: int | None
    requests: int
    records: int
    owner: str = ""
    """The instance that began it, or took it over."""
    begun_ms: int = field(default=0, compare=False)
    request_ids: tuple[str, ...] = field(default=(), compare=False)
    undoes: str | None = field(default=None, compare=False)
    """For an UNDO: the batch and the request that it reverts."""
    parts: tuple[RequestPart, ...] = field(default=(), compare=False)
    """What each request did, if edits share the change."""

    def part_of(self, key_id: str) -> RequestPart | None:
        """What the request with a key did, if edits share the change."""
        return next((part for part in self.parts if part.key == key_id), None)


@dataclass(frozen=True)
class KeyRecord:
    """What the ledger knows of an idempotency key: its request, the last batch with it, and its response."""

    fingerprint: str
    batch: str | None
    answer: bytes | None
    state: str | None = None
    owner: str | None = None
    """The state and the owner of the batch, if the ledger knows them."""
    request_id: str | None = field(default=None, compare=False)
    """The request of the batch that had the key."""

    @property
    def is_free(self) -> bool:
        """Whether its request had no effect, so that another request may use the key."""
        return self.answer is None and self.state == "void"


@dataclass(frozen=True)
class NewBatch:
    """A change to record before it is tried."""

    batch: str
    table: TableName
    table_uuid: str
    operation: str
    request_ids: Sequence[str]
    records: int = 0
    keys: Mapping[str, str] | None = None
    """Fingerprints by key id."""
    whose: Mapping[str, str] = field(default_factory=dict)
    """If several requests share the change: the request of each key, by key id."""
    shares: RowShares | None = None
    """If several requests share the change: which rows belong to which request."""
    undoes: str | None = None
    parts: Sequence[RequestPart] = ()
    rows: RequestRows | None = None
    """If edits share the change: what each request did, and which rows it moved."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that several changes of the ledger share: those that are given it as `within`."""

    connection: Connection

    def answer(self, key_id: str, body: bytes) -> None:
        """Store the response under a key that this transaction has recorded."""
        self.connection.execute(update(keys).where(keys.c.id == key_id).values(answer=body))


class Ledger:
    """The database at a SQLAlchemy URL; its tables are created when it is opened."""

    def __init__(self, url: str) -> None:
        self._engine = database.engine(url)
        with translated():
            database.prepare(self._engine)
            shared = self._engine.dialect.name == "postgresql"
            self.owners = SharedInstances(self._engine) if shared else SingleInstance()

    @property
    def place(self) -> str:
        """The path of its file, or its URL without the password."""
        url = self._engine.url
        is_file = self._engine.dialect.name == "sqlite" and url.database is not None
        return str(url.database) if is_file else url.render_as_string(hide_password=True)

    def begin(self, change: NewBatch, within: Transaction | None = None) -> None:
        """Record a change and the keys of its requests in one transaction.

        KeyBusy, and nothing is recorded, if another instance has begun or answered a request with one of the keys.
        """
        with self._writing(within) as connection:
            self.add_batch(connection, change)

    @contextmanager
    def transaction(self, change: NewBatch | None = None) -> Iterator[Transaction]:
        """A transaction for a change of the ledger itself. If the block raises, nothing happened.

        `change` is recorded with it, as one that is done. KeyBusy as from `begin`.
        """
        with self._writing() as connection:
            if change is not None:
                self.add_batch(connection, change)
                end_batch(connection, change.batch, NO_SNAPSHOT)
            yield Transaction(connection)

    def add_batch(self, connection: Connection, change: NewBatch) -> None:
        """The same, in a transaction of the caller's."""
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
            "state": BEGUN,
            "owner": self.owners.me,
            "begun_ms": now_ms(),
            "undoes": change.undoes,
            "parts": write_parts(change.parts) if change.parts else None,
        }
        connection.execute(insert(batches), values)
        if change.shares:
            counts = ",".join(map(str, change.shares.counts))
            connection.execute(insert(shares), vars(change.shares) | {"batch": change.batch, "counts": counts})
        if change.rows:
            connection.execute(insert(request_rows), change.rows.stored(change.batch))
        if change.keys:
            whose = {key: change.whose.get(key, change.request_ids[0]) for key in change.keys}
            self._take_keys(connection, change.keys, whose, change.batch)

    def end(
        self,
        batch: str,
        snapshot_id: int | None,
        answers: Mapping[str, bytes] | None = None,
        writes: tuple[str, int] | None = None,
        within: Transaction | None = None,
    ) -> None:
        """Record the snapshot that a change made, or None if it made none; with it, its responses by key id, and a
        table with the number of its WRITEs to count."""
        with self._writing(within) as connection:
            end_batch(connection, batch, snapshot_id)
            if answers:
                step = update(keys).where(keys.c.id == bindparam("key_id")).values(answer=bindparam("body"))
                connection.execute(step, [{"key_id": key, "body": body} for key, body in answers.items()])
            if writes:
                _count(connection, *writes)

    def take_over(self, noted: Batch) -> bool:
        """Take over a change that another instance began; false if it has ended or a third instance was faster."""
        same = (batches.c.batch == noted.batch, batches.c.owner == noted.owner, batches.c.state == noted.state)
        ours = {"owner": self.owners.me, "state": TAKEN}
        return self.changes(update(batches).where(*same).values(**ours).returning(batches.c.batch))

    def is_ours(self, batch: str) -> bool:
        """Whether this instance may still make a change: it has not ended, and no other instance has taken it over."""
        ours = (batches.c.batch == batch, batches.c.owner == self.owners.me, batches.c.state == BEGUN)
        return self.row(select(batches.c.batch).where(*ours)) is not None

    def find(self, batch: str) -> Batch | None:
        row = self.row(select(batches).where(batches.c.batch == batch))
        return None if row is None else as_batch(row)

    def unfinished(self) -> list[Batch]:
        """Changes without a recorded outcome: in progress, or left by a crash."""
        return [as_batch(row) for row in self.rows(select(batches).where(batches.c.state.in_(UNFINISHED)))]

    def snapshots_awaiting_response(self, table_uuid: str) -> set[int]:
        """The snapshots that responses will be made from that are not stored yet."""
        unanswered = select(keys.c.batch).where(keys.c.answer.is_(None), keys.c.batch.is_not(None)).distinct()
        waiting = [row.batch for row in self.rows(unanswered)]
        # The batches by their ids: a table may have very many.
        asked = select(batches.c.table_uuid, batches.c.state, batches.c.snapshot_id)
        rows = self.rows(*(asked.where(batches.c.batch.in_(some)) for some in parts(waiting)))
        return {int(row.snapshot_id) for row in rows if (row.table_uuid, row.state) == (table_uuid, "done")}

    def key(self, key_id: str) -> KeyRecord | None:
        """What is known of an idempotency key."""
        known = select(keys, batches.c.state, batches.c.owner).outerjoin(batches, batches.c.batch == keys.c.batch)
        row = self.row(known.where(keys.c.id == key_id))
        if row is None:
            return None
        return KeyRecord(row.fingerprint, row.batch, row.answer, row.state, row.owner, row.request_id)

    def answer(self, key_id: str, fingerprint: str, body: bytes) -> bytes:
        """Store the response to a request under its key, whether or not the request has a batch.

        Returns the stored response, which is the first. KeyBusy if another instance works on a request with this key.
        """
        values = {"id": key_id, "fingerprint": fingerprint, "answer": body, "noted_ms": now_ms()}
        this = keys.c.id == key_id
        with self._writing() as connection:
            new = insert_new(connection, keys).values(**values).on_conflict_do_nothing()
            if connection.execute(new.returning(keys.c.id)).scalar() is not None:
                return body
            known = connection.execute(select(keys).where(this).with_for_update()).one()
            if known.answer is not None:
                return bytes(known.answer)
            batch = connection.execute(select(batches).where(batches.c.batch == known.batch)).one_or_none()
            if self._is_anothers(batch) and batch.state in UNFINISHED:
                raise KeyBusy(keys=frozenset({key_id}))
            connection.execute(update(keys).where(this).values(answer=body, fingerprint=fingerprint))
            return body

    def delete_response(self, key_id: str, body: bytes) -> None:
        """Delete the response under a key, if it is this one; the key stays."""
        with self._writing() as connection:
            this = update(keys).where(keys.c.id == key_id, keys.c.answer == body)
            connection.execute(this.values(answer=None, noted_ms=now_ms()))

    def writes(self, table_uuid: str) -> int:
        """How many WRITEs to a table have been counted."""
        row = self.row(select(write_counts).where(write_counts.c.table_uuid == table_uuid))
        return int(row.writes) if row else 0

    def count_writes(self, table_uuid: str, writes: int) -> None:
        """Add to the number of WRITEs to a table."""
        with self._writing() as connection:
            _count(connection, table_uuid, writes)

    def forget(self, batches_before_ms: int, keys_before_ms: int, last_before_ms: int | None = None) -> None:
        """Delete changes that ended before a time, and keys recorded before one.

        With `last_before_ms` the latest changes of each table are deleted only if they ended before that.
        """
        old = [batches.c.ended_ms < batches_before_ms]
        if last_before_ms is not None:
            old = [*self._not_last(old[0]), batches.c.ended_ms < last_before_ms]
        with self._writing() as connection:
            for which in old:
                connection.execute(delete(batches).where(which))
            for rows in (shares, request_rows):
                connection.execute(delete(rows).where(rows.c.until_ms < now_ms()))
            undecided = select(batches.c.batch).where(batches.c.state.in_(UNFINISHED))
            old_key = keys.c.noted_ms < keys_before_ms
            connection.execute(delete(keys).where(old_key, keys.c.batch.is_(None) | keys.c.batch.not_in(undecided)))

    def _not_last(self, old: ColumnElement[bool]) -> list[ColumnElement[bool]]:
        """Conditions for the old changes without a snapshot, and for those before the latest ones of each table.

        They are made by a reader, so that no writer waits for it.
        """
        made = batches.c.snapshot_id > 0
        tables = select(batches.c.table_uuid).where(old, made).distinct()
        newest_first = func.row_number().over(partition_by=batches.c.table_uuid, order_by=batches.c.ended_ms.desc())
        ranked = select(batches.c.table_uuid, batches.c.ended_ms, newest_first.label("rank"))
        last = ranked.where(made, batches.c.table_uuid.in_(tables)).subquery()
        without = batches.c.snapshot_id.is_(None) | (batches.c.snapshot_id == 0)
        found = self.rows(select(last).where(last.c.rank == _LAST))
        before = [(batches.c.table_uuid == row.table_uuid) & (batches.c.ended_ms < row.ended_ms) for row in found]
        return [old & which for which in (without, *before)]

    def close(self) -> None:
        self.owners.close()
        self._engine.dispose()

    def _take_keys(
        self, connection: Connection, fingerprints: Mapping[str, str], whose: Mapping[str, str], batch: str
    ) -> None:
        """Record keys with a batch. A known key is free if its earlier attempt was ours, or had no effect."""
        now, ids = now_ms(), sorted(fingerprints)  # in the same order everywhere, so that transactions do not deadlock
        rows = [
            {"id": k, "fingerprint": fingerprints[k], "batch": batch, "request_id": whose[k], "noted_ms": now}
            for k in ids
        ]
        connection.execute(insert_new(connection, keys).on_conflict_do_nothing(), rows)
        known: list[Any] = []
        earlier: dict[str, Any] = {}
        other = keys.c.batch.is_(None) | (keys.c.batch != batch)
        for some in parts(ids):
            others = select(keys).where(keys.c.id.in_(some), other).order_by(keys.c.id)
            known += connection.execute(others.with_for_update()).all()
        # Read only now that nobody else can change these keys.
        for some in parts([row.batch for row in known if row.batch]):
            found = connection.execute(select(batches).where(batches.c.batch.in_(some)))
            earlier |= {row.batch: row for row in found}
        busy = {row.id for row in known if row.answer is not None or self._is_anothers(earlier.get(row.batch))}
        if busy:
            raise KeyBusy(keys=frozenset(busy))
        if known:
            again = (
                update(keys)
                .where(keys.c.id == bindparam("key_id"))
                .values(fingerprint=bindparam("print"), batch=batch, request_id=bindparam("asker"), noted_ms=now)
            )
            values = [{"key_id": r.id, "print": fingerprints[r.id], "asker": whose[r.id]} for r in known]
            connection.execute(again, values)

    def _is_anothers(self, batch: Row[Any] | None) -> TypeGuard[Row[Any]]:
        return batch is not None and batch.state != "void" and batch.owner != self.owners.me

    def rows(self, *queries: Executable, within: Transaction | None = None) -> list[Row[Any]]:
        """The rows of several queries, one after the other."""
        with nullcontext(within.connection) if within else self._reading() as connection:
            return [row for query in queries for row in connection.execute(query)]

    def row(self, query: Executable) -> Row[Any] | None:
        """The only row of a query, or none."""
        with self._reading() as connection:
            return connection.execute(query).one_or_none()

    def changes(self, statement: Executable) -> bool:
        """Execute a statement that returns what it changed; whether it changed anything."""
        with self._writing() as connection:
            return connection.execute(statement).first() is not None

    @contextmanager
    def _writing(self, within: Transaction | None = None) -> Iterator[Connection]:
        """A transaction of its own, or the one that the caller shares."""
        if within is not None:
            yield within.connection
            return
        with translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Readers do not wait for writers."""
        with translated(), self._engine.connect().execution_options(reads=True) as connection:
            yield connection


def open_ledger(settings: Settings) -> Ledger:
    """The ledger that the settings name, or the one under FIRN_HOME."""
    ledger = Ledger(database.url_of(settings))
    delete_old_records(ledger, settings)
    return ledger


def delete_old_records(ledger: Ledger, settings: Settings) -> None:
    """Delete what has been kept for long enough."""
    keys_hours = settings.limits.idempotency_key_retention_hours
    # A key without a response is worth nothing without its batch.
    batches_hours = max(_KEPT_DAYS * 24, keys_hours)
    last_hours = max(_LAST_KEPT_DAYS * 24, batches_hours)
    now = now_ms()
    ledger.forget(now - batches_hours * HOUR_MS, now - keys_hours * HOUR_MS, now - last_hours * HOUR_MS)


def end_batch(connection: Connection, batch: str, snapshot_id: int | None) -> None:
    """Record the outcome of a change in a transaction of the caller's."""
    state = "void" if snapshot_id is None else "done"
    ended = {"state": state, "snapshot_id": snapshot_id, "ended_ms": now_ms()}
    connection.execute(update(batches).where(batches.c.batch == batch).values(**ended))


def _count(connection: Connection, table_uuid: str, writes: int) -> None:
    new = insert_new(connection, write_counts).values(table_uuid=table_uuid, writes=writes)
    more = {"writes": write_counts.c.writes + new.excluded.writes}
    connection.execute(new.on_conflict_do_update(index_elements=[write_counts.c.table_uuid], set_=more))


def as_batch(row: Row[Any]) -> Batch:
    table = TableName(row.tenant, row.namespace, row.table_name)
    same = ("batch", "table_uuid", "operation", "state", "snapshot_id", "requests", "records", "owner", "begun_ms")
    values = {name: row._mapping[name] for name in (*same, "undoes")} | {"parts": read_parts(row.parts)}
    return Batch(table=table, request_ids=tuple(row.request_ids.split("\n")), **values)
