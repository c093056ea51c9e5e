"""Tags on Spark jobs, by which they are counted and cancelled."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.session.priorities import stages_of
from service.engine.session.spark_types import SparkSession

_SETTLE_S = 30.0
# WRITEs and queries get the next free slot, before the waiting tasks of long work.
_POOL = "maintenance"


@contextmanager
def marked(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of the block."""
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs of the block, and give those of requests precedence over them."""
    context = session.sparkContext
    with marked(session, tag):
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        try:
            yield
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]  # unsets it


def rows_written(session: SparkSession, tag: str) -> int:
    """How many rows the jobs with this tag have written to files so far."""
    return _sum_of_stages(session, tag, lambda stage: stage.outputRecords())


def rows_read(session: SparkSession, tag: str) -> int:
    """How many rows the jobs with this tag have read from files so far."""
    return _sum_of_stages(session, tag, lambda stage: stage.inputRecords())


def _sum_of_stages(session: SparkSession, tag: str, figure: Callable[[Any], Any]) -> int:
    store = session.sparkContext._jsc.sc().statusStore()
    found = 0
    for stage in stages_of(session.sparkContext, [tag]):
        with suppress(Py4JJavaError):  # a stage that has not begun
            found += int(figure(store.lastStageAttempt(stage)))
    return found


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
