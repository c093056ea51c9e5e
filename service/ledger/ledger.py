"""Firn's own small database: what was begun, what came of it, what was answered, how often each table was written."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from service.errors import KeyBusy
from service.ledger import database
from service.ledger.last import not_last
from service.ledger.owners import Owners, SharedInstances, SingleInstance
from service.ledger.schema import batches, keys, shares, write_counts
from service.ledger.translate import translated
from service.model.names import TableName
from service.model.row_marks import RowShares
from service.settings import Settings

_KEPT_DAYS = 30
# Of each table so many changes stay noted for longer, as its history names their requests.
_LAST, _LAST_KEPT_DAYS = 400, 366
BEGUN, TAKEN = "begun", "taken"
UNFINISHED = (BEGUN, TAKEN)
_AT_ONCE = 500  # values in one IN (…)
_insert_new: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


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
    """Of an UNDO: the batch and the request that it takes back."""


@dataclass(frozen=True)
class KeyNote:
    """What is known of an idempotency key: what it stood for, the batch it was last in, and its answer."""

    fingerprint: str
    batch: str | None
    answer: bytes | None
    state: str | None = None
    owner: str | None = None
    """The state and the owner of the batch, if that is known."""
    request_id: str | None = field(default=None, compare=False)
    """Which of the batch's requests had it."""

    @property
    def is_free(self) -> bool:
        """Whether what it stood for came to nothing, so that it may stand for another request."""
        return self.answer is None and self.state == "void"


@dataclass(frozen=True)
class NewBatch:
    """A change to note before it is tried."""

    batch: str
    table: TableName
    table_uuid: str
    operation: str
    request_ids: Sequence[str]
    records: int = 0
    keys: Mapping[str, str] | None = None
    """Fingerprints by key id."""
    whose: Mapping[str, str] = field(default_factory=dict)
    """Which request has a key, by key id, where several share the change."""
    shares: RowShares | None = None
    """Of a batch that requests share: which rows are whose."""
    undoes: str | None = None


