"""Whatever the JVM, PyIceberg or a storage throws becomes an error a caller can act on, or is known to be a defect."""

import inspect
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import pyiceberg.exceptions
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from sqlalchemy.exc import DBAPIError, OperationalError

from service import errors
from service.catalog.translate import translated as catalog_translated
from service.engine.queries.engine import SharedEngine
from service.engine.session.engine import Engine
from service.engine.session.translate import OutOfMemory, is_lost, is_odd, translated
from service.engine.sql.sql import REFUSED
from service.errors import FirnError
from service.model.call import Call


@dataclass
class JavaClass:
    name: str

    def getName(self) -> str:
        return self.name


@dataclass
class Throwable:
    """A Java exception as py4j shows one."""

    name: str
    message: str | None = "it failed"
    cause: "Throwable | None" = None
    _target_id: str = "o1"

    def getClass(self) -> JavaClass:
        return JavaClass(self.name)

    def getMessage(self) -> str | None:
        return self.message

    def getCause(self) -> "Throwable | None":
        return self.cause


def java(*names: str, message: str | None = "it failed") -> Py4JJavaError:
    """What a call into the JVM raises, for a chain of causes, outermost first."""
    cause: Throwable | None = None
    for name in reversed(names):
        cause = Throwable(name, message, cause)
    return Py4JJavaError("An error occurred while calling o1.append.\n", cause)


ICEBERG = "org.apache.iceberg.exceptions"
SPARK = "org.apache.spark.SparkException"


@pytest.mark.parametrize(
    ("thrown", "code"),
    [
        (f"{ICEBERG}.CommitStateUnknownException", "OUTCOME_UNKNOWN"),
        (f"{ICEBERG}.CommitFailedException", "COMMIT_CONFLICT"),
        (f"{ICEBERG}.ValidationException", "COMMIT_CONFLICT"),
        (f"{ICEBERG}.NoSuchTableException", "TABLE_NOT_FOUND"),
        (f"{ICEBERG}.ServiceUnavailableException", "CATALOG_UNAVAILABLE"),
        (f"{ICEBERG}.ServiceFailureException", "CATALOG_UNAVAILABLE"),
        (f"{ICEBERG}.RuntimeIOException", "STORAGE_UNAVAILABLE"),
        (f"{ICEBERG}.NotFoundException", "STORAGE_UNAVAILABLE"),
        ("org.apache.iceberg.jdbc.UncheckedSQLException", "CATALOG_UNAVAILABLE"),
        ("org.sqlite.SQLiteException", "CATALOG_UNAVAILABLE"),
        ("org.postgresql.util.PSQLException", "CATALOG_UNAVAILABLE"),
        ("java.lang.OutOfMemoryError", "ENGINE_UNAVAILABLE"),
        ("org.apache.spark.memory.SparkOutOfMemoryError", "ENGINE_UNAVAILABLE"),
        ("java.lang.StackOverflowError", "QUERY_TOO_EXPENSIVE"),
        ("java.io.IOException", "STORAGE_UNAVAILABLE"),
        ("java.io.FileNotFoundException", "STORAGE_UNAVAILABLE"),
        ("java.nio.file.AccessDeniedException", "STORAGE_UNAVAILABLE"),
        ("java.nio.file.FileSystemException", "STORAGE_UNAVAILABLE"),
        ("software.amazon.awssdk.core.exception.SdkClientException", "STORAGE_UNAVAILABLE"),
        ("software.amazon.awssdk.services.s3.model.S3Exception", "STORAGE_UNAVAILABLE"),
        ("java.util.regex.PatternSyntaxException", "INVALID_FILTER"),
    ],
)
@pytest.mark.parametrize("wrapped", [(), (SPARK,), (SPARK, "java.lang.RuntimeException")])
def test_a_java_exception_is_known_by_its_class_however_deep_it_lies(
    thrown: str, code: str, wrapped: tuple[str, ...]
) -> None:
    result = translated(java(*wrapped, thrown))
    assert isinstance(result, FirnError)
    assert result.code == code


@pytest.mark.parametrize("thrown", ["java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError"])
def test_a_query_that_runs_out_of_memory_is_too_expensive_and_a_change_may_be_sent_again(thrown: str) -> None:
    class Full:
        def run_for(self, call: Call, job: Any) -> None:
            raise translated(java(SPARK, thrown))

    engine = cast(Engine, Full())
    with pytest.raises(errors.QueryTooExpensive) as found:
        SharedEngine(engine).run_for(Call(), cast(Any, None))
    assert not found.value.retryable
    with pytest.raises(errors.EngineUnavailable) as refused:
        engine.run_for(Call(), cast(Any, None))
    assert refused.value.retryable


def test_a_result_beyond_sparks_limit_is_a_lack_of_memory() -> None:
    text = (
        "Job aborted: Total size of serialized results of 3 tasks (2.0 GiB) is bigger than spark.driver.maxResultSize"
    )
    assert isinstance(translated(java(SPARK, message=text)), OutOfMemory)


