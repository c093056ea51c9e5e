"""Translates the JVM's exceptions into the errors that a caller sees.

The first rule that matches the chain of causes applies. An exception that no rule matches is a defect and is unchanged.
"""

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from service import errors
from service.engine.session.java import ICEBERG
from service.engine.sql.sql import REFUSED


class SparkEnded(errors.EngineUnavailable):
    """The JVM has ended, whatever the job had to do with it."""


class OutOfMemory(errors.EngineUnavailable):
    """A job failed for lack of memory, and the JVM goes on."""


TOO_MUCH_MEMORY = (
    "the query needs more memory than one query may take; select fewer rows or smaller values, or aggregate them first"
)
TOO_DEEP = (
    "the query needs a deeper stack than Spark's threads have: it is nested too deeply, or a regular expression in it "
    "repeats a group too often, as (a|b)* does and [ab]* does not; simplify it"
)
EXPIRED = "the snapshot expired while it was being read; read a newer one"
_GONE = "the table no longer exists: it was dropped in the meantime"
_UNREADABLE = (
    "the table cannot be read: a column has the name of an Iceberg metadata column, such as _file; rename it with "
    "ALTER_TABLE and rename_columns"
)
# Spark's own words, not only "was cancelled": messages quote names and values of users.
_CANCELLED = re.compile(
    r"\[SPARK_JOB_CANCELLED\]|\b(?:Job|Stage)(?: \d+)? (?:was )?cancelled\b|SparkContext was shut down"
)
_WAS_CANCELLED = "the work was cancelled: the service is stopping, or the client disconnected; try again"
_BAD_PATTERN = "a regular expression in the query is not valid in Java; correct it"
_EXCEPTIONS = f"{ICEBERG}.exceptions"
_NO_RESPONSE = (errors.CatalogUnavailable, "the catalog does not respond; try again")
_OUT_OF_MEMORY = (
    OutOfMemory,
    "Spark ran out of memory for this request; send it in smaller parts or raise spark.driver_memory",
)
_TOO_LARGE = "bigger than spark.driver.maxResultSize"
_BY_CLASS: dict[str, tuple[type[errors.FirnError], str]] = {
    f"{_EXCEPTIONS}.CommitStateUnknownException": (
        errors.OutcomeUnknown,
        "the catalog did not confirm whether the change was committed; check before sending it again",
    ),
    f"{_EXCEPTIONS}.CommitFailedException": (
        errors.CommitConflict,
        "another writer changed the table first, several times in a row; try again",
    ),
    f"{_EXCEPTIONS}.ValidationException": (
        errors.CommitConflict,
        "another writer changed the same rows in the meantime; try again",
    ),
    f"{_EXCEPTIONS}.NoSuchTableException": (errors.TableNotFound, _GONE),
    "org.sqlite.SQLiteException": (errors.CatalogUnavailable, "the catalog's database is busy or broken; try again"),
    "org.postgresql.util.PSQLException": _NO_RESPONSE,
    f"{ICEBERG}.jdbc.UncheckedSQLException": _NO_RESPONSE,
    f"{_EXCEPTIONS}.ServiceUnavailableException": _NO_RESPONSE,
    f"{_EXCEPTIONS}.ServiceFailureException": (errors.CatalogUnavailable, "the catalog failed; try again"),
    "java.util.regex.PatternSyntaxException": (errors.InvalidFilter, _BAD_PATTERN),
    "java.lang.OutOfMemoryError": _OUT_OF_MEMORY,
    "org.apache.spark.memory.SparkOutOfMemoryError": _OUT_OF_MEMORY,
    "java.lang.StackOverflowError": (errors.QueryTooExpensive, TOO_DEEP),
}
# What Java throws for values that a function cannot compute, if Spark's functions are on its stack.
_OF_VALUES = frozenset(
    {
        "java.lang.ArithmeticException",
        "java.lang.ArrayIndexOutOfBoundsException",
        "java.lang.IllegalArgumentException",
        "java.lang.IndexOutOfBoundsException",
        "java.lang.NegativeArraySizeException",
        "java.lang.NumberFormatException",
        "java.lang.StringIndexOutOfBoundsException",
        "java.time.DateTimeException",
        "java.time.format.DateTimeParseException",
        "java.time.zone.ZoneRulesException",
    }
)
_EVALUATED = re.compile(r"org\.apache\.spark\.(?:unsafe\.types|sql\.catalyst\.(?:expressions|util))\.")
# Classes of SQLSTATE: data, cardinality, syntax and names, limits, and unsupported features.
_DATA, _DIVISION = "22", "22012"
_RAISED = "P0001"
NOT_COMPUTED = "a value of a row cannot be computed"
_DIVISOR = "nullif(divisor, 0)"
_BAD_QUERY = ("0A", "21", "22", "2F", "42", "54")
_STORAGE = (
    "java.io.IOException",
    "java.io.FileNotFoundException",
    "java.nio.file.",
    f"{_EXCEPTIONS}.RuntimeIOException",
    f"{_EXCEPTIONS}.NotFoundException",
)
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_FIELD = re.compile(r"((?:updates|transform)\..+?): ", re.DOTALL)
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_ADVICE = re.compile(r"(?:If necessary,? )?(?:[Ss]et|[Cc]hange|[Dd]isable) [^.]*\"?spark\.[^ ]* [^.]*\.?")
_STORAGE_REFUSAL = ("software.amazon.awssdk.", "org.apache.hadoop.fs.")


