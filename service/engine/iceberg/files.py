"""Collects the files that Iceberg would delete, and deletes files through a table's own storage access."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from service.engine.iceberg.tables import current
from service.engine.session.java import function, is_a, java_class, method, reflected, strings
from service.engine.session.spark_types import SparkSession

_BULK = "org.apache.iceberg.io.SupportsBulkOperations"
_BULK_FAILURE = "org.apache.iceberg.io.BulkDeletionFailureException"
_AT_ONCE = 1000


class PathCollector:
    """A thread-safe Java consumer that collects the paths that Iceberg would delete."""

    def __init__(self) -> None:
        queue = "java.util.concurrent.ConcurrentLinkedQueue"
        self._queue = java_class(queue)()
        self.consumer = function(method(queue, "add", "java.lang.Object").bindTo(self._queue), "Consumer")

    def paths(self) -> list[str]:
        """The paths collected so far, each once."""
        return list(dict.fromkeys(strings(self._queue)))


def delete(session: SparkSession, table: str, paths: Sequence[str]) -> int:
    """Delete files through the table's own storage access, in bulk if possible; returns how many were deleted.

    If the storage does not report whether a file existed, the file is counted.
    """
    io = current(session, table).io()
    if reflected(_BULK).isInstance(io):
        return sum(_delete_in_bulk(io, paths[i : i + _AT_ONCE]) for i in range(0, len(paths), _AT_ONCE))
    deleted = 0
    for path in paths:
        with suppress(Py4JJavaError):
            io.deleteFile(path)
            deleted += 1
    return deleted


def _delete_in_bulk(io: Any, paths: Sequence[str]) -> int:
    try:
        io.deleteFiles(list(paths))
    except Py4JJavaError as e:
        if not is_a(e, _BULK_FAILURE):
            raise
        return len(paths) - int(e.java_exception.numberFailedObjects())
    return len(paths)
