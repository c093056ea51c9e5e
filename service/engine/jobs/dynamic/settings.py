"""Spark's settings while a refresh runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.engine.jobs.dynamic.job import RefreshJob
from service.engine.jobs.select import aggregate_from_metadata
from service.engine.session.spark_types import SparkSession
from service.model.schema.types import has_uuid

# A change of so few rows is computed by one task in each stage, and all stages are one job.
_FEW_ROWS = 20_000
_FOR_FEW = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}


@contextmanager
def for_refresh(session: SparkSession, job: RefreshJob, *, full: bool = False) -> Iterator[None]:
    """For the block, the settings for a refresh."""
    aggregate_from_metadata(session, allowed=not any(has_uuid(source.schema) for source in job.sources))
    if full or not few_rows(job):
        yield
        return
    before = {name: str(session.conf.get(name)) for name in _FOR_FEW}
    try:
        for name, value in _FOR_FEW.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


def few_rows(job: RefreshJob) -> bool:
    """Whether few rows of the sources have changed."""
    changed = [source.changed for source in job.sources if source.changes]
    return None not in changed and sum(one.num_rows for one in changed if one is not None) <= _FEW_ROWS
