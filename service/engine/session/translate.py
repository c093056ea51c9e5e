"""What the JVM throws, translated into the errors that a caller sees.

The first rule that matches the chain of causes decides. An exception that matches none is a defect and is not changed.
"""

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from service.engine.sql.sql import REFUSED
from service.errors import (
    CatalogUnavailable,
    CommitConflict,
    EngineUnavailable,
    FirnError,
    InvalidFilter,
    InvalidQuery,
    InvalidRequest,
    InvalidSchema,
    OutcomeUnknown,
    SnapshotNotFound,
    StorageUnavailable,
    TableNotFound,
)

EXPIRED = "the snapshot expired while it was asked for; ask again for a newer one"
_UNREADABLE = (
    "the table has a column that is called as one of Iceberg's metadata columns, such as _file, and so cannot be read; "
    "give it another name by ALTER_TABLE with rename_columns"
)
_BY_CLASS: dict[str, tuple[type[FirnError], str]] = {
    "org.apache.iceberg.exceptions.CommitStateUnknownException": (
        OutcomeUnknown,
        "the catalog did not say whether the change happened; look before sending it again",
    ),
    "org.apache.iceberg.exceptions.CommitFailedException": (
        CommitConflict,
        "another writer changed the table first, several times in a row; try again",
    ),
    "org.apache.iceberg.exceptions.ValidationException": (
        CommitConflict,
        "another writer changed the same rows in the meantime; try again",
    ),
    "org.apache.iceberg.exceptions.NoSuchTableException": (
        TableNotFound,
        "the table is gone; it was dropped in the meantime",
    ),
    "org.sqlite.SQLiteException": (CatalogUnavailable, "the catalog's database is busy or broken; try again"),
    "org.postgresql.util.PSQLException": (CatalogUnavailable, "the catalog's database does not answer; try again"),
    "org.apache.iceberg.jdbc.UncheckedSQLException": (CatalogUnavailable, "the catalog does not answer; try again"),
    "org.apache.iceberg.exceptions.ServiceUnavailableException": (
        CatalogUnavailable,
        "the catalog does not answer; try again",
    ),
    "org.apache.iceberg.exceptions.ServiceFailureException": (CatalogUnavailable, "the catalog failed; try again"),
    "java.util.regex.PatternSyntaxException": (
        InvalidFilter,
        "a regular expression in the query is not one that Java can read; mend it",
    ),
    "java.lang.OutOfMemoryError": (
        EngineUnavailable,
        "Spark ran out of memory for this request; send it in smaller parts or raise spark.driver_memory",
    ),
}
# Classes of SQLSTATE: data, cardinality, syntax and names, limits, and what is not supported.
_DATA = "22"
_RAISED = "P0001"
_BAD_QUERY = ("0A", "21", "22", "2F", "42", "54")
_STORAGE = (
    "java.io.IOException",
    "java.io.FileNotFoundException",
    "java.nio.file.",
    "org.apache.iceberg.exceptions.RuntimeIOException",
    "org.apache.iceberg.exceptions.NotFoundException",
)
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_FIELD = re.compile(r"((?:updates|transform)\..+?): ", re.DOTALL)
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_ADVICE = re.compile(r"(?:If necessary,? )?(?:[Ss]et|[Cc]hange|[Dd]isable) [^.]*\"?spark\.[^ ]* [^.]*\.?")
_STORAGE_REFUSAL = ("software.amazon.awssdk.", "org.apache.hadoop.fs.")


def is_lost(error: Exception) -> bool:
    """Whether the connection to the JVM broke, so that it is unknown what the JVM does now."""
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def is_odd(error: Exception) -> bool:
    """Whether Py4J's error is either a defect of ours or a JVM that is ending."""
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)


def translated(error: Exception) -> Exception:
    """The error that a caller sees, or the same exception if it is a defect."""
    from pyspark.errors import PySparkException

    state = _sql_state(error)
    if state == "42P01":
        return TableNotFound("the table is gone; it was dropped in the meantime")
    # States come first, as the messages quote the user's data, which may contain anything.
    if state.startswith(_BAD_QUERY) and isinstance(error, PySparkException):
        return _bad_query(state, str(error))
    chain = list(_chain(error))
    for name, message in chain:
        # A failure while rows are fetched is a plain Java exception, with its state only in the message.
        found = _STATE.search(message) if name.startswith("org.apache.spark.") else None
        if found and found[1].startswith(_BAD_QUERY):
            return _bad_query(found[1], message)
        if found and found[1] == _RAISED and REFUSED in message:
            return _refused(message)
        if message.startswith("Table column names conflict with names reserved for Iceberg metadata columns"):
            return InvalidSchema(_UNREADABLE)
        if name in _BY_CLASS:
            kind, words = _BY_CLASS[name]
            return kind(words)
        if "SPARK_JOB_CANCELLED" in message or "was cancelled" in message or "SparkContext was shut down" in message:
            return EngineUnavailable("the work was cancelled, as the service stops or its caller hung up; try again")
        if message.startswith("Cannot find snapshot with ID"):
            return SnapshotNotFound(EXPIRED)
        if name.startswith(_STORAGE_REFUSAL) or "No space left on device" in message:
            return StorageUnavailable(f"the storage refused: {_first_line(message)}")
    if any(name.startswith(_STORAGE) for name, _ in chain):
        return StorageUnavailable(f"the storage failed: {_first_line(chain[-1][1])}")
    return error


def _bad_query(state: str, message: str) -> InvalidQuery:
    what = "a value of a row cannot be computed" if state.startswith(_DATA) else "the query cannot be answered"
    return InvalidQuery(f"{what}: {_first_line(message)}")


def _refused(message: str) -> InvalidRequest:
    """The error that one of our own statements raised for a row; it begins with the request's field, if any."""
    words = message.partition(REFUSED)[2].rpartition(" SQLSTATE:")[0]
    field = _FIELD.match(words)
    return InvalidRequest(words, field=field[1] if field else None)


def _chain(error: Exception) -> Iterator[tuple[str, str]]:
    """Each cause's class and message, outermost first."""
    from pyspark.errors.exceptions.captured import CapturedException

    throwable: Any = None
    if isinstance(error, CapturedException):
        throwable = error._origin
        if throwable is None and error._cause is not None:
            yield "", str(error._cause)
    elif isinstance(error, Py4JJavaError):
        throwable = error.java_exception
    try:
        for _ in range(20):
            if throwable is None:
                return
            yield throwable.getClass().getName(), str(throwable.getMessage())
            throwable = throwable.getCause()
    except (Py4JError, ConnectionError):
        return


def _sql_state(error: Exception) -> str:
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        try:
            return error.getSqlState() or ""
        except (Py4JError, ConnectionError):
            return ""
    return ""


def _first_line(text: str) -> str:
    line = _ERROR_CLASS.sub("", text.strip().partition("\n")[0])
    for noise in (" SQLSTATE:", " == SQL"):
        line = line.partition(noise)[0]
    # A caller cannot follow Spark's advice to change its settings.
    return _ADVICE.sub("", line)[:400].strip()
