"""Spark's settings while a refresh runs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from service.engine.jobs.dynamic.job import RefreshJob
from service.engine.jobs.select import aggregate_from_metadata
from service.engine.session.settings import spark_setting
from service.engine.session.spark_types import SparkSession
from service.model.schema.types import has_uuid

# A change of so few rows is computed in one Spark job.
_FEW_ROWS = 20_000
_ADAPTIVE = "spark.sql.adaptive.enabled"
_ONE_TASK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def for_refresh(session: SparkSession, job: RefreshJob, *, full: bool = False) -> Iterator[None]:
    """For the block, the settings for a refresh."""
    aggregate_from_metadata(session, allowed=not any(has_uuid(source.schema) for source in job.sources))
    if full or not few_rows(job):
        yield
        return
    # Adaptive execution runs a job for each stage.
    with spark_setting(session, _ADAPTIVE, "false"):
        yield


@contextmanager
def in_one_task(session: SparkSession) -> Iterator[None]:
    """For the block, what is computed from rows that are all in this process is one job of single tasks: shuffles, no
    broadcasts, and no generated code, whose compilation takes longer than few rows do."""
    with ExitStack() as stack:
        for name, value in _ONE_TASK.items():
            stack.enter_context(spark_setting(session, name, value))
        yield


def few_rows(job: RefreshJob) -> bool:
    """Whether few rows of the sources have changed."""
    changed = [source.changed for source in job.sources if source.changes]
    return None not in changed and sum(one.num_rows for one in changed if one is not None) <= _FEW_ROWS
