"""Notices that a JVM's heap is full before Java does.

A JVM that is short of heap collects garbage over and over for half a minute or more, and everything in it stands still,
before it reports that it is out of memory.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from service.engine.session.java import each, java_class

_EVERY_S = 0.5
_WINDOW_S = 4.0
# A query that makes progress spends less of its time so, even one that needs most of the heap.
_MOST_COLLECTING = 0.7
_MOST_USED = 0.85


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


def heap_samples() -> Iterator[HeapSample]:
    """Samples of the JVM of this process, until it has ended."""
    management = java_class("java.lang.management.ManagementFactory")
    memory = management.getMemoryMXBean()
    # Collectors that work beside the program stop nothing.
    collectors = [one for one in each(management.getGarbageCollectorMXBeans()) if "Concurrent" not in one.getName()]
    while True:
        usage: Any = memory.getHeapMemoryUsage()
        collecting_s = sum(one.getCollectionTime() for one in collectors) / 1000
        yield HeapSample(time.monotonic(), collecting_s, usage.getUsed() / usage.getMax())
        time.sleep(_EVERY_S)


def watch(samples: Iterator[HeapSample], full: Callable[[], object]) -> None:
    """Call back once the heap is full."""
    window: deque[HeapSample] = deque()
    for sample in samples:
        window.append(sample)
        if is_full(window):
            full()
            return
