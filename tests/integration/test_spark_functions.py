"""The SQL sandbox knows every function of the Spark that runs."""

from typing import Any

from pyspark.sql import SparkSession

from service.engine.session.java import scala_items
from service.guard.functions import GENERATORS
from tests.harness import Firn
from tests.unit.guard.test_spark_functions import KNOWN

# Functions in place of a table that the sandbox refuses.
REFUSED_TABLES = {
    "collations",
    "python_worker_logs",
    "range",
    "sql_keywords",
    "variant_explode",
    "variant_explode_outer",
}


def functions(session: SparkSession) -> tuple[dict[str, str], set[str]]:
    """Spark's built-in functions with their classes, and those that stand in place of a table."""
    state: Any = session._jsparkSession.sessionState()
    found = {}
    for name in scala_items(state.functionRegistry().listFunction().toSeq()):
        info = state.functionRegistry().lookupFunction(name).get()
        found[str(name.funcName())] = str(info.getClassName()).rpartition(".")[2]
    tables = {str(one.funcName()) for one in scala_items(state.tableFunctionRegistry().listFunction().toSeq())}
    return found, tables


def test_spark_has_no_function_that_is_neither_allowed_nor_refused(firn: Firn) -> None:
    """If Spark gains a function, or makes one of another class: judge it, list it, and write down what it is."""
    found, tables = firn.app.engine.run(functions)
    assert found == KNOWN
    assert tables == REFUSED_TABLES | GENERATORS
