"""The instances of the service on one ledger, each with an id: which are alive, and which of them holds a lock."""

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from service.errors import CommitConflict, LedgerUnavailable
from service.ledger.database import translated

log = logging.getLogger("firn.ledger")
_CHECK_EVERY_S = 2.0
_TABLE_TIMEOUT_S = 120.0
_RETRY_EVERY_S = 0.05
_TRY = text("SELECT pg_try_advisory_lock(:lock)")
_RELEASE = text("SELECT pg_advisory_unlock(:lock)")


class SingleInstance:
    """This instance, the only one of its ledger: every earlier one has ended, and its JVM too."""

    shared = False
    """Whether other instances may be at work now."""

    def __init__(self) -> None:
        self.me = uuid.uuid4().hex

    def gone(self, owner: str) -> bool:
        """Whether an instance has ended or lost its connection to the ledger, so that others may take over its work."""
        return owner != self.me

    @contextmanager
    def table(self, table_uuid: str) -> Iterator[None]:
        """Be the only instance that edits a table during the block."""
        yield

    @contextmanager
    def first(self, what: str) -> Iterator[bool]:
        """Whether no instance does this now; if so, no other one does during the block. It does not wait."""
        yield True

    def close(self) -> None:
        """Count as gone from here on."""


class SharedInstances(SingleInstance):
    """This instance, one of several: it holds an advisory lock of PostgreSQL while it is connected to the ledger."""

    shared = True

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._held = threading.local()
        self._closed = threading.Event()
        self._presence: Connection | None = None
        self._appear()
        threading.Thread(target=self._keep_present, name="firn-presence", daemon=True).start()

    def gone(self, owner: str) -> bool:
        if owner == self.me:
            return False
        with self._session() as connection:
            free = _execute(connection, _TRY, lock_of("instance", owner))
            if free:
                _execute(connection, _RELEASE, lock_of("instance", owner))
            return free

    @contextmanager
    def table(self, table_uuid: str) -> Iterator[None]:
        held: set[str] = self._held.__dict__.setdefault("tables", set())
        if table_uuid in held:  # an outer block of this thread has it
            yield
            return
        with self._lock(lock_of("table", table_uuid), _TABLE_TIMEOUT_S) as locked:
            if not locked:
                raise CommitConflict("another instance has been changing this table for a long time; try again later")
            held.add(table_uuid)
            try:
                yield
            finally:
                held.remove(table_uuid)

    @contextmanager
    def first(self, what: str) -> Iterator[bool]:
        with self._lock(lock_of("first", what), timeout_s=0) as locked:
            yield locked

    @contextmanager
    def _lock(self, number: int, timeout_s: float) -> Iterator[bool]:
        """Hold a lock during the block, if it is free within the time; whether it is."""
        deadline = time.monotonic() + timeout_s
        with self._session() as connection:
            while not (locked := _execute(connection, _TRY, number)) and time.monotonic() < deadline:
                time.sleep(_RETRY_EVERY_S)
            try:
                yield locked
            finally:
                # A connection that broke has released it already.
                with suppress(LedgerUnavailable):
                    if locked:
                        _execute(connection, _RELEASE, number)

    def close(self) -> None:
        self._closed.set()
        presence, self._presence = self._presence, None
        if presence is not None:
            with suppress(SQLAlchemyError):
                presence.invalidate()  # in the pool it would keep the lock
                presence.close()

    def _appear(self) -> None:
        presence = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if not presence.execute(_TRY, {"lock": lock_of("instance", self.me)}).scalar():
            # The server has not noticed yet that our last connection broke, or another instance is checking on us.
            presence.close()
            return
        self._presence = presence

    def _keep_present(self) -> None:
        """Take the lock again as soon as the ledger can be reached: a lock is lost with its connection."""
        while not self._closed.wait(_CHECK_EVERY_S):
            presence = self._presence
            try:
                if presence is None:
                    self._appear()
                else:
                    presence.execute(text("SELECT 1"))
            except SQLAlchemyError as e:
                log.warning("the ledger does not respond; others may take over the work of this instance: %s", e)
                self._presence = None
                if presence is not None:
                    with suppress(SQLAlchemyError):
                        presence.close()

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """A connection whose locks last until they are released."""
        with translated():
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        with connection:
            yield connection


def _execute(connection: Connection, statement: TextClause, number: int) -> bool:
    with translated():
        return bool(connection.execute(statement, {"lock": number}).scalar())


def lock_of(kind: str, name: str) -> int:
    """The number of an advisory lock, which cannot have a name."""
    return int.from_bytes(hashlib.sha256(f"firn {kind} {name}".encode()).digest()[:8], "big", signed=True)
