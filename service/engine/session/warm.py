"""A session's first use of the catalog."""

from service.engine.session.spark_types import SparkSession


def touch(session: SparkSession, table: str) -> None:
    """Make a session open its catalog and plan a query, which its first request would otherwise pay for."""
    session.sql(f"SELECT count(*) FROM {table}").collect()
