"""Cancelling the Spark jobs of a call, and the tasks that do not notice it."""

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from service.engine.session.spark_types import SparkSession
from service.model.call import Call

log = logging.getLogger("firn.engine")
_EVERY_S = 0.2
_PATIENCE_S = 2.0
_TASK = "org.apache.spark.executor.Executor$TaskRunner"


@contextmanager
def cancellable_for(session: SparkSession, call: Call | None) -> Iterator[None]:
    """Once the call is cancelled, cancel this thread's Spark jobs in the block, including those that start later."""
    if call is None:
        yield
        return
    context, tag, ended = session.sparkContext, f"firn-{uuid.uuid4().hex}", threading.Event()

    def cancel() -> None:
        threading.Thread(target=_cancel, args=(context, tag, ended), name="firn-cancel", daemon=True).start()

    context.addJobTag(tag)
    try:
        with call.cancelling(cancel):
            yield
    finally:
        ended.set()
        context.removeJobTag(tag)


def _cancel(context: Any, tag: str, ended: threading.Event) -> None:
    """Cancel jobs with the tag until the block has ended, and stop tasks that continue to run."""
    try:
        while True:
            context.cancelJobsWithTag(tag)
            if ended.wait(_EVERY_S):
                break
        _stop_tasks(context, tag)
    except Exception as e:  # if the JVM ended, so did they
        log.warning("Spark jobs of a cancelled request could not be cancelled: %s", e)


def _stop_tasks(context: Any, tag: str) -> None:
    """Stop the threads of tasks that continue although their job was cancelled.

    A task checks for cancellation when it fetches rows. Generated code that joins every row with every other may fetch
    none for hours, and occupies a slot that others need. Java before 20 can stop its thread; the task holds no locks
    that others need, because it only computes. In later versions of Java, it runs to its end.
    """
    tracker = context._jsc.sc().statusTracker()
    threads = context._jvm.java.lang.Thread
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        running = _threads_of(threads, tracker, tag)
        if not running:
            return
        time.sleep(_EVERY_S)
    for thread in running:
        log.warning("%s continued after its request was cancelled; stopping it", thread.getName())
        thread.stop()


def _threads_of(threads: Any, tracker: Any, tag: str) -> list[Any]:
    """The threads that run tasks of jobs with a tag. An idle thread keeps the name of its last task."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
    stages = [f" in stage {stage}." for job in jobs if job.isDefined() for stage in job.get().stageIds()]
    found = []
    for thread in threads.getAllStackTraces().keySet().toArray():
        name = str(thread.getName())
        if any(stage in name for stage in stages) and any(_TASK in f.getClassName() for f in thread.getStackTrace()):
            found.append(thread)
    return found
