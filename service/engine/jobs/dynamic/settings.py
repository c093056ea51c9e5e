"""Spark's settings while a refresh runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.engine.jobs.dynamic.job import RefreshJob
from service.engine.jobs.select import aggregate_from_metadata
from service.engine.session.spark_types import SparkSession
from service.model.schema.types import has_uuid


@contextmanager
def for_refresh(session: SparkSession, job: RefreshJob) -> Iterator[None]:
    """For the block, the settings for the sources of a refresh."""
    aggregate_from_metadata(session, allowed=not any(has_uuid(source.schema) for source in job.sources))
    yield
