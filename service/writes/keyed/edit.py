"""One edit of rows that are found by key, which waits to be committed with others."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar

from service.catalog.tables import Table
from service.commits.small_files import SmallFileCheck
from service.errors import FirnError
from service.model.call import Call
from service.model.keyed.changes import KeyedChange, MatchRows, PutRows
from service.model.keyed.records import RequestPart
from service.model.names import TableName
from service.writes.entry import SMALL, running


@dataclass(frozen=True)
class SharedEditOutcome:
    """What an edit did, and the snapshot that has it."""

    part: RequestPart
    snapshot_id: int | None
    check: SmallFileCheck


@dataclass(eq=False)
class PendingEdit:
    """An edit, checked against `table`, which is as it was last seen. `response` becomes the body or a FirnError.

    `plan` says what it means for a table: None if it cannot share a commit there. `alone` makes it in a commit of its
    own, and returns the body of the response.
    """

    operation: str
    name: TableName
    call: Call
    size: int
    plan: Callable[[Table], KeyedChange | None]
    reply: Callable[[SharedEditOutcome], bytes]
    alone: Callable[[], bytes]
    response: "Future[bytes]" = field(default_factory=running)
    table: Table | None = None
    change: KeyedChange | None = None
    rechecks: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: bool = False
    is_edit: ClassVar[bool] = True

    def fit(self, table: Table) -> bool:
        """Check the request against a table; false if it cannot share a commit. Raises if it is refused."""
        self.change = self.plan(table)
        self.table = table
        return self.change is not None

    @property
    def count(self) -> int:
        """The number of its records, or of the rows that it names."""
        match self.change:
            case PutRows(rows=rows) | MatchRows(keys=rows):
                return int(rows.num_rows)
        return 0

    @property
    def small(self) -> bool:
        return self.count <= SMALL

    @property
    def upsert_keys(self) -> tuple[str, ...] | None:
        return self.change.how.keys if isinstance(self.change, PutRows) else None

    def begin(self, *, seal: bool) -> bool:
        """Begin its batch, or its own commit; false if it was cancelled before. With `seal` it is then too late to
        cancel it."""
        try:
            if seal:
                self.call.seal()
            else:
                self.call.check()
        except FirnError as e:
            self._end(e)
            return False
        with self._lock:
            self._begun = True
            return not self.response.done()

    def cancel(self) -> None:
        """End it with the reason of its call's cancellation, unless it has begun."""
        with self._lock:
            if self._begun:
                return
        try:
            self.call.check()
        except FirnError as e:
            self._end(e)

    def _end(self, failure: FirnError) -> None:
        with self._lock:
            if not self.response.done():
                self.response.set_exception(failure)