def test_a_pattern_that_generated_code_did_not_compile_is_known_by_its_error_class() -> None:
    text = "[INVALID_PARAMETER_VALUE.PATTERN] The value of parameter(s) `regexp` in `rlike` is invalid: '('."
    result = translated(java(SPARK, "java.lang.RuntimeException", message=f"{text} SQLSTATE: 22023"))
    assert isinstance(result, errors.InvalidFilter)


def test_the_first_class_that_is_known_decides() -> None:
    """A commit that failed because the storage did is a failed commit."""
    result = translated(java(SPARK, f"{ICEBERG}.CommitStateUnknownException", "java.io.IOException"))
    assert isinstance(result, errors.OutcomeUnknown)


def test_a_message_that_quotes_data_is_not_taken_for_a_cancelled_job() -> None:
    defect = java(SPARK, message="cannot read /data/order_was cancelled/part-0.parquet")
    assert translated(defect) is defect


@pytest.mark.parametrize("message", ["No space left on device", "write failed: No space left on device (os error 28)"])
def test_a_full_disk_is_the_storages_failure(message: str) -> None:
    assert isinstance(translated(java(SPARK, "java.lang.RuntimeException", message=message)), errors.StorageUnavailable)


@pytest.mark.parametrize(
    "message",
    [
        "Job 7 was cancelled as part of job group x",
        "[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job tags x SQLSTATE: XXKDA",
        "Job cancelled because SparkContext was shut down",
    ],
)
def test_cancelled_work_may_be_sent_again(message: str) -> None:
    result = translated(java(SPARK, message=message))
    assert isinstance(result, errors.EngineUnavailable)
    assert result.retryable


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        EOFError(),
    ],
)
def test_a_broken_connection_means_that_nobody_knows_what_the_jvm_does(error: Exception) -> None:
    assert is_lost(error)


@pytest.mark.parametrize("error", [ValueError("a slip"), java("java.lang.NullPointerException")])
def test_an_answer_of_the_jvm_is_no_broken_connection(error: Exception) -> None:
    assert not is_lost(error)
    assert not is_odd(error)


def test_a_complaint_of_py4j_itself_needs_a_look_at_the_jvm() -> None:
    assert is_odd(Py4JError("An error occurred while calling o1.sql"))


@pytest.mark.parametrize("error", [ValueError("a slip"), KeyError("x"), java("java.lang.NullPointerException")])
def test_what_fits_no_rule_stays_a_defect(error: Exception) -> None:
    assert translated(error) is error


def test_a_message_without_text_is_no_trouble() -> None:
    assert isinstance(translated(java(SPARK, "java.io.IOException", message=None)), errors.StorageUnavailable)


def test_a_chain_of_causes_that_never_ends_is_no_trouble() -> None:
    loop = Throwable("java.lang.RuntimeException")
    loop.cause = loop
    error = Py4JJavaError("it failed", loop)
    assert translated(error) is error