def is_lost(error: Exception) -> bool:
    """Whether the connection to the JVM broke, so that the JVM's state is unknown."""
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def is_odd(error: Exception) -> bool:
    """Whether this is an error of Py4J itself: either a defect in Firn, or the JVM is ending."""
    return isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)


def translated(error: Exception) -> Exception:
    """The error that a caller sees, or the same exception if it is a defect."""
    state = _sql_state(error)
    if state == "42P01":
        return errors.TableNotFound(_GONE)
    # States come first: the messages quote the user's data, which may contain anything.
    if state.startswith(_BAD_QUERY):
        return _bad_query(state, str(error))
    chain = list(chain_of(error))
    for name, message in chain:
        # A failure while fetching rows is a plain Java exception, with its state only in the message.
        found = _STATE.search(message) if name.startswith("org.apache.spark.") else None
        if found and found[1].startswith(_BAD_QUERY):
            return _bad_query(found[1], message)
        if found and found[1] == _RAISED and REFUSED in message:
            return _refused(message)
        if message.startswith("Table column names conflict with names reserved for Iceberg metadata columns"):
            return errors.InvalidSchema(_UNREADABLE)
        if name in _BY_CLASS:
            error_class, text = _BY_CLASS[name]
            return error_class(text)
        if _TOO_LARGE in message and name.startswith("org.apache.spark."):
            return OutOfMemory("the result is larger than spark.driver.maxResultSize; request fewer rows at once")
        if _CANCELLED.search(message):
            return errors.EngineUnavailable(_WAS_CANCELLED)
        if message.startswith("Cannot find snapshot with ID"):
            return errors.SnapshotNotFound(EXPIRED)
        if name.startswith(_STORAGE_REFUSAL) or "No space left on device" in message:
            return errors.StorageUnavailable(f"the storage refused: {_first_line(message)}")
    if any(name.startswith(_STORAGE) for name, _ in chain):
        return errors.StorageUnavailable(f"the storage failed: {_first_line(chain[-1][1])}")
    if any(name in _OF_VALUES for name, _ in chain) and _EVALUATED.search(_stack(error)):
        return errors.InvalidQuery(f"{NOT_COMPUTED}: an argument of a function is not valid, or out of its range")
    return error


def _bad_query(state: str, message: str) -> errors.FirnError:
    if "[INVALID_PARAMETER_VALUE.PATTERN]" in message:
        return errors.InvalidFilter(_BAD_PATTERN)
    what, problem = NOT_COMPUTED if state.startswith(_DATA) else "the query failed", _first_line(message)
    if state != _DIVISION:
        return errors.InvalidQuery(f"{what}: {problem}")
    # Spark names a function of its own for each operator.
    text = f"{what}: {problem.partition('.')[0]}; divide by {_DIVISOR} to get null instead"
    return errors.InvalidQuery(text, suggestion=_DIVISOR)


def _refused(message: str) -> errors.InvalidRequest:
    """The error that one of Firn's own statements raised for a row; it begins with the request's field, if any."""
    text = message.partition(REFUSED)[2].rpartition(" SQLSTATE:")[0]
    field = _FIELD.match(text)
    return errors.InvalidRequest(text, field=field[1] if field else None)


def chain_of(error: Exception) -> Iterator[tuple[str, str]]:
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


def _stack(error: Exception) -> str:
    """The Java stack of an error; empty if the JVM does not respond."""
    try:
        # PySpark's own exceptions show it only if a setting says so.
        return str(getattr(error, "_stackTrace", None) or error)
    except Exception:
        return ""


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
