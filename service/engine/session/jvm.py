"""Spark's JVM: a child process that starts and ends with the service."""

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from service.engine.session.conf import spools
from service.engine.session.java import gateway, java_class
from service.engine.session.spark_types import SparkSession

_SECRET = re.compile(r"(?i)password|secret|token|access[.-]?key")


def start(conf: dict[str, str], held: tuple[int, ...] = (), *, apart: bool = True) -> SparkSession:
    """Start a JVM with Spark, also after an earlier one of this process has died.

    The JVM inherits the file descriptors in `held`: a lock on one of them lasts until the JVM has ended, too. Unless it
    is `apart`, it belongs to this process's group, and whoever kills the group kills both.
    """
    import pyspark

    # Jobs that run in parallel would import these: none may see a module that another has half imported.
    import pyspark.sql.classic.column
    import pyspark.sql.classic.dataframe
    import pyspark.sql.functions
    import pyspark.sql.pandas.map_ops
    import pyspark.sql.pandas.types
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    _forget()
    _sweep(conf)
    # Otherwise another Spark on this machine could be used.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    # Spark's Python workers need the packages of this process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for variable in ("SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(variable, None)
    if conf.get("spark.master", "").startswith("local"):
        # Spark looks its host's name up, which fails in some containers and networks; alone it needs no name.
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    settings = SparkConf()
    settings.setAll(list(conf.items()))
    # In a process session of its own, so that a signal to our process group does not end it.
    popen = {"pass_fds": held, "start_new_session": apart}
    launch: Any = launch_gateway  # PySpark gives it no types
    # Every user of this machine can read a command line; the JVM gets the secrets once it runs.
    shown = SparkConf().setAll([(name, value) for name, value in conf.items() if not _SECRET.search(name)])
    SparkContext._ensure_initialized(gateway=launch(shown, popen_kwargs=popen))
    session = SparkSession.builder.config(conf=settings).getOrCreate()
    if conf.get("spark.ui.enabled") == "false":
        _keep_no_plans(session)
    return session


def _keep_no_plans(session: SparkSession) -> None:
    """Have Spark forget SQL executions that have ended. It keeps the plans and metrics of the last 1,000 for its UI,
    also without one: with dynamic tables over many joins, these filled a heap of 2 GB."""
    listener = session._jsparkSession.sharedState().statusStore().listener()
    if listener.isDefined():
        session.sparkContext._jsc.sc().removeSparkListener(listener.get())


def _sweep(conf: dict[str, str]) -> None:
    """Remove the files of an earlier JVM that was killed, from the folder that only this service uses."""
    folder = Path(conf.get("spark.local.dir", ""))
    if folder in spools(Path(conf.get("spark.sql.warehouse.dir", "")).parent):
        shutil.rmtree(folder, ignore_errors=True)


def activate(session: SparkSession) -> None:
    """Make this the active session of the JVM thread that serves this one, for Iceberg's actions."""
    java_class("org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)


def process() -> "subprocess.Popen[bytes] | None":
    """The JVM's process, if there is one."""
    return getattr(gateway(), "proc", None)


def answers() -> bool:
    """Whether the JVM still replies to a simple call."""
    from pyspark import SparkContext

    virtual_machine: Any = SparkContext._jvm
    try:
        return virtual_machine is not None and virtual_machine.System.nanoTime() != 0
    except Exception:
        return False


def stop(session: SparkSession | None, seconds: float) -> None:
    """Stop Spark, then its JVM; kill the JVM if it does not end in time."""
    jvm = process()
    # Py4J logs the end of its connections as errors.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if session is not None:
        stopping = threading.Thread(target=_stop_quietly, args=(session,), daemon=True)
        stopping.start()
        stopping.join(seconds)
    if jvm is not None:
        # The JVM ends when its standard input is closed, which also happens when this process is killed.
        with contextlib.suppress(OSError):
            if jvm.stdin:
                jvm.stdin.close()
        try:
            jvm.wait(seconds)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
    _forget()


def discard(conf: dict[str, str]) -> None:
    """Kill the JVM, if there is one, and remove its files."""
    jvm = process()
    if jvm is not None:
        jvm.kill()
        jvm.wait()
    _sweep(conf)


def cancel_quietly(session: SparkSession) -> None:
    with contextlib.suppress(Exception):
        session.sparkContext.cancelAllJobs()


def _stop_quietly(session: SparkSession) -> None:
    with contextlib.suppress(Exception):
        session.stop()


def _forget() -> None:
    # PySpark keeps its JVM in class attributes and has no call that drops a dead one.
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if gateway() is not None:
        with contextlib.suppress(Exception):
            gateway().shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
