"""Warming up a session."""

from service.engine.session.spark_types import SparkSession


def touch(session: SparkSession, table: str) -> None:
    """Make a session open its catalog and plan a query, so that its first request need not."""
    session.sql(f"SELECT count(*) FROM {table}").collect()
