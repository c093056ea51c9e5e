"""What the JVM throws, as the errors a caller sees.

The first rule that fits the chain of causes decides; what fits none is a defect and stays what it is.
"""

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from service.engine.sql import REFUSED
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
        "another writer changed the same rows meanwhile; try again",
    ),
    "org.apache.iceberg.exceptions.NoSuchTableException": (
        TableNotFound,
        "the table is gone; it was dropped meanwhile",
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
_ASKED_WRONG = ("0A", "21", "22", "2F", "42", "54")
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
_STORAGE_TOLD = ("software.amazon.awssdk.", "org.apache.hadoop.fs.")


def is_lost(error: Exception) -> bool:
    """Whether the connection to the JVM broke, so that nobody knows what the JVM does now."""
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def is_odd(error: Exception) -> bool:
    """Whether Py4J complains of something that is either a defect of ours or a JVM that is ending."""
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)


def translated(error: Exception) -> Exception:
    """The error a caller sees, or the same exception when it is a defect."""
    state = _sql_state(error)
    if state == "42P01":
        return TableNotFound("the table is gone; it was dropped meanwhile")
    # First the states: their messages quote the user's data, which may say anything.
    if state.startswith(_ASKED_WRONG) and isinstance(error, PySparkException):
        return _asked_wrong(state, str(error))
    chain = list(_chain(error))
    for name, message in chain:
        # A failure while rows are fetched comes as a plain Java exception, its state only in its words.
        told = _STATE.search(message) if name.startswith("org.apache.spark.") else None
        if told and told[1].startswith(_ASKED_WRONG):
            return _asked_wrong(told[1], message)
        if told and told[1] == _RAISED and REFUSED in message:
            return _refused(message)
        if message.startswith("Table column names conflict with names reserved for Iceberg metadata columns"):
            return InvalidSchema(_UNREADABLE)
        if name in _BY_CLASS:
            kind, said = _BY_CLASS[name]
            return kind(said)
        if "SPARK_JOB_CANCELLED" in message or "was cancelled" in message or "SparkContext was shut down" in message:
            return EngineUnavailable("the work was cancelled, as the service stops or its caller hung up; try again")
        if message.startswith("Cannot find snapshot with ID"):
            return SnapshotNotFound(EXPIRED)
        if name.startswith(_STORAGE_TOLD) or "No space left on device" in message:
            return StorageUnavailable(f"the storage refused: {_first_line(message)}")
    if any(name.startswith(_STORAGE) for name, _ in chain):
        return StorageUnavailable(f"the storage failed: {_first_line(chain[-1][1])}")
    return error


def _asked_wrong(state: str, message: str) -> InvalidQuery:
    what = "a value of a row cannot be computed" if state.startswith(_DATA) else "the query cannot be answered"
    return InvalidQuery(f"{what}: {_first_line(message)}")


def _refused(message: str) -> InvalidRequest:
    """What one of our own statements says of a row; it begins with the field, where the request has one."""
    words = message.partition(REFUSED)[2].rpartition(" SQLSTATE:")[0]
    field = _FIELD.match(words)
    return InvalidRequest(words, field=field[1] if field else None)


def _chain(error: Exception) -> Iterator[tuple[str, str]]:
    """Each cause's class and message, outermost first."""
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
    # Spark's advice to change its settings is nothing that a caller can follow.
    return _ADVICE.sub("", line)[:400].strip()
