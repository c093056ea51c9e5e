"""Streamed responses of any size: a handler opens them, and the HTTP route that sends them reads them in steps."""

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from service.catalog.tables import Table
from service.commits.holds import SnapshotHolds
from service.engine.queries.batches import RowBatches
from service.engine.queries.engine import QueryEngine
from service.engine.session.scans import Scan
from service.errors import EngineUnavailable, FirnError, TooManyRequests
from service.fairness.shares import Shares
from service.metrics.metrics import Metrics
from service.model.call import Call
from service.queries.streaming.accept import MEDIA_TYPES, Form
from service.queries.streaming.encode import encode
from service.settings import LimitSettings

log = logging.getLogger("firn.streams")
_MOST_ROWS = 8192
_BATCH_BYTES = 4 * 1024 * 1024
# How many times larger rows are in memory than in their files, at most.
_UNPACKED = 8


@dataclass(eq=False)
class Stream:
    """A streamed response. Its first bytes are ready, so the query has been checked and has started."""

    media_type: str
    _request_id: str
    _chunks: Iterator[bytes]
    _pool: ThreadPoolExecutor
    _cancel: Callable[[], None]
    _held: ExitStack
    scans: Sequence[Scan] = ()
    snapshot_id: int | None = None
    whole: bool = False
    """Whether it was read to its end."""
    _callbacks: list[Callable[[], None]] = field(default_factory=list)
    _closed: bool = False
    _bytes: int = 0
    _opened: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self) -> "Future[bytes | None]":
        """The next bytes; None after the last. If it raises, the bytes before are not a valid response."""
        return self._pool.submit(self._next)

    def close(self) -> None:
        """Release everything, on another thread; cancel the query if the stream was not read to its end."""
        self._pool.submit(self._close)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back when everything is released; must be called before the first `advance`."""
        self._callbacks.append(callback)

    @property
    def seconds(self) -> float:
        """How long ago it was opened."""
        return time.monotonic() - self._opened

    def _next(self) -> bytes | None:
        with self._lock:
            try:
                chunk = next(self._chunks, None)
            except Exception as e:
                known = isinstance(e, FirnError)
                log.warning(
                    "the stream of %s failed after %d bytes: %s", self._request_id, self._bytes, e, exc_info=not known
                )
                self._release()
                raise
            if chunk is None:
                self.whole = not self._closed
                self._release()
            else:
                self._bytes += len(chunk)
            return chunk

    def _close(self) -> None:
        if not self.whole:
            self._cancel()
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._closed:
            return
        self._closed = True
        end = "sent whole" if self.whole else "aborted"
        log.info("%s stream %s: %d bytes in %d ms", self._request_id, end, self._bytes, round(self.seconds * 1000))
        try:
            self._held.close()
        finally:
            for callback in self._callbacks:
                callback()


class Streams:
    """Opens streams, a bounded number at a time."""

    def __init__(
        self, limits: LimitSettings, engine: QueryEngine, holds: SnapshotHolds, metrics: Metrics | None = None
    ) -> None:
        self._engine = engine
        self._holds = holds
        self._room = Shares(limits.streams, limits.tenant_share)
        self._metrics = metrics or Metrics()
        self._metrics.read("firn_streams", lambda: self._room.taken)
        # A step of one stream, and its end, never wait for other streams.
        self._pool = ThreadPoolExecutor(2 * limits.streams, thread_name_prefix="firn-streams")

    def open(
        self,
        job: Callable[..., RowBatches],
        form: Form,
        call: Call,
        request_id: str,
        reads: Sequence[tuple[Table, int | None]],
    ) -> Stream:
        """Start a job of `engine.stream` that reads tables at snapshots, and wait for its first rows."""
        tag = f"firn-stream-{uuid.uuid4().hex}"
        cancel = partial(self._engine.cancel, tag)
        with ExitStack() as held:
            tenant = call.tenant
            self._enter(tenant)
            held.callback(self._room.leave, tenant)
            for table, snapshot_id in reads:
                held.enter_context(self._holds.reading(table.uuid, snapshot_id))
            held.enter_context(call.cancelling(cancel))
            _check_waiting(call)
            batches = self._engine.run_for(call, job, rows=_rows_per_batch(reads), tag=tag)
            held.callback(batches.close)
            _check_waiting(call)
            chunks = held.enter_context(closing(encode(form, batches.schema, batches)))
            whole = itertools.chain([next(chunks)], chunks)
            opened = Stream(MEDIA_TYPES[form], request_id, whole, self._pool, cancel, held.pop_all(), batches.scans)
            opened.when_closed(lambda: self._metrics.streamed(opened.seconds, whole=opened.whole))
            return opened

    def _enter(self, tenant: str) -> None:
        reached = self._room.take(tenant)
        if reached is not None:
            count, whose = self._room.limit(reached)
            raise TooManyRequests(
                f"{count} responses{whose} are being streamed already (FIRN_LIMITS__STREAMS); try again later"
            )


def _check_waiting(call: Call) -> None:
    """A query that is cancelled before its job has started must not start one."""
    if call.cancelled:
        raise EngineUnavailable("the query was cancelled because its client disconnected")


def _rows_per_batch(reads: Sequence[tuple[Table, int | None]]) -> int:
    """The number of rows per batch, from their average size in the files, so that many batches fit in memory."""
    row = 0.0
    for table, snapshot_id in reads:
        if snapshot_id is not None:
            snapshot = table.snapshot(snapshot_id)
            row += snapshot.counted("total-files-size") / max(snapshot.counted("total-records"), 1)
    return max(1, min(_MOST_ROWS, int(_BATCH_BYTES / max(row * _UNPACKED, 1))))
