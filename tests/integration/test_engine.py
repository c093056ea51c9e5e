"""What the engine takes for granted of the JVM it talks to."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.session import jvm, translate
from service.engine.session.rows import frame
from service.errors import Cancelled
from service.host import class_archive, jars
from service.model.call import Call
from tests.harness import Firn, wait_until


def test_every_exception_that_is_translated_by_name_exists(firn: Firn) -> None:
    """A name spelled wrongly would never be noticed: its exception would only never come."""

    def missing(session: SparkSession) -> list[str]:
        jvm: Any = session._jvm
        loader = jvm.Thread.currentThread().getContextClassLoader()
        return [name for name in translate._BY_CLASS if not exists(jvm, name, loader)]

    def exists(jvm: Any, name: str, loader: Any) -> bool:
        try:
            return bool(jvm.Class.forName(name, False, loader).getName() == name)
        except Py4JJavaError:
            return False

    assert firn.app.engine.run(missing) == []


def test_rows_after_empty_pieces_of_a_table_reach_spark(firn: Firn) -> None:
    schema = pa.schema([("n", pa.int64())])
    pieces = pa.concat_tables([schema.empty_table(), schema.empty_table(), pa.table({"n": [1, 2]}, schema)])
    assert firn.app.engine.run(lambda session: frame(session, pieces).count()) == 2


def test_spark_keeps_no_plans_of_queries_that_have_ended(firn: Firn) -> None:
    def kept(session: SparkSession) -> int:
        session.range(3).selectExpr("count(*)").collect()
        session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return int(session._jsparkSession.sharedState().statusStore().executionsCount())

    assert firn.app.engine.run(kept) == 0


def test_a_cancel_ends_the_jobs_of_its_block_and_no_others(firn: Firn) -> None:
    under_way = threading.Barrier(3)
    cancelled, other = Call("cancelled"), Call("other")

    def sleeping(session: SparkSession, rows: int) -> int:
        under_way.wait(60)
        # A task looks every thousand rows whether it was cancelled.
        slept = session.range(0, rows, 1, 1).selectExpr("reflect('java.lang.Thread', 'sleep', 1L)")
        return len(slept.collect())

    def running(session: SparkSession) -> int:
        tracker: Any = session.sparkContext.statusTracker()
        return len(tracker.getActiveJobsIds())

    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(firn.app.engine.run_for, cancelled, sleeping, 100_000)
        short = pool.submit(firn.app.engine.run_for, other, sleeping, 1_500)
        under_way.wait(60)
        wait_until(lambda: firn.app.engine.run(running) == 2, 30)
        cancelled.cancel()
        with pytest.raises(Cancelled):
            long.result(60)
        assert short.result(60) == 1_500
    other.cancel()  # it has ended; nothing is left to cancel


def test_the_jvm_has_mapped_the_classes_that_were_prepared(firn: Firn) -> None:
    [file] = [
        line
        for line in class_archive.java_options(jars.locate(jars.LOCK, jars.cache_dir(os.environ)), os.environ)
        if "SharedArchiveFile" in line
    ]
    jvm_process = jvm.process()
    assert jvm_process is not None
    assert file.partition("=")[2] in Path(f"/proc/{jvm_process.pid}/maps").read_text()
