"""Who has begun a change, and whether they can still make it: an instance of the service is known by an id."""

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from service.errors import CommitConflict, LedgerUnavailable
from service.ledger.translate import translated

log = logging.getLogger("firn.ledger")

_LOOK_EVERY_S = 2.0
_TABLE_WAIT_S = 120.0
_ASK_EVERY_S = 0.05


class Owners(Protocol):
    """This instance among those that share its ledger."""

    me: str
    shared: bool
    """Whether other instances may be at work now."""

    def gone(self, owner: str) -> bool:
        """Whether an instance has ended, or has lost the ledger: others may take over what it has begun."""

    @contextmanager
    def table(self, table_uuid: str) -> Iterator[None]:
        """Be the only instance that edits a table in place for the block."""
        yield

    @contextmanager
    def first(self, what: str) -> Iterator[bool]:
        """Whether nobody is at something; if so, nobody else is for the block. It does not wait."""
        yield True

    def close(self) -> None:
        """Be gone."""


class SingleInstance:
    """The one instance of its home: whoever was before it has ended, its JVM too."""

    shared = False

    def __init__(self) -> None:
        self.me = uuid.uuid4().hex

    def gone(self, owner: str) -> bool:
        return owner != self.me

    @contextmanager
    def table(self, table_uuid: str) -> Iterator[None]:
        yield

    @contextmanager
    def first(self, what: str) -> Iterator[bool]:
        yield True

    def close(self) -> None:
        pass


class SharedInstances:
    """One of several: it holds an advisory lock of PostgreSQL as long as it lives and reaches the ledger."""

    shared = True

    def __init__(self, engine: Engine) -> None:
        self.me = uuid.uuid4().hex
        self._engine = engine
        self._held = threading.local()
        self._closed = threading.Event()
        self._presence: Connection | None = None
        self._appear()
        threading.Thread(target=self._stay, name="firn-presence", daemon=True).start()

    def gone(self, owner: str) -> bool:
        if owner == self.me:
            return False
        number = lock_of("instance", owner)
        with self._session() as connection:
            had = _asked(connection, _TRY, number)
            if had:
                _asked(connection, _LET_GO, number)
            return had

    @contextmanager
    def table(self, table_uuid: str) -> Iterator[None]:
        held: set[str] = self._held.__dict__.setdefault("tables", set())
        if table_uuid in held:  # by this thread, further out
            yield
            return
        with self._locked(lock_of("table", table_uuid)):
            held.add(table_uuid)
            try:
                yield
            finally:
                held.remove(table_uuid)

    @contextmanager
    def first(self, what: str) -> Iterator[bool]:
        number = lock_of("first", what)
        with self._session() as connection:
            had = _asked(connection, _TRY, number)
            try:
                yield had
            finally:
                if had:
                    with suppress(LedgerUnavailable):
                        _asked(connection, _LET_GO, number)

    @contextmanager
    def _locked(self, number: int) -> Iterator[None]:
        with self._session() as connection:
            deadline = time.monotonic() + _TABLE_WAIT_S
            while not _asked(connection, _TRY, number):
                if time.monotonic() > deadline:
                    raise CommitConflict("another instance has been changing this table for long; try again later")
                time.sleep(_ASK_EVERY_S)
            try:
                yield
            finally:
                # A connection that broke has let go of it already.
                with suppress(LedgerUnavailable):
                    _asked(connection, _LET_GO, number)

    def close(self) -> None:
        self._closed.set()
        presence, self._presence = self._presence, None
        if presence is not None:
            with suppress(SQLAlchemyError):
                presence.invalidate()  # back in the pool it would keep the lock
                presence.close()

    def _appear(self) -> None:
        presence = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if not presence.execute(_TRY, {"lock": lock_of("instance", self.me)}).scalar():
            # The server has not noticed yet that our last connection broke, or somebody just asks after us.
            presence.close()
            return
        self._presence = presence

    def _stay(self) -> None:
        """A lock is gone with its connection; it is had again as soon as the ledger can be reached."""
        while not self._closed.wait(_LOOK_EVERY_S):
            presence = self._presence
            try:
                if presence is None:
                    self._appear()
                else:
                    presence.execute(text("SELECT 1"))
            except SQLAlchemyError as e:
                log.warning("the ledger does not answer; others may take over what this instance has begun: %s", e)
                self._presence = None
                if presence is not None:
                    with suppress(SQLAlchemyError):
                        presence.close()

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """A connection that holds what it locks until it is told otherwise."""
        with translated():
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with connection:
            yield connection


_TRY = text("SELECT pg_try_advisory_lock(:lock)")
_LET_GO = text("SELECT pg_advisory_unlock(:lock)")


def _asked(connection: Connection, question: TextClause, number: int) -> bool:
    with translated():
        return bool(connection.execute(question, {"lock": number}).scalar())


def lock_of(kind: str, name: str) -> int:
    """Advisory locks have numbers for names."""
    return int.from_bytes(hashlib.sha256(f"firn {kind} {name}".encode()).digest()[:8], "big", signed=True)
