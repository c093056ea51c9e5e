"""One request, from its arrival to its response: who sends it, its idempotency key, its deadline, its cancellation."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import orjson

from service.errors import Cancelled, DeadlineExceeded, FirnError
from service.model.names import TableName

P = TypeVar("P")
log = logging.getLogger("firn.calls")


@dataclass(frozen=True)
class Principal:
    """Who sends a request, as authentication found."""

    name: str


ANYONE = Principal("anyone")


@dataclass(frozen=True)
class IdempotencyKey:
    """An idempotency key in its scope, and a fingerprint of everything else that the request says."""

    operation: str
    table: TableName
    text: str
    fingerprint: str

    @cached_property
    def id(self) -> str:
        """The same for the same key in the same scope, and for nothing else."""
        scope = [self.operation, self.table.tenant, self.table.namespace, self.table.table, self.text]
        return hashlib.sha256(json.dumps(scope).encode()).hexdigest()


def _open() -> None:
    """A gate that lets everything pass."""


class Call:
    """A request while it is served. It may be used from any thread.

    Work that can be cancelled calls `check` between its steps, or registers with `on_cancel`. From `seal` on, when a
    commit begins, it is too late to cancel.
    """

    def __init__(
        self,
        id: str = "",
        key: IdempotencyKey | None = None,
        earlier: str | None = None,
        *,
        principal: Principal = ANYONE,
        requested_by: str = "",
        commit_gate: Callable[[], None] = _open,
        start_gate: Callable[[], None] = _open,
        accept: str = "",
        streams: bool = False,
        size: int = 0,
        progress: Any = None,
    ) -> None:
        """`earlier` is the batch of an earlier attempt with the same key. `requested_by` names a caller that is no
        client: `schedule nightly`. `commit_gate` is called directly before a commit, `start_gate` once the table's lock
        is held; both raise if the work must not go on. `accept` is the media type asked for, and `streams` says that
        the connection can show that a response broke off. `size` is the length of the request in bytes.
        """
        self.id = id
        self.key = key
        self.earlier = earlier
        self.principal = principal
        self.requested_by = requested_by
        self.commit_gate = commit_gate
        self.start_gate = start_gate
        self.accept = accept
        self.streams = streams
        self.size = size
        self.job_id = ""
        self.is_change = False
        """Whether it is a WRITE or an edit, for which some Spark sessions are kept. The pipeline sets it."""
        self.started = time.monotonic()
        self.deadline: float | None = None
        """On the monotonic clock."""
        self.respond: Callable[[Any], bytes] = lambda result: b""
        """Renders the response body of a result, for a handler whose future ends later. The pipeline sets it."""
        self._progress = progress
        self._lock = threading.Lock()
        self._reason: FirnError | None = None
        self._sealed = False
        self._callbacks: list[Callable[[], object]] = []

    def without_key(self, progress: Any = None) -> "Call":
        """The same caller, for a job or a commit that the idempotency key does not stand for. Cancelled on its own."""
        call = Call(
            self.id,
            principal=self.principal,
            requested_by=self.requested_by,
            commit_gate=self.commit_gate,
            start_gate=self.start_gate,
            size=self.size,
            progress=progress,
        )
        call.started, call.respond = self.started, self.respond
        return call

    @property
    def may_stream(self) -> bool:
        """Whether the response may be a stream."""
        return self.accept not in ("", "*/*", "application/json")

    @property
    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self.started) * 1000)

    def progress(self, kind: Callable[[], P]) -> P:
        """The progress of the work, an instance of a dataclass; made by `kind` if there is none yet."""
        if self._progress is None:
            self._progress = kind()
        progress: P = self._progress
        return progress

    def set_deadline(self, seconds: float) -> None:
        """The call is cancelled so many seconds after its start, unless its deadline is earlier already."""
        deadline = self.started + seconds
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def expire(self) -> None:
        """Cancel the call because its deadline has passed."""
        self.cancel(DeadlineExceeded())

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled in time, by a caller who went away, a request to cancel, or its deadline."""
        if self.deadline is not None and self._reason is None and time.monotonic() > self.deadline:
            self.expire()
        return self._reason is not None

    def check(self) -> None:
        """Raise Cancelled or DeadlineExceeded if the call was cancelled."""
        if self.cancelled:
            assert self._reason is not None
            raise self._reason

    def cancel(self, reason: FirnError | None = None) -> bool:
        """Cancel the call; false if it is too late."""
        with self._lock:
            if self._sealed:
                return False
            if self._reason is None:
                self._reason = reason or Cancelled()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _run(callback)
        return True

    def seal(self) -> None:
        """From here on it is too late to cancel; Cancelled if it was cancelled before."""
        self.check()
        with self._lock:
            if self._reason is None:
                self._sealed = True
                self._callbacks = []
        self.check()

    def reopen(self) -> None:
        """It can be cancelled again: the commit was refused, and the work begins once more."""
        with self._lock:
            self._sealed = False

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Run a callback when the call is cancelled, or now if it was. It must be quick: it runs on the cancelling
        thread."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        _run(callback)

    @contextmanager
    def cancelling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Run a callback if the call is cancelled during the block, or was before."""
        self.on_cancel(callback)
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)


def fingerprint(request: dict[str, Any]) -> str:
    """A digest of a request, equal for requests that say the same in another order of fields."""
    try:
        text = orjson.dumps(request, default=repr, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # whole numbers beyond 64 bits, or half of a surrogate pair
        text = json.dumps(request, default=repr, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


def _run(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        log.exception("a callback on cancellation failed")
