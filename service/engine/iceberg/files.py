"""Jobs that ask Iceberg which files nobody needs, and delete those that are not on this machine's disks."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from service.engine.jvm import java_class
from service.engine.tables import current

_BULK = "org.apache.iceberg.io.SupportsBulkOperations"
_BULK_FAILURE = "org.apache.iceberg.io.BulkDeletionFailureException"
_AT_ONCE = 1000
# No path has it.
_BETWEEN = "\0"


class Gathered:
    """A Java consumer of texts, safe on many threads, that keeps them: what Iceberg would delete is told to it."""

    def __init__(self) -> None:
        # Made of Java's own parts: a Python object that the JVM calls would need a server for it here.
        name = java_class("java.lang.Class").forName
        queue = "java.util.concurrent.ConcurrentLinkedQueue"
        self._queue = java_class(queue)()
        boolean = java_class("java.lang.Boolean").TYPE
        kind = java_class("java.lang.invoke.MethodType").methodType(boolean, name("java.lang.Object"))
        add = java_class("java.lang.invoke.MethodHandles").publicLookup().findVirtual(name(queue), "add", kind)
        proxies = java_class("java.lang.invoke.MethodHandleProxies")
        self.consumer = proxies.asInterfaceInstance(name("java.util.function.Consumer"), add.bindTo(self._queue))

    def texts(self) -> list[str]:
        """What it was given so far, each once."""
        if self._queue.isEmpty():
            return []
        return list(dict.fromkeys(java_class("java.lang.String").join(_BETWEEN, self._queue).split(_BETWEEN)))


def delete(session: SparkSession, table: str, paths: Sequence[str]) -> int:
    """Delete files through the table's own access to its storage, many in one request where that can.

    How many were deleted; storage that does not say whether a file was there counts it.
    """
    io = current(session, table).io()
    if java_class("java.lang.Class").forName(_BULK).isInstance(io):
        return sum(_together(io, paths[i : i + _AT_ONCE]) for i in range(0, len(paths), _AT_ONCE))
    deleted = 0
    for path in paths:
        with suppress(Py4JJavaError):
            io.deleteFile(path)
            deleted += 1
    return deleted


def _together(io: Any, paths: Sequence[str]) -> int:
    them = java_class("java.util.ArrayList")()
    for path in paths:
        them.add(path)
    try:
        io.deleteFiles(them)
    except Py4JJavaError as e:
        if not java_class("java.lang.Class").forName(_BULK_FAILURE).isInstance(e.java_exception):
            raise
        return len(paths) - int(e.java_exception.numberFailedObjects())
    return len(paths)