class Ledger:
    """One SQLAlchemy address; its tables are made when it is opened."""

    def __init__(self, url: str) -> None:
        self._engine = database.engine(url)
        with translated():
            database.prepare(self._engine)
            self.owners: Owners = (
                SharedInstances(self._engine) if self._engine.dialect.name == "postgresql" else SingleInstance()
            )

    def begin(self, change: NewBatch) -> None:
        """Note a change, and the keys of those who asked for it, in one transaction.

        KeyBusy, and nothing is noted, where another instance has begun or answered a request with one of the keys.
        """
        with self._writing() as connection:
            self._note(connection, change)

    def _note(self, connection: Connection, change: NewBatch) -> None:
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
            "begun_ms": _now_ms(),
            "undoes": change.undoes,
        }
        connection.execute(insert(batches), values)
        if change.shares:
            connection.execute(insert(shares), {"batch": change.batch, **_shares(change.shares)})
        if change.keys:
            whose = {key: change.whose.get(key, change.request_ids[0]) for key in change.keys}
            self._take_keys(connection, change.keys, whose, change.batch)

    def end(
        self,
        batch: str,
        snapshot_id: int | None,
        answers: Mapping[str, bytes] | None = None,
        writes: tuple[str, int] | None = None,
    ) -> None:
        """Note what a change came to: the snapshot it made, or that it made none.

        With it, in one transaction, its answers by key id, and of which table it was how many WRITEs.
        """
        with self._writing() as connection:
            self._end(connection, batch, snapshot_id)
            if answers:
                step = update(keys).where(keys.c.id == bindparam("key_id")).values(answer=bindparam("body"))
                connection.execute(step, [{"key_id": key, "body": body} for key, body in answers.items()])
            if writes:
                _count(connection, *writes)

    @staticmethod
    def _end(connection: Connection, batch: str, snapshot_id: int | None) -> None:
        state = "void" if snapshot_id is None else "done"
        ended = {"state": state, "snapshot_id": snapshot_id, "ended_ms": _now_ms()}
        connection.execute(update(batches).where(batches.c.batch == batch).values(**ended))

    def take_over(self, noted: Batch) -> bool:
        """Make a change that another instance began ours; false where somebody else was first, or it has ended."""
        same = (batches.c.batch == noted.batch, batches.c.owner == noted.owner, batches.c.state == noted.state)
        ours = {"owner": self.owners.me, "state": TAKEN}
        with self._writing() as connection:
            taken = update(batches).where(*same).values(**ours).returning(batches.c.batch)
            return connection.execute(taken).scalar() is not None

    def is_ours(self, batch: str) -> bool:
        """Whether a change is still ours to make: begun, and taken over by nobody."""
        ours = (batches.c.batch == batch, batches.c.owner == self.owners.me, batches.c.state == BEGUN)
        with self._reading() as connection:
            return connection.execute(select(batches.c.batch).where(*ours)).scalar() is not None

    def find(self, batch: str) -> Batch | None:
        """What is noted of a change."""
        with self._reading() as connection:
            row = connection.execute(select(batches).where(batches.c.batch == batch)).one_or_none()
        return None if row is None else as_batch(row)

    def unfinished(self) -> list[Batch]:
        """Changes whose end is not noted: under way, or left behind by a crash."""
        with self._reading() as connection:
            rows = connection.execute(select(batches).where(batches.c.state.in_(UNFINISHED))).all()
        return [as_batch(row) for row in rows]

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
        noted = select(keys, batches.c.state, batches.c.owner).outerjoin(batches, batches.c.batch == keys.c.batch)
        with self._reading() as connection:
            row = connection.execute(noted.where(keys.c.id == key_id)).one_or_none()
        if row is None:
            return None
        return KeyNote(row.fingerprint, row.batch, row.answer, row.state, row.owner, row.request_id)

    def answer(self, key_id: str, fingerprint: str, body: bytes) -> bytes:
        """Keep the answer of a request by its key, whether or not a batch was noted with it.

        Returns the one that is kept: the first. KeyBusy while another instance works on a request with this key.
        """
        values = {"id": key_id, "fingerprint": fingerprint, "answer": body, "noted_ms": _now_ms()}
        this = keys.c.id == key_id
        with self._writing() as connection:
            new = _insert_new[connection.dialect.name](keys).values(**values).on_conflict_do_nothing()
            if connection.execute(new.returning(keys.c.id)).scalar() is not None:
                return body
            known = connection.execute(select(keys).where(this).with_for_update()).one()
            if known.answer is not None:
                return bytes(known.answer)
            noted = connection.execute(select(batches).where(batches.c.batch == known.batch)).one_or_none()
            if self._is_anothers(noted) and noted.state in UNFINISHED:
                raise KeyBusy(keys=frozenset({key_id}))
            connection.execute(update(keys).where(this).values(answer=body, fingerprint=fingerprint))
            return body

    def forget_answer(self, key_id: str, body: bytes) -> None:
        """Let go of the answer under a key, if it is this one; what the key stands for stays noted."""
        this = (keys.c.id == key_id, keys.c.answer == body)
        with self._writing() as connection:
            connection.execute(update(keys).where(*this).values(answer=None, noted_ms=_now_ms()))

    def writes(self, table_uuid: str) -> int:
        """How many WRITEs of a table have been counted."""
        with self._reading() as connection:
            asked = select(write_counts.c.writes).where(write_counts.c.table_uuid == table_uuid)
            return int(connection.execute(asked).scalar() or 0)

    def count_writes(self, table_uuid: str, writes: int) -> None:
        """Count so many WRITEs of a table more."""
        with self._writing() as connection:
            _count(connection, table_uuid, writes)

    def forget(self, batches_before_ms: int, keys_before_ms: int, last_before_ms: int | None = None) -> None:
        """Let go of the notes of changes that ended before a time, and of keys noted before one.

        With `last_before_ms` the last changes of each table go only where they ended before that.
        """
        going = [batches.c.ended_ms < batches_before_ms]
        if last_before_ms is not None:
            with self._reading() as connection:
                going = [*not_last(connection, going[0], _LAST), batches.c.ended_ms < last_before_ms]
        with self._writing() as connection:
            for which in going:
                connection.execute(delete(batches).where(which))
            connection.execute(delete(shares).where(shares.c.until_ms < _now_ms()))
            undecided = select(batches.c.batch).where(batches.c.state.in_(UNFINISHED))
            old = keys.c.noted_ms < keys_before_ms
            connection.execute(delete(keys).where(old, keys.c.batch.is_(None) | keys.c.batch.not_in(undecided)))

    def close(self) -> None:
        self.owners.close()
        self._engine.dispose()

    def _take_keys(
        self, connection: Connection, fingerprints: Mapping[str, str], whose: Mapping[str, str], batch: str
    ) -> None:
        """Note keys with a batch. One that was noted before is ours if the attempt was, or if it came to nothing."""
        now, ids = _now_ms(), sorted(fingerprints)  # in one order everywhere, so that no two wait for each other
        rows = [
            {"id": k, "fingerprint": fingerprints[k], "batch": batch, "request_id": whose[k], "noted_ms": now}
            for k in ids
        ]
        insert_new = _insert_new[connection.dialect.name](keys).on_conflict_do_nothing()
        connection.execute(insert_new, rows)
        known: list[Any] = []
        states: dict[str, Any] = {}
        for i in range(0, len(ids), _AT_ONCE):
            others = select(keys).where(keys.c.id.in_(ids[i : i + _AT_ONCE]), _other_than(batch))
            known += connection.execute(others.order_by(keys.c.id).with_for_update()).all()
        for i in range(0, len(known), _AT_ONCE):
            # Asked only now that nobody else can change them.
            earlier = [row.batch for row in known[i : i + _AT_ONCE] if row.batch]
            found = connection.execute(select(batches).where(batches.c.batch.in_(earlier)))
            states |= {row.batch: row for row in found}
        taken = {row.id for row in known if row.answer is not None or self._is_anothers(states.get(row.batch))}
        if taken:
            raise KeyBusy(keys=frozenset(taken))
        if known:
            again = update(keys).where(keys.c.id == bindparam("key_id"))
            again = again.values(
                fingerprint=bindparam("print"), batch=batch, request_id=bindparam("asker"), noted_ms=now
            )
            values = [{"key_id": r.id, "print": fingerprints[r.id], "asker": whose[r.id]} for r in known]
            connection.execute(again, values)

    def _is_anothers(self, noted: Row[Any] | None) -> TypeGuard[Row[Any]]:
        return noted is not None and noted.state != "void" and noted.owner != self.owners.me

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Readers wait for no writer."""
        with translated(), self._engine.connect().execution_options(reads=True) as connection:
            yield connection


def open_ledger(settings: Settings) -> Ledger:
    """The ledger that the settings name, or the one under FIRN_HOME."""
    ledger = Ledger(settings.ledger.url or f"sqlite:///{settings.home / 'ledger.db'}")
    tidy(ledger, settings)
    return ledger


def tidy(ledger: Ledger, settings: Settings) -> None:
    """Let go of what is past its time."""
    hour = 3600 * 1000
    keys_hours = settings.limits.idempotency_key_retention_hours
    # A key without an answer is worth nothing without the note of its batch.
    batches_hours = max(_KEPT_DAYS * 24, keys_hours)
    last_hours = max(_LAST_KEPT_DAYS * 24, batches_hours)
    now = _now_ms()
    ledger.forget(now - batches_hours * hour, now - keys_hours * hour, now - last_hours * hour)


def _count(connection: Connection, table_uuid: str, writes: int) -> None:
    new = _insert_new[connection.dialect.name](write_counts).values(table_uuid=table_uuid, writes=writes)
    more = {"writes": write_counts.c.writes + new.excluded.writes}
    connection.execute(new.on_conflict_do_update(index_elements=[write_counts.c.table_uuid], set_=more))


def as_batch(row: Any) -> Batch:
    table = TableName(row.tenant, row.namespace, row.table_name)
    return Batch(
        row.batch,
        table,
        row.table_uuid,
        row.operation,
        row.state,
        row.snapshot_id,
        row.requests,
        row.records,
        row.owner,
        row.begun_ms,
        tuple(row.request_ids.split("\n")),
        row.undoes,
    )


def _shares(shared: RowShares) -> dict[str, Any]:
    return {
        "counts": ",".join(map(str, shared.counts)),
        "unmarked": shared.unmarked,
        "marks": shared.marks,
        "schema_id": shared.schema_id,
        "until_ms": shared.until_ms,
    }


def _other_than(batch: str) -> ColumnElement[bool]:
    return keys.c.batch.is_(None) | (keys.c.batch != batch)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
