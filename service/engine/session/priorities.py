"""A low priority for queries and maintenance that compute for long, so that WRITEs and edits stay fast beside them.

Spark shares out slots for tasks, not time: a task that computes for a minute competes with every other for a core. So
the threads of such tasks get the lowest priority that the operating system has. Java sets it if this process may
also take it back, since Spark uses the same threads for other tasks afterwards.
"""

import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.engine.session.java import java_class
from service.engine.session.spark_types import SparkSession

log = logging.getLogger("firn.engine")
_LOW, _NORMAL = 1, 5
_POLICY = "-XX:ThreadPriorityPolicy=1"
_LOOK_EVERY_S = 0.3
# As Java shows a thread that runs a task, or ran one last: its name, then its priority.
_TASK = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.\d+ \(TID \d+\),(\d+),")
_STATUS = Path("/proc/self/status")
_CAP_SYS_NICE = 1 << 23
_NICE_0 = 20


def java_options(master: str) -> tuple[str, ...]:
    """The options for a JVM that runs tasks to set priorities; none if this process may not raise them again."""
    if not (master.startswith("local") and _can_raise()):
        return ()
    return (_POLICY, f"-XX:JavaPriority{_LOW}_To_OSPriority=19")


def are_set(conf: Mapping[str, str]) -> bool:
    """Whether the JVM of this configuration sets priorities."""
    return _POLICY in conf.get("spark.driver.extraJavaOptions", "")


def _can_raise() -> bool:
    """Whether this process has CAP_SYS_NICE, or a limit on `nice` that allows it to return to normal."""
    try:
        import resource

        if resource.getrlimit(resource.RLIMIT_NICE)[0] >= _NICE_0:
            return True
        status = _STATUS.read_text()
    except (ImportError, AttributeError, OSError):  # not Linux
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & _CAP_SYS_NICE)


class TaskPriorities:
    """Looks at the tasks of queries and maintenance from time to time, while there are any."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._lock = threading.Lock()
        self._tags: dict[str, SparkSession] = {}
        self._watching = False

    @contextmanager
    def low(self, session: SparkSession, tags: Iterable[str]) -> Iterator[None]:
        """Tasks of Spark jobs with these tags get a low priority if they run for long."""
        added = dict.fromkeys(tags if self._enabled else (), session)
        if not added:
            yield
            return
        with self._lock:
            self._tags |= added
            start, self._watching = not self._watching, True
        if start:
            threading.Thread(target=self._watch, args=(session,), name="firn-priorities", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                for tag in added:
                    del self._tags[tag]

    def _watch(self, session: SparkSession) -> None:
        """Set priorities until no tag and no low thread is left. Most queries end before the first look."""
        lowered = False
        while True:
            time.sleep(_LOOK_EVERY_S)
            with self._lock:
                tags = list(self._tags)
                session = next(iter(self._tags.values()), session)
                if not tags and not lowered:
                    self._watching = False
                    return
            try:
                lowered = _set_priorities(session, tags)
            except Exception as e:  # the JVM has ended
                log.debug("the priorities of tasks were not set: %s", e)
                lowered = False


def _set_priorities(session: SparkSession, tags: list[str]) -> bool:
    """Lower the threads that run tasks of these tags, and raise those that no longer do; whether any is low now."""
    threads = java_class("java.lang.Thread").getAllStackTraces().keySet().toArray()
    wanted = wanted_priorities(
        str(java_class("java.util.Arrays").toString(threads)), stages_of(session.sparkContext, tags)
    )
    for index, (is_now, priority) in wanted.items():
        if is_now != priority:
            threads[index].setPriority(priority)
    return any(priority == _LOW for _, priority in wanted.values())


def wanted_priorities(threads: str, low: set[int]) -> dict[int, tuple[int, int]]:
    """Of a list of threads as Java shows it: the present and the wanted priority of those that run Spark's tasks, by
    their index. An idle thread keeps the name of its last task.
    """
    tasks = ((index, _TASK.search(thread)) for index, thread in enumerate(threads.split("Thread[")[1:]))
    return {index: (int(task[2]), _LOW if int(task[1]) in low else _NORMAL) for index, task in tasks if task}


def stages_of(context: Any, tags: Iterable[str]) -> set[int]:
    """The stages of the Spark jobs with these tags."""
    tracker = context._jsc.sc().statusTracker()
    jobs = [tracker.getJobInfo(job) for tag in tags for job in tracker.getJobIdsForTag(tag)]
    return {stage for job in jobs if job.isDefined() for stage in job.get().stageIds()}
