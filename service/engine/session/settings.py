"""Settings of a Spark session that differ for the duration of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.engine.session.spark_types import SparkSession


@contextmanager
def spark_setting(session: SparkSession, key: str, value: str | None) -> Iterator[None]:
    """Give a setting this value for the block; None leaves it unchanged."""
    if value is None:
        yield
        return
    before = session.conf.get(key, None)
    session.conf.set(key, value)
    try:
        yield
    finally:
        # Unset only if it had no value: unsetting also loses the value that the session was started with.
        if before is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, before)
