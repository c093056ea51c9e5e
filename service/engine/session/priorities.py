"""A low priority for queries and maintenance that compute for long, so that WRITEs and edits stay fast beside them.

Spark shares out slots for tasks, not time: a task that computes for a minute competes with every other for a core. So
the threads of such tasks get a lower priority of the operating system while there are changes. Java sets it if this
process may also take it back, since Spark uses the same threads for other tasks afterwards.
"""

import logging
import math
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.engine.session.java import all_threads, function, method
from service.engine.session.spark_types import SparkSession

log = logging.getLogger("firn.engine")
_LOW, _NORMAL, _HIGHEST = 1, 5, 10
# Low enough to give way to changes, high enough not to starve beside other programs.
NICE = 15
_POLICY = "-XX:ThreadPriorityPolicy=1"
_LOOK_EVERY_S = 0.15
_LONG_S = 0.15
# For so long after a change the next one is expected.
_PROTECT_S = 5.0
# As Java shows a thread that runs a task, or ran one last: its name, then its priority.
_TASK = re.compile(r"Executor task launch worker for task \S+ in stage (\d+)\.\d+ \(TID \d+\),(\d+),")
_STATUS = Path("/proc/self/status")
_CAP_SYS_NICE = 1 << 23
_NICE_0 = 20


def java_options(master: str) -> tuple[str, ...]:
    """The options for a JVM that runs tasks to set priorities; none if this process may not raise them again."""
    if not (master.startswith("local") and _can_raise()):
        return ()
    # By itself this policy would also raise others: the threads of the compiler and the garbage collector would take
    # the cores from those that serve requests.
    others = (f"-XX:JavaPriority{priority}_To_OSPriority=0" for priority in range(_LOW + 1, _HIGHEST + 1))
    return (_POLICY, f"-XX:JavaPriority{_LOW}_To_OSPriority={NICE}", *others)


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
    """Looks at the tasks of long queries and maintenance from time to time, while there are changes to protect."""

    def __init__(self, enabled: bool, always: bool = False) -> None:
        """With `always`, all changes are another process's, and long queries always give way to them."""
        self._enabled = enabled
        self._lock = threading.Lock()
        self._tags: dict[str, tuple[SparkSession, float]] = {}
        self._watching = False
        self._protect_until = math.inf if always else 0.0

    def protect(self) -> None:
        """A change is about to run: from now on long queries and maintenance give way, for some seconds."""
        self._protect_until = time.monotonic() + _PROTECT_S

    @contextmanager
    def low(self, session: SparkSession, tag: str) -> Iterator[None]:
        """Tasks of Spark jobs with this tag get a low priority if they run for long beside changes."""
        if not self._enabled:
            yield
            return
        with self._lock:
            self._tags[tag] = session, time.monotonic()
            start, self._watching = not self._watching, True
        if start:
            threading.Thread(target=self._watch, name="firn-priorities", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                del self._tags[tag]

    def _watch(self) -> None:
        """Set priorities until no tag and no low thread is left. Most queries end before the first look."""
        lowered: SparkSession | None = None
        while True:
            time.sleep(_LOOK_EVERY_S)
            with self._lock:
                now = time.monotonic()
                if not self._tags and lowered is None:
                    self._watching = False
                    return
                protecting = now < self._protect_until
                long = {t: s for t, (s, since) in self._tags.items() if protecting and now - since > _LONG_S}
            session = next(iter(long.values()), lowered)
            if session is None:
                continue
            try:
                lowered = session if _set_priorities(session, list(long)) else None
            except Exception as e:  # the JVM has ended
                log.debug("the priorities of tasks were not set: %s", e)
                lowered = None


def _set_priorities(session: SparkSession, tags: list[str]) -> bool:
    """Lower the threads that run tasks of these tags, and raise those that no longer do; whether any is low now."""
    threads = all_threads()
    # Py4J itself finds no `toString` for an array of threads, which it does not pass as one of objects.
    shown = function(method("java.util.Arrays", "toString", "[Ljava.lang.Object;")).apply(threads)
    wanted = wanted_priorities(str(shown), stages_of(session.sparkContext, tags))
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
