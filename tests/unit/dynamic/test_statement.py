"""CREATE DYNAMIC TABLE: what is read, and what is refused with its place."""

import pytest

from service.dynamic.query.statement import read_statement
from service.errors import InvalidQuery
from service.model.dynamic.definition import DynamicOptions

QUERY = "SELECT a FROM t"


def test_a_statement_has_a_name_options_and_a_query() -> None:
    found = read_statement(
        "CREATE OR REPLACE DYNAMIC TABLE lake.sales.`Order-Details` TARGET_LAG = '5 minutes'\n"
        "refresh_mode = incremental_strict INITIALIZE = ON_SCHEDULE DEDUPLICATION = TRUE "
        "CARDINALITY_THRESHOLD = 0.5 SCHEDULER = DISABLED\n"
        "  AS SELECT a FROM t -- rows\n;"
    )
    assert (found.namespace, found.table, found.replace, found.if_not_exists) == ("sales", "Order-Details", True, False)
    assert found.options == DynamicOptions(300, "INCREMENTAL_STRICT", "ON_SCHEDULE", True, 0.5, False)
    assert (found.query, found.line, found.column) == ("SELECT a FROM t -- rows", 3, 6)


def test_options_have_defaults_and_a_name_may_be_plain() -> None:
    found = read_statement(f"create dynamic table if not exists details target_lag = downstream as {QUERY}")
    assert (found.namespace, found.table, found.if_not_exists) == (None, "details", True)
    assert found.options == DynamicOptions(None)


WRONG = [
    ("CREATE TABLE t AS SELECT 1", "DYNAMIC is expected, not 'TABLE'", 1, 8),
    ("CREATE DYNAMIC TABLE TARGET_LAG = '1 hour'", "TARGET_LAG|not an option", 1, 33),
    (f"CREATE DYNAMIC TABLE t AS {QUERY}", "TARGET_LAG is missing", 1, 27),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = 'soon' AS {QUERY}", "TARGET_LAG: 'soon' is not a target lag", 1, 37),
    (f"CREATE DYNAMIC TABLE t\nTARGET_LAGS = '1 day' AS {QUERY}", "TARGET_LAGS is not an option.*TARGET_LAG", 2, 1),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' REFRESH_MODE = OFTEN AS {QUERY}", "REFRESH_MODE: 'OFTEN'", 1, 60),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' INITIALIZE = NOW AS {QUERY}", "INITIALIZE: 'NOW'", 1, 58),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' DEDUPLICATION = 3 AS {QUERY}", "DEDUPLICATION: '3'", 1, 61),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' SCHEDULER = NO AS {QUERY}", "SCHEDULER: 'NO'", 1, 57),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' CARDINALITY_THRESHOLD = 3 AS {QUERY}", "THRESHOLD: '3'", 1, 69),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' TARGET_LAG = '1 day' AS {QUERY}", "given twice", 1, 45),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' {QUERY}", "AS is missing", 1, 45),
    ("CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS", "the query is missing", 1, 47),
    ("CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS ;", "cannot be read|query is missing|one statement", None, None),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS {QUERY};\nDROP TABLE t", "follows the end", 2, 1),
    (f"CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS {QUERY} nonsense here", "cannot be read", None, None),
    ("CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS\nSELECT a FROM WHERE", "cannot be read at line 2", None, None),
    (f"CREATE DYNAMIC TABLE a.b.c TARGET_LAG = '1 day' AS {QUERY}", "a.b.c is not the name", 1, 22),
    (f"CREATE DYNAMIC TABLE t (a, b) TARGET_LAG = '1 day' AS {QUERY}", "list of columns", 1, 24),
    (f"CREATE DYNAMIC TABLE 't' TARGET_LAG = '1 day' AS {QUERY}", "name of the table is expected", 1, 22),
    (f"CREATE OR REPLACE DYNAMIC TABLE IF NOT EXISTS t TARGET_LAG = '1 day' AS {QUERY}", "exclude each other", 1, 40),
    ("CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS SELECT 'a FROM t", "cannot be read", None, None),
]


@pytest.mark.parametrize(("text", "problem", "line", "column"), WRONG)
def test_what_is_wrong_is_refused_with_its_place(text: str, problem: str, line: int | None, column: int | None) -> None:
    with pytest.raises(InvalidQuery, match=problem) as error:
        read_statement(text)
    if line is not None:
        assert f"(line {line}, column {column})" in error.value.message
