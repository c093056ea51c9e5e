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
    """Cancel the Spark jobs that this thread starts during the block, those to come included, once the call is
    cancelled."""
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
    """Cancel what bears the tag until the block has ended, and stop tasks that run on."""
    try:
        while True:
            context.cancelJobsWithTag(tag)
            if ended.wait(_EVERY_S):
                break
        _stop_tasks(context, tag)
    except Exception as e:  # of a JVM that ended, they end with it
        log.warning("Spark jobs of a cancelled request could not be cancelled: %s", e)


def _stop_tasks(context: Any, tag: str) -> None:
    """Stop the threads of tasks that do not end although their job was cancelled.

    A task looks whether it was cancelled when it fetches rows. Generated code that joins every row with every other
    fetches none for hours, and holds a slot that others need. Java before 20 can stop its thread; the task holds
    nothing that others wait for, since it only computes. Later versions of Java cannot, and it ends when it ends.
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
        log.warning("%s ran on after its request was cancelled; stopping it", thread.getName())
        thread.stop()


def _threads_of(threads: Any, tracker: Any, tag: str) -> list[Any]:
    """The threads that run tasks of the jobs that bear a tag. An idle thread keeps the name of its last task."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
    stages = [f" in stage {stage}." for job in jobs if job.isDefined() for stage in job.get().stageIds()]
    found = []
    for thread in threads.getAllStackTraces().keySet().toArray():
        name = str(thread.getName())
        if any(stage in name for stage in stages) and any(_TASK in f.getClassName() for f in thread.getStackTrace()):
            found.append(thread)
    return found
