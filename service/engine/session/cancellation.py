"""Cancelling the Spark jobs of a call, and the tasks that do not notice it."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.session.java import all_threads
from service.engine.session.priorities import stages_of
from service.engine.session.spark_types import SparkSession
from service.errors import QueryTooExpensive
from service.model.call import Call

log = logging.getLogger("firn.engine")
_EVERY_S = 0.2
_PATIENCE_S = 2.0
# If what is cancelled fills the heap.
_IMPATIENCE_S = 0.2
_STOPPING_S = 2.0
_TASK = "org.apache.spark.executor.Executor$TaskRunner"


# Gets the tag of Spark jobs whose tasks cannot be ended.
Stuck = Callable[[str], object]


def _nothing(tag: str) -> None:
    """Leaves them running."""


@contextmanager
def cancellable_for(session: SparkSession, call: Call, stuck: Stuck = _nothing) -> Iterator[str]:
    """Cancel the Spark jobs that this thread starts during the block, those to come included, once the call is
    cancelled. They bear the tag that this returns. If their tasks cannot be ended, `stuck` gets it."""
    context, tag, ended = session.sparkContext, f"firn-{uuid.uuid4().hex}", threading.Event()

    def cancel() -> None:
        patience = _IMPATIENCE_S if isinstance(call.reason, QueryTooExpensive) else _PATIENCE_S
        args = (context, tag, ended, stuck, patience)
        threading.Thread(target=_cancel, args=args, name="firn-cancel", daemon=True).start()

    context.addJobTag(tag)
    try:
        with call.cancelling(cancel):
            yield tag
    finally:
        ended.set()
        context.removeJobTag(tag)


def cancel_now(context: Any, tag: str, stuck: Stuck = _nothing) -> None:
    """Cancel the Spark jobs that have this tag now, and in the background stop tasks that continue to run."""
    ended = threading.Event()
    ended.set()
    threading.Thread(target=_cancel, args=(context, tag, ended, stuck), name="firn-cancel", daemon=True).start()


def _cancel(context: Any, tag: str, ended: threading.Event, stuck: Stuck, patience_s: float = _PATIENCE_S) -> None:
    """Cancel jobs with the tag until the block has ended, and stop tasks that continue to run."""
    try:
        while True:
            context.cancelJobsWithTag(tag)
            if ended.wait(_EVERY_S):
                break
        if not _stop_tasks(context, tag, patience_s):
            stuck(tag)
    except Exception as e:  # if the JVM ended, so did they
        log.warning("Spark jobs of a cancelled request could not be cancelled: %s", e)


def _stop_tasks(context: Any, tag: str, patience_s: float) -> bool:
    """Stop the threads of tasks that continue although their job was cancelled; whether all have ended.

    A task checks for cancellation when it fetches rows. Generated code that joins every row with every other may fetch
    none for hours, and occupies a slot that others need. Java before 20 can stop its thread; the task holds no locks
    that others need, because it only computes. In later versions of Java, it runs to its end.
    """
    running = _still_running(context, tag, patience_s)
    for thread in running:
        log.warning("%s continued after its request was cancelled; stopping it", thread.getName())
        with suppress(Py4JJavaError):  # Java 20 or later
            thread.stop()
    return not running or not _still_running(context, tag, _STOPPING_S)


def _still_running(context: Any, tag: str, seconds: float) -> list[Any]:
    """The threads that run tasks of jobs with a tag, once none does or the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        running = _threads_of(stages_of(context, [tag]))
        if not running or time.monotonic() > deadline:
            return running
        time.sleep(_EVERY_S)


def _threads_of(stages: set[int]) -> list[Any]:
    """The threads that run tasks of some stages. An idle thread keeps the name of its last task."""
    names = [f" in stage {stage}." for stage in stages]
    found = []
    for thread in takewhile(lambda one: one is not None, all_threads()):
        name = str(thread.getName())
        if any(part in name for part in names) and any(_TASK in f.getClassName() for f in thread.getStackTrace()):
            found.append(thread)
    return found
