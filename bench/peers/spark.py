"""Plain PySpark in a JVM of its own: Firn's jars and Spark settings, and none of Firn.

It runs in Firn's environment, where PySpark is.
"""

import os
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.peers.commands import serve, timed
from service.engine.session import conf, jvm
from service.host import jars
from service.model.names import CATALOG
from service.settings import load

_session: SparkSession
_home: Path


def start(home: str) -> None:
    global _session, _home
    _home = Path(home)
    _home.mkdir(parents=True, exist_ok=True)
    found = jars.locate(jars.LOCK, jars.cache_dir(os.environ))
    _session = jvm.start(conf.spark_conf(load({"FIRN_HOME": home}), found))
    _session.sql(f"CREATE NAMESPACE {CATALOG}.bench__default")


def create(table: str) -> None:
    columns = "id BIGINT NOT NULL, name STRING, amount DOUBLE, moment TIMESTAMP_NTZ"
    _session.sql(f"CREATE TABLE {CATALOG}.bench__default.{table} ({columns}) USING iceberg")


def location(table: str) -> str:
    found = _session.sql(f"SELECT file FROM {CATALOG}.bench__default.{table}.metadata_log_entries").collect()
    return str(found[-1][0])


def append_file(table: str, path: str, combine: bool) -> float:
    """One append of everything in an Arrow IPC stream: in its own batches, or put together, so in few tasks."""

    def job() -> None:
        with pa.ipc.open_stream(path) as stream:
            data = stream.read_all()
        if combine:
            data = data.combine_chunks()
        _session.createDataFrame(data).writeTo(f"{CATALOG}.bench__default.{table}").append()

    return timed(job)


def append_csv(table: str, path: str) -> float:
    """Read a CSV file with the table's types, and append it."""
    columns = "id BIGINT, name STRING, amount DOUBLE, moment TIMESTAMP_NTZ"

    def job() -> None:
        found = _session.read.option("header", True).schema(columns).csv(path)
        found.writeTo(f"{CATALOG}.bench__default.{table}").append()

    return timed(job)


if __name__ == "__main__":
    serve(
        {
            "open": start,
            "create": create,
            "location": location,
            "append_file": append_file,
            "append_csv": append_csv,
        }
    )
    jvm.stop(_session, 5)
