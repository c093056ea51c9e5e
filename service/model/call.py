"""One request, from its arrival to its response: its sender, idempotency key, deadline and cancellation."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import orjson

from service.errors import Cancelled, DeadlineExceeded, FirnError
from service.model.identity.principal import ANYONE, EVERY, Access, Principal, Role
from service.model.names import TableName

P = TypeVar("P")
log = logging.getLogger("firn.calls")


@dataclass(frozen=True, repr=False)
class Credential:
    """What the sender of a request shows: the values of the headers that may hold a credential. Never in a log."""

    authorization: tuple[str, ...] = ()
    api_key: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.authorization or self.api_key)


@dataclass(frozen=True)
class IdempotencyKey:
    """An idempotency key in its scope, and a fingerprint of the rest of the request."""

    operation: str
    table: TableName
    text: str
    fingerprint: str
    principal: str = ""
    """Whose key it is; empty while authentication is off."""

    @cached_property
    def id(self) -> str:
        """Unique for a key in its scope."""
        scope = [self.operation, self.table.tenant, self.table.namespace, self.table.table, self.text]
        scope += [self.principal] if self.principal else []
        return hashlib.sha256(json.dumps(scope).encode()).hexdigest()


def _open() -> None:
    """A gate that is always open."""


@dataclass(slots=True)
class ResponseRoom:
    """How large the response to a read may be. It can be sent to another process."""

    most_bytes: int | None = None
    """None if there is no limit."""
    is_inside_json: bool = False
    """Whether the response is sent as a text inside other JSON, where each quote takes two bytes."""

    def bytes_of(self, rendered: bytes) -> int:
        """How many bytes of the response a rendered part takes."""
        return len(rendered) + (rendered.count(b'"') + rendered.count(b"\\") if self.is_inside_json else 0)


@dataclass(eq=False, repr=False)
class Call:
    """A request while it is served. It may be used from any thread.

    Work that can be cancelled calls `check` between its steps, or registers with `on_cancel`. From `seal` on, when a
    commit begins, it is too late to cancel.
    """

    id: str = ""
    key: IdempotencyKey | None = None
    earlier: str | None = None
    """The batch of an earlier attempt with the same key."""
    _: KW_ONLY
    principal: Principal = ANYONE
    credential: Credential = Credential()
    client: str = ""
    """The address that the request came from."""
    route: str = ""
    """The method and the path, if it came over HTTP."""
    tables: list[TableName] = field(default_factory=list)
    """What the request is about, for the audit log; a namespace or a tenant has empty names."""
    audited: bool = False
    requested_by: str = ""
    """A caller that is not a client, such as `schedule nightly`."""
    commit_gate: Callable[[], None] = _open
    """Called directly before a commit; raises if the work must not go on."""
    start_gate: Callable[[], None] = _open
    """Called once the table's lock is held; raises if the work must not go on."""
    accept: str = ""
    """The media type of the response that the client asks for."""
    streams: bool = False
    """Whether the connection can show that a response was cut short."""
    size: int = 0
    """The length of the request in bytes."""
    job_id: str = ""
    room: ResponseRoom = field(default_factory=ResponseRoom)
    is_change: bool = False
    """Whether it is a WRITE or an edit, for which some Spark sessions are reserved. The pipeline sets it."""
    computes_table: bool = False
    """Whether it computes a dynamic table, which is cancelled if Spark becomes short of memory."""
    started: float = field(default_factory=time.monotonic)
    deadline: float | None = None
    """On the monotonic clock, like `started`."""
    respond: Callable[[Any], bytes] = lambda result: b""
    """Renders the response body of a result, for a handler whose future ends later. The pipeline sets it."""
    current_progress: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reason: FirnError | None = None
    _sealed: bool = False
    _callbacks: list[Callable[[], object]] = field(default_factory=list)

    def without_key(self, progress: Any = None) -> "Call":
        """The same caller, for a job or a commit that the idempotency key does not cover; cancelled separately."""
        return Call(
            self.id,
            principal=self.principal,
            client=self.client,
            requested_by=self.requested_by,
            commit_gate=self.commit_gate,
            start_gate=self.start_gate,
            size=self.size,
            room=ResponseRoom(self.room.most_bytes),
            started=self.started,
            respond=self.respond,
            current_progress=progress,
        )

    def authorise(self, name: TableName, role: Role = "reader") -> None:
        """Raise Forbidden if the sender may not use a table that the request names besides its own."""
        self.about(name)
        self.principal.check(Access(role, name.tenant, name.namespace))

    def about(self, name: TableName) -> None:
        """Note what the request is about."""
        if name not in self.tables:
            self.tables.append(name)

    @property
    def tenant(self) -> str:
        """The tenant that it is about; empty before the request is parsed."""
        return self.tables[0].tenant if self.tables else ""

    @property
    def sender(self) -> str:
        """Whose resources it uses before its tenant is known: the only tenant of its principal, the principal if it has
        several, or the address if there is none."""
        if self.principal is ANYONE:
            return self.client
        tenants = {grant.tenant for grant in self.principal.grants}
        return tenants.pop() if len(tenants) == 1 and EVERY not in tenants else self.principal.name

    @property
    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self.started) * 1000)

    def progress(self, kind: Callable[[], P]) -> P:
        """The progress of the work, an instance of a dataclass; created by `kind` if there is none yet."""
        if self.current_progress is None:
            self.current_progress = kind()
        progress: P = self.current_progress
        return progress

    def set_deadline(self, seconds: float) -> None:
        """Cancel the call this many seconds after its start, unless it has an earlier deadline."""
        deadline = self.started + seconds
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def expire(self) -> None:
        """Cancel the call because its deadline has passed."""
        self.cancel(DeadlineExceeded())

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled in time, because its client disconnected, by a request, or at its deadline."""
        if self.deadline is not None and self._reason is None and time.monotonic() > self.deadline:
            self.expire()
        return self._reason is not None

    @property
    def reason(self) -> FirnError | None:
        """Why it was cancelled, if it was."""
        return self._reason

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
        """From now on it is too late to cancel. Raises Cancelled if it was cancelled before."""
        self.check()
        with self._lock:
            if self._reason is None:
                self._sealed = True
                self._callbacks = []
        self.check()

    def reopen(self) -> None:
        """Allow cancelling again, because the commit was refused and the work starts again."""
        with self._lock:
            self._sealed = False

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Run a callback on cancellation, or now if it was cancelled. It runs on the cancelling thread: be quick."""
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
    """A digest of a request, equal for requests that differ only in the order of fields."""
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
