"""The JVM that Spark lives in: started as our child, watched, and never left behind."""

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

import pyspark

# PySpark imports these with the first jobs, which run side by side: none may meet what another has half imported.
import pyspark.sql.classic.column
import pyspark.sql.classic.dataframe
import pyspark.sql.pandas.map_ops
from py4j.java_gateway import JavaClass, JavaMember, is_magic_member
from py4j.protocol import STATIC_PREFIX
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from service.engine.conf import spool

_SECRET = re.compile(r"(?i)password|secret|token|access[.-]?key")


def start(conf: dict[str, str], held: tuple[int, ...] = ()) -> SparkSession:
    """A new JVM with a new Spark in it, also after an earlier one died in this process.

    The JVM shares the file descriptors in `held`: a lock on one of them lasts until the JVM is gone too.
    """
    _forget()
    _sweep(conf)
    # A Spark of the user's own must not be taken for ours.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    # Its Python workers are to have the packages that we have.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for variable in ("SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(variable, None)
    settings = SparkConf()
    settings.setAll(list(conf.items()))
    # In a session of its own, so that a signal for our process group lets it finish what we wait for.
    popen = {"pass_fds": held, "start_new_session": True}
    launch: Any = launch_gateway  # PySpark gives it no types
    # Everybody on this machine can read a command line; what is secret is told the JVM once it is there.
    shown = SparkConf().setAll([(name, value) for name, value in conf.items() if not _SECRET.search(name)])
    SparkContext._ensure_initialized(gateway=launch(shown, popen_kwargs=popen))
    return SparkSession.builder.config(conf=settings).getOrCreate()


def _sweep(conf: dict[str, str]) -> None:
    """Remove what a JVM before this one, if it was killed, left in a folder that is ours alone."""
    home = Path(conf.get("spark.sql.warehouse.dir", "")).parent
    if conf.get("spark.local.dir") == str(spool(home)):
        shutil.rmtree(spool(home), ignore_errors=True)


def java_class(name: str) -> Any:
    """A class by its name; looked for package by package, as Py4J does, it would be searched for in every jar."""
    gateway: Any = SparkContext._gateway
    return _Statics(name, gateway._gateway_client)


class _Statics(JavaClass):  # type: ignore[misc]  # Py4J ships no types
    """A class whose static methods are called without asking first what their names mean.

    Py4J asks for the first method of that name, in an order that differs from one JVM to the next. Where that is not a
    static one, as `get` of Iceberg's SparkTableCache sometimes, it says as long as that JVM lives that there is none.
    """

    def __getattr__(self, name: str) -> Any:
        if name.isupper() or is_magic_member(name):  # a constant, perhaps
            return super().__getattr__(name)
        return JavaMember(name, None, STATIC_PREFIX + self._fqn, self._gateway_client)


def activate(session: SparkSession) -> None:
    """Make this the session that the JVM's thread for ours works in; Iceberg's actions ask for it."""
    java_class("org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)


def process() -> "subprocess.Popen[bytes] | None":
    """The JVM's process, once there is one."""
    gateway: Any = SparkContext._gateway
    return getattr(gateway, "proc", None)


def answers() -> bool:
    """Whether the JVM still replies to the simplest call."""
    virtual_machine: Any = SparkContext._jvm
    try:
        return virtual_machine is not None and virtual_machine.System.nanoTime() != 0
    except Exception:
        return False


def stop(session: SparkSession | None, seconds: float) -> None:
    """End Spark, then its JVM; what does not end by itself in time is killed."""
    jvm = process()
    # Py4J logs the end of its connections as errors.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if session is not None:
        stopping = threading.Thread(target=_stop_quietly, args=(session,), daemon=True)
        stopping.start()
        stopping.join(seconds)
    if jvm is not None:
        # The JVM ends when its standard input does; that is also what ends it when we are killed.
        with contextlib.suppress(OSError):
            if jvm.stdin:
                jvm.stdin.close()
        try:
            jvm.wait(seconds)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
    _forget()


def cancel_quietly(session: SparkSession) -> None:
    with contextlib.suppress(Exception):
        session.sparkContext.cancelAllJobs()


def _stop_quietly(session: SparkSession) -> None:
    with contextlib.suppress(Exception):
        session.stop()


def _forget() -> None:
    # PySpark keeps its JVM in class attributes and has no call that lets go of a dead one.
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
