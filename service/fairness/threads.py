"""Threads that tenants share."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from service.fairness.crowd import Crowd
from service.fairness.shares import FairQueue, share_of, work_of

T = TypeVar("T")
_LOOK_AGAIN_S = 1.0


@dataclass(eq=False)
class _Task:
    work: Callable[[], Any]
    future: "Future[Any]" = field(default_factory=Future)


class FairThreads:
    """A pool of threads. What waits for one is in a queue for each tenant, and the queues take turns."""

    def __init__(self, threads: int, name: str, percent: int, crowd: Crowd | None = None) -> None:
        """`percent` is how much of the pool one tenant may use; a loud one may use less, unless it is all."""
        self._threads = threads
        self._lock = threading.Lock()
        self._queue: FairQueue[_Task] = FairQueue(share_of(threads, percent), crowd if percent < 100 else None)
        # It has no queue of its own: it never gets more work than it has threads.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._closed = False
        self._looking: threading.Timer | None = None

    @property
    def waiting(self) -> int:
        """How many tasks wait for a thread."""
        return self._queue.waiting

    def submit(self, tenant: str, work: Callable[[], T]) -> "Future[T]":
        """Have work done for a tenant. Its future can be cancelled until it begins. RuntimeError if it was closed."""
        task = _Task(work)
        task.future.add_done_callback(lambda future: self._forget(tenant, task) if future.cancelled() else None)
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads take no more work")
            self._queue.add(tenant, task)
        self._start_next()
        return task.future

    def shutdown(self, *, cancel: bool = False) -> None:
        """Accept no more work, and return at once. What waits is still done, unless it is cancelled."""
        with self._lock:
            self._closed = True
            waiting = self._queue.items()
        for task in waiting if cancel else ():
            task.future.cancel()
        self._close_when_idle()

    def _start_next(self) -> None:
        with self._lock:
            while self._queue.taken < self._threads and (found := self._queue.first()):
                self._queue.take(*found)
                self._pool.submit(self._run, *found)
            if self._queue.loud_waits and not self._looking:
                # Nothing happens here when the other tenants send nothing any more.
                self._looking = threading.Timer(_LOOK_AGAIN_S, self._look_again)
                self._looking.daemon = True
                self._looking.start()

    def _look_again(self) -> None:
        with self._lock:
            self._looking = None
        self._start_next()

    def _run(self, tenant: str, task: _Task) -> None:
        result, error = None, None
        begun = task.future.set_running_or_notify_cancel()
        if begun:
            try:
                with work_of(tenant):
                    result = task.work()
            except BaseException as e:
                error = e
        with self._lock:
            self._queue.leave(tenant)
        self._start_next()
        self._close_when_idle()
        if begun and error is not None:
            task.future.set_exception(error)
        elif begun:
            task.future.set_result(result)

    def _forget(self, tenant: str, task: _Task) -> None:
        with self._lock:
            self._queue.remove(tenant, task)

    def _close_when_idle(self) -> None:
        with self._lock:
            if self._closed and not self._queue.waiting and not self._queue.taken:
                self._pool.shutdown(wait=False)
