"""Spark jobs that bear a tag: found, counted and cancelled by it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_SETTLE_S = 30.0
# WRITEs and queries get the next slot that is free, before the tasks of long work that wait for one.
_POOL = "upkeep"


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Jobs of the block bear the tag, and let those of requests go first."""
    context = session.sparkContext
    context.addJobTag(tag)
    context.setLocalProperty("spark.scheduler.pool", _POOL)
    try:
        yield
    finally:
        context.removeJobTag(tag)
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # its way to unset one


def jobs_of(session: SparkSession, tag: str) -> int:
    """How many Spark jobs bore a tag."""
    context = session.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return len(context.statusTracker().getJobIdsForTag(tag))


def cancel(session: SparkSession, tag: str) -> None:
    """Cancel the Spark jobs that bear a tag."""
    session.sparkContext.cancelJobsWithTag(tag)


def settle(session: SparkSession, tag: str) -> None:
    """Wait until no task of jobs that failed or were cancelled runs any more: it may still be writing a file."""
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
