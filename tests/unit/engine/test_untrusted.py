"""Whatever a query in SQL makes Spark throw is an error with a reason, and shows no class, path or stack."""

import pytest

from service.engine.session.untrusted import of_query, untrusted
from service.errors import FirnError, QueryTooExpensive
from tests.unit.engine.test_translate import SPARK, java

OWN = "the query failed: Spark cannot compute one of its expressions"


def answer(error: Exception) -> tuple[str, int, str]:
    found = of_query(error)
    assert isinstance(found, FirnError)
    return found.code, found.status, found.message


@pytest.mark.parametrize(
    ("name", "message", "reason"),
    [
        ("java.lang.ArithmeticException", "long overflow", "a value of a row cannot be computed: long overflow"),
        ("java.lang.NegativeArraySizeException", "-2147483648", "out of its range"),
        ("java.lang.IllegalArgumentException", "Intervals greater than a month is not supported", "Intervals greater"),
        ("java.lang.NullPointerException", None, OWN),
        ("java.lang.AssertionError", "Exception thrown in awaitResult: ", OWN),
        ("scala.MatchError", "org.apache.spark.sql.types.X@5f (of class org.apache.spark.sql.types.X$)", OWN),
        (SPARK, "[INTERNAL_ERROR] The Spark SQL phase planning failed. You hit a bug in Spark SQLSTATE: XX000", OWN),
        ("java.lang.RuntimeException", "/home/firn/secret/file.txt is not here", "… is not here"),
        ("java.lang.RuntimeException", "java.lang.foo.Bar: it is odd\n\tat org.apache.spark.X(Y.scala:1)", "it is odd"),
    ],
)
def test_an_error_that_nobody_expected_is_the_query_s_with_its_reason(
    name: str, message: str | None, reason: str
) -> None:
    code, status, shown = answer(java(SPARK, name, message=message))
    assert (code, status) == ("INVALID_QUERY", 400)
    assert reason in shown
    assert not any(part in shown for part in ("org.", "java.", "\tat ", "/home", ".scala"))


@pytest.mark.parametrize("name", ["java.lang.OutOfMemoryError", "java.lang.StackOverflowError"])
def test_what_takes_too_much_of_the_jvm_is_too_expensive(name: str) -> None:
    assert answer(java(SPARK, name))[:2] == ("QUERY_TOO_EXPENSIVE", 422)


def test_a_result_that_spark_finds_too_large_is_too_expensive() -> None:
    message = "Total size of serialized results of 5 tasks is bigger than spark.driver.maxResultSize (1024.0 MiB)"
    assert answer(java(SPARK, message=message))[0] == "QUERY_TOO_EXPENSIVE"


@pytest.mark.parametrize("value", ["53200-1234", "OutOfMemoryError", "Cannot grow", "StackOverflowError"])
def test_a_value_that_an_error_quotes_does_not_say_what_went_wrong(value: str) -> None:
    message = f"[CAST_INVALID_INPUT] The value '{value}' cannot be cast to \"INT\". SQLSTATE: 22018"
    assert answer(java(SPARK, "org.apache.spark.SparkNumberFormatException", message=message))[0] == "INVALID_QUERY"


def test_an_error_that_is_known_stays_what_it_is() -> None:
    assert answer(java("org.apache.iceberg.exceptions.ServiceUnavailableException"))[0] == "CATALOG_UNAVAILABLE"
    assert answer(java("org.apache.iceberg.exceptions.NoSuchTableException"))[0] == "TABLE_NOT_FOUND"
    state = "[DIVIDE_BY_ZERO] Division by zero. Use try_divide. SQLSTATE: 22012"
    assert answer(java(SPARK, message=state))[2].endswith("divide by nullif(divisor, 0) to get null instead")


def test_a_defect_of_firn_is_not_the_query_s_fault() -> None:
    with pytest.raises(KeyError), untrusted():
        raise KeyError("x")
    with pytest.raises(QueryTooExpensive, match="as it is"), untrusted():
        raise QueryTooExpensive("as it is")
