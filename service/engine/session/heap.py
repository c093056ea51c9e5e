"""Notices that a JVM's heap is full before Java does.

A JVM that is short of heap collects garbage over and over for half a minute or more, and everything in it stands still,
before it reports that it is out of memory.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from service.engine.session.java import each, java_class
from service.engine.session.translate import TOO_MUCH_MEMORY
from service.errors import QueryTooExpensive
from service.model.call import Call

log = logging.getLogger("firn.engine")
_EVERY_S = 0.5
_WINDOW_S = 4.0
# A query that makes progress spends less of its time so, even one that needs most of the heap.
_MOST_COLLECTING = 0.7
_MOST_USED = 0.85
_SHORT_SAMPLES = 3
_SHORT_EVERY_S = 0.2
# What Spark's own memory may take, and everything else beside it, is less.
_SHORT_USED = 0.8


@dataclass(frozen=True, slots=True)
class HeapSample:
    """At a time, in seconds: how long garbage was collected since the start, and the part of the heap that is used."""

    at_s: float
    collecting_s: float
    used: float


def is_full(samples: "deque[HeapSample]") -> bool:
    """Whether the JVM hardly does anything but collect garbage in a full heap. Forgets old samples."""
    while len(samples) > 2 and samples[-1].at_s - samples[1].at_s >= _WINDOW_S:
        samples.popleft()
    first, last = samples[0], samples[-1]
    span = last.at_s - first.at_s
    if span < _WINDOW_S or last.used < _MOST_USED:
        return False
    return (last.collecting_s - first.collecting_s) / span > _MOST_COLLECTING


def is_short(samples: "deque[HeapSample]") -> bool:
    """Whether the heap is about to be full: collecting garbage does not free much. It is noticed earlier than that the
    heap is full, so that what fills it can still be cancelled. Forgets old samples."""
    while len(samples) > _SHORT_SAMPLES:
        samples.popleft()
    collects = samples[-1].collecting_s > samples[0].collecting_s
    return len(samples) == _SHORT_SAMPLES and collects and min(one.used for one in samples) > _SHORT_USED


def heap_samples(every_s: float = _EVERY_S) -> Iterator[HeapSample]:
    """Samples of the JVM of this process, until it has ended."""
    management = java_class("java.lang.management.ManagementFactory")
    memory = management.getMemoryMXBean()
    # Collectors that work beside the program stop nothing.
    collectors = [one for one in each(management.getGarbageCollectorMXBeans()) if "Concurrent" not in one.getName()]
    while True:
        usage: Any = memory.getHeapMemoryUsage()
        collecting_s = sum(one.getCollectionTime() for one in collectors) / 1000
        yield HeapSample(time.monotonic(), collecting_s, usage.getUsed() / usage.getMax())
        time.sleep(every_s)


def watch(samples: Iterator[HeapSample], full: Callable[[], object]) -> None:
    """Call back once the heap is full."""
    window: deque[HeapSample] = deque()
    for sample in samples:
        window.append(sample)
        if is_full(window):
            full()
            return


class MemoryRelief:
    """Cancels what computes dynamic tables while the heap becomes full, so that it does not end the JVM of changes.

    What takes the rest of the heap at once is not prevented.
    """

    def __init__(self) -> None:
        self._calls: set[Call] = set()

    @contextmanager
    def offering(self, call: Call) -> Iterator[None]:
        """Cancel the call if that is necessary during the block, and if it computes a dynamic table."""
        if not call.computes_table:
            yield
            return
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)

    def start(self, over: Callable[[], bool]) -> None:
        """Watch the heap of the JVM of this process in the background."""
        threading.Thread(target=self._watch, args=(over,), name="firn-heap-watch", daemon=True).start()

    def _watch(self, over: Callable[[], bool]) -> None:
        with suppress(Exception):  # the JVM has ended
            self.watch(heap_samples(_SHORT_EVERY_S), over)

    def watch(self, samples: Iterator[HeapSample], over: Callable[[], bool]) -> None:
        window: deque[HeapSample] = deque()
        while not over():
            if not self._calls:
                window.clear()
                time.sleep(_EVERY_S)
                continue
            window.append(next(samples))
            if is_short(window):
                window.clear()
                self.relieve()

    def relieve(self) -> None:
        """Cancel the calls. A commit that has begun is not cancelled."""
        for call in list(self._calls):
            if not call.cancelled and call.cancel(QueryTooExpensive(TOO_MUCH_MEMORY)):
                log.warning("request %s was cancelled, because the heap is nearly full", call.id)
