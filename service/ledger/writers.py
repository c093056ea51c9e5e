"""The ledger's notes of who writes files that no snapshot holds yet: bulk loads and compactions, which take long."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, String, Table, delete, insert, select

from service.errors import CommitConflict, LedgerUnavailable
from service.ledger.ledger import Ledger
from service.ledger.schema import metadata

log = logging.getLogger("firn.ledger")

writers = Table(
    "writers",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("table_uuid", String(36), nullable=False),
    Column("what", String(100), nullable=False),  # as a reader would say it: "a bulk load", "a compaction"
    Column("owner", String(40), nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
)


@dataclass(frozen=True)
class Writer:
    """Somebody who writes files of a table; `still_noted` is called when nothing but a commit is left to do."""

    id: str
    table_uuid: str
    what: str
    owner: str
    begun_ms: int
    still_noted: Callable[[], None] = lambda: None
    """Raises CommitConflict if others took this instance for gone meanwhile: its files may have been removed."""


class Writers:
    """The table `writers` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._live: set[str] = set()

    @property
    def shared(self) -> bool:
        """Whether other instances may be writing."""
        return self._ledger.owners.shared

    @contextmanager
    def writing(self, table_uuid: str, what: str) -> Iterator[Writer]:
        """Be noted for the block, from before the first file is there until each is a snapshot's, or deleted.

        LedgerUnavailable before the block where that cannot be noted; never after it.
        """
        me = uuid.uuid4().hex
        owners = self._ledger.owners
        writer = Writer(me, table_uuid, what, owners.me, time.time_ns() // 1_000_000, lambda: self._still_noted(me))
        with self._lock:
            self._live.add(me)
        try:
            self._note(writer)
            yield writer
        finally:
            with self._lock:
                self._live.remove(me)
            try:
                self._forget({me})
            except LedgerUnavailable as e:  # whoever looks next sees that it is not at work, and forgets it
                log.warning("that %s has ended could not be noted: %s", what, e.message)

    def active(self, table_uuid: str) -> list[Writer]:
        """Those at work on a table now, the first to begin first. Who has left, whatever the table, is forgotten."""
        with self._ledger._reading() as connection:
            noted = [_writer(row) for row in connection.execute(select(writers).order_by(writers.c.begun_ms))]
        left = {writer.id for writer in noted if self._has_left(writer)}
        if left:
            self._forget(left)
        return [writer for writer in noted if writer.table_uuid == table_uuid and writer.id not in left]

    def elsewhere(self, table_uuid: str) -> list[Writer]:
        """Those of other instances that are at work on a table now."""
        owners = self._ledger.owners
        return [writer for writer in self.active(table_uuid) if writer.owner != owners.me] if owners.shared else []

    def _has_left(self, writer: Writer) -> bool:
        owners = self._ledger.owners
        if writer.owner != owners.me:
            return owners.gone(writer.owner)
        with self._lock:
            return writer.id not in self._live

    def _note(self, writer: Writer) -> None:
        values = {
            "id": writer.id,
            "table_uuid": writer.table_uuid,
            "what": writer.what[:100],
            "owner": writer.owner,
            "begun_ms": writer.begun_ms,
        }
        with self._ledger._writing() as connection:
            connection.execute(insert(writers), values)

    def _forget(self, ids: Set[str]) -> None:
        with self._ledger._writing() as connection:
            connection.execute(delete(writers).where(writers.c.id.in_(ids)))

    def _still_noted(self, writer: str) -> None:
        if not self._ledger.owners.shared:
            return
        with self._ledger._reading() as connection:
            found = connection.execute(select(writers.c.id).where(writers.c.id == writer)).scalar()
        if found is None:
            raise CommitConflict("another instance could not see us and may have removed our files; send it again")


def _writer(row: Any) -> Writer:
    return Writer(row.id, row.table_uuid, row.what, row.owner, row.begun_ms)
