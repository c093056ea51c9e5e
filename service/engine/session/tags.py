"""Tags on Spark jobs, by which they are counted and cancelled."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.engine.session.spark_types import SparkSession

_SETTLE_S = 30.0
# WRITEs and queries get the next free slot, before the waiting tasks of long work.
_POOL = "maintenance"
OnCancel = Callable[[Callable[[], object]], object]


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of the block, and give those of requests precedence over them."""
    context = session.sparkContext
    context.addJobTag(tag)
    context.setLocalProperty("spark.scheduler.pool", _POOL)
    try:
        yield
    finally:
        context.removeJobTag(tag)
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # unsets it


def jobs_of(session: SparkSession, tag: str) -> int:
    """How many Spark jobs have had this tag."""
    context = session.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return len(context.statusTracker().getJobIdsForTag(tag))


def settle(session: SparkSession, tag: str) -> None:
    """Wait until no task of failed or cancelled jobs is running: it may still be writing a file."""
    tracker = session.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + _SETTLE_S
    for job in tracker.getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        if info.isEmpty():
            continue
        for stage in info.get().stageIds():
            while time.monotonic() < deadline:
                running = tracker.getStageInfo(stage)
                if running.isEmpty() or not running.get().numActiveTasks():
                    break
                time.sleep(0.05)


@contextmanager
def cancellable(session: SparkSession, on_cancel: OnCancel) -> Iterator[None]:
    """Give `on_cancel` a function that cancels the Spark jobs that this thread has started in the block.

    Jobs that start after it was called are not cancelled: code that starts several checks between them.
    """
    context, tag = session.sparkContext, f"firn-{uuid.uuid4().hex}"
    ended = False

    def cancel() -> None:
        if not ended:
            context.cancelJobsWithTag(tag)

    context.addJobTag(tag)
    try:
        on_cancel(cancel)
        yield
    finally:
        ended = True
        context.removeJobTag(tag)
