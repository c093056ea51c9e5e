"""A session's first look at the catalog."""

from pyspark.sql import SparkSession


def touch(session: SparkSession, table: str) -> None:
    """Make a session open its catalog and plan, which its first query would pay for."""
    session.sql(f"SELECT count(*) FROM {table}").collect()