class Refused(PySparkException):
    """What Spark's analyser raises: a state, and text that may quote anything."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(message=text)
        self.state = state
        self.text = text

    def getSqlState(self) -> str:
        return self.state

    def __str__(self) -> str:
        return self.text


def test_a_table_that_iceberg_will_not_read_for_its_columns_names_is_no_conflict_of_writers() -> None:
    words = (
        "Table column names conflict with names reserved for Iceberg metadata columns: [_file].\n"
        "Please, use ALTER TABLE statements to rename the conflicting table columns."
    )
    error = translated(java(f"{ICEBERG}.ValidationException", message=words))
    assert isinstance(error, errors.InvalidSchema)
    assert "rename_columns" in error.message


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("42P01", errors.TableNotFound),
        ("42703", errors.InvalidQuery),
        ("22012", errors.InvalidQuery),
        ("0A000", errors.InvalidQuery),
    ],
)
def test_a_state_decides_before_the_text_does(state: str, kind: type[FirnError]) -> None:
    result = translated(Refused(state, "[X] No space left on device was cancelled SQLSTATE: 42703\n== SQL ==\nSELECT"))
    assert type(result) is kind
    assert "== SQL" not in str(result)


def test_a_value_that_cannot_be_computed_is_said_to_be_the_row_s() -> None:
    text = "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. SQLSTATE: 22012\n== SQL ==\n(a / b)"
    for error in (Refused("22012", text), java(SPARK, message=text)):
        result = translated(error)
        assert isinstance(result, errors.InvalidQuery)
        assert result.message == (
            "a value of a row cannot be computed: Division by zero; divide by nullif(divisor, 0) to get null instead"
        )
        assert result.suggestion == "nullif(divisor, 0)"


@pytest.mark.parametrize(
    ("expected", "field"),
    [
        ("updates.home.city.expression: the expression is null for a row", "updates.home.city.expression"),
        ("transform.day.expression: the expression gives a time too far", "transform.day.expression"),
        ("the derived column 'day': the expression gives a time too far", None),
        ("CAST AS uuid: a text is not a uuid", None),
    ],
)
def test_what_a_statement_of_ours_refuses_of_a_row_is_told_as_it_is(expected: str, field: str | None) -> None:
    error = java(SPARK, message=f"[USER_RAISED_EXCEPTION] {REFUSED}{expected} SQLSTATE: P0001")
    result = translated(error)
    assert isinstance(result, errors.InvalidRequest)
    assert (result.message, result.field) == (expected, field)
    other = java(SPARK, message=f"[USER_RAISED_EXCEPTION] {expected} SQLSTATE: P0001")
    assert translated(other) is other


NAMED: dict[str, str] = {
    "AuthorizationExpiredError": "CATALOG_UNAVAILABLE",
    "BadRequestError": "CATALOG_UNAVAILABLE",
    "CommitFailedException": "COMMIT_CONFLICT",
    "CommitStateUnknownException": "OUTCOME_UNKNOWN",
    "ForbiddenError": "CATALOG_UNAVAILABLE",
    "OAuthError": "CATALOG_UNAVAILABLE",
    "RESTError": "CATALOG_UNAVAILABLE",
    "ServerError": "CATALOG_UNAVAILABLE",
    "ServiceUnavailableError": "CATALOG_UNAVAILABLE",
    "TooManyRequestsError": "CATALOG_UNAVAILABLE",
    "UnauthorizedError": "CATALOG_UNAVAILABLE",
}
# Handled where they mean something, or raised by nothing that the service calls.
ELSEWHERE = {
    "ConditionalCheckFailedException",
    "DynamoDbError",
    "GenericDynamoDbError",
    "NamespaceAlreadyExistsError",
    "NamespaceNotEmptyError",
    "NoSuchIcebergTableError",
    "NoSuchIdentifierError",
    "NoSuchNamespaceError",
    "NoSuchPlanTaskError",
    "NoSuchPropertyException",
    "NoSuchTableError",
    "NoSuchViewError",
    "NotInstalledError",
    "ResolveError",
    "SignError",
    "TableAlreadyExistsError",
    "ValidationError",
    "ValidationException",
    "ViewAlreadyExistsError",
    "WaitingForLockException",
}
PYICEBERG: dict[str, type[Exception]] = dict(inspect.getmembers(pyiceberg.exceptions, inspect.isclass))


def caught(error: Exception) -> Exception:
    def throw() -> None:
        with catalog_translated():
            raise error

    try:
        throw()
    except Exception as e:
        return e
    raise AssertionError("nothing came out")


def test_every_exception_of_pyiceberg_is_spoken_for() -> None:
    """A new version may bring new ones: each has to be put in one of the two lists."""
    assert NAMED.keys() | ELSEWHERE == PYICEBERG.keys()


@pytest.mark.parametrize("name", NAMED)
def test_pyicebergs_exceptions_are_told_as_ours(name: str) -> None:
    result = caught(PYICEBERG[name]("it failed\nwith more lines"))
    assert isinstance(result, FirnError)
    assert result.code == NAMED[name]
    assert "more lines" not in result.message
    assert isinstance(result.__cause__, PYICEBERG[name])


@dataclass
class Case:
    make: Callable[[], Exception]
    code: str


@pytest.mark.parametrize(
    "case",
    [
        Case(lambda: FileNotFoundError(2, "No such file"), "STORAGE_UNAVAILABLE"),
        Case(lambda: PermissionError(13, "Permission denied"), "STORAGE_UNAVAILABLE"),
        Case(lambda: OSError(28, "No space left on device"), "STORAGE_UNAVAILABLE"),
        Case(lambda: ConnectionRefusedError(111, "refused"), "CATALOG_UNAVAILABLE"),
        Case(lambda: TimeoutError(), "CATALOG_UNAVAILABLE"),
        Case(lambda: sqlite3.OperationalError("database is locked"), "CATALOG_UNAVAILABLE"),
        Case(lambda: OperationalError("x", {}, sqlite3.OperationalError("locked")), "CATALOG_UNAVAILABLE"),
        Case(lambda: psycopg.OperationalError("connection refused"), "CATALOG_UNAVAILABLE"),
        Case(lambda: psycopg.errors.LockNotAvailable("lock timeout"), "CATALOG_UNAVAILABLE"),
        Case(lambda: DBAPIError("x", {}, psycopg.errors.AdminShutdown("ended")), "CATALOG_UNAVAILABLE"),
        Case(lambda: EndpointConnectionError(endpoint_url="http://glue"), "CATALOG_UNAVAILABLE"),
        Case(lambda: ClientError({"Error": {"Code": "Throttling"}}, "GetTable"), "CATALOG_UNAVAILABLE"),
    ],
    ids=lambda case: type(case.make()).__name__,
)
def test_what_lies_below_pyiceberg_is_told_as_ours(case: Case) -> None:
    result = caught(case.make())
    assert isinstance(result, FirnError)
    assert result.code == case.code
    assert result.retryable


def test_our_own_errors_pass_and_defects_stay_defects() -> None:
    ours, defect = errors.TableNotFound("gone"), ZeroDivisionError("a slip")
    assert caught(ours) is ours
    assert caught(defect) is defect
