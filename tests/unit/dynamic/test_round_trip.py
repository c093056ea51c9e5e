"""A query is refreshed incrementally only if it is written again as it was read."""

import pytest

from service.dynamic.query.dialect import parse, sql_of
from service.dynamic.query.round_trip import changed_word
from tests.tpch.tpch import queries

SAME = [
    "a / b",
    "a DIV b % 3",
    "a || b",
    "a <=> b",
    "a IS NOT DISTINCT FROM b",
    "a IS DISTINCT FROM b",
    "a == b AND a != 1 OR NOT a <> 2",
    "a NOT BETWEEN 1 AND 2",
    "a NOT IN (1, 2) AND a IS NOT NULL",
    "a NOT LIKE 'x%' ESCAPE '!'",
    "a RLIKE 'x' OR a REGEXP 'y'",
    "1L + 2S + 3Y + 1.5D + 2.5F + 1e3",
    "CAST(a AS INTEGER) + a::bigint",
    "CAST(a AS DECIMAL(10, 2)) + TRY_CAST(a AS LONG)",
    "CAST(a AS TIMESTAMP_NTZ)",
    "DATE '2024-01-31' + INTERVAL 1 MONTH - INTERVAL '2' DAYS",
    "TIMESTAMP '2024-01-31 10:00:00+02:00'",
    "EXTRACT(YEAR FROM a)",
    "SUBSTRING(a FROM 2 FOR 3) || SUBSTR(a, 1)",
    "TRIM(BOTH 'x' FROM a)",
    r"'it''s' || 'it\'s' || 'a\nb'",
    '"it\'s"',
    r"r'\d+'",
    "`A b`.`c``d`",
    "s.f.g[0]['k']",
    "CASE a WHEN 1 THEN 2 ELSE 3 END",
    "IF(a > 1, b, NULL)",
    "date_add(a, 1) + datediff(a, b)",
    "COUNT(DISTINCT a, b) FILTER (WHERE c)",
    "ROW_NUMBER() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST, c)",
    "LAG(a) IGNORE NULLS OVER (PARTITION BY x ORDER BY y ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "a & b | c ^ d",
    "- -a",
]


@pytest.mark.parametrize("value", SAME)
def test_these_values_are_written_as_they_were_read(value: str) -> None:
    query = f"SELECT {value} AS r FROM t"
    assert changed_word(query, parse(query)) is None


CHANGED = [
    (r"'\d'", r"'\d"),
    ("CAST(a AS VARCHAR(3))", "VARCHAR"),
    ("COUNT(ALL a)", "ALL"),
    ("+a", "PLUS"),
    ("array(1)[0]", "SELECT array"),
    ("a >> 1", "SELECT a"),
    ("POSITION('a' IN b)", "SELECT POS"),
    ("INTERVAL 1 MONTH 2 DAYS", "INTERVAL"),
]


@pytest.mark.parametrize(("value", "word"), CHANGED)
def test_these_would_change(value: str, word: str) -> None:
    query = f"SELECT {value} AS r FROM t"
    found = changed_word(query, parse(query))
    assert found is not None
    assert found[0].startswith(word)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t LEFT OUTER JOIN u ON 1 = 1 INNER JOIN v USING (k), w",
        "SELECT a FROM t UNION DISTINCT SELECT b FROM u MINUS SELECT c FROM d",
        "WITH c AS (SELECT 1 FROM t) SELECT DISTINCT a x FROM c y GROUP BY a, 2 HAVING COUNT(*) > 1 ORDER BY a ASC",
        "SELECT a -- comment\nFROM t /* another */;",
        "SELECT a FROM (t JOIN u ON t.a = u.a) CROSS JOIN v AS x (p, q)",
        *queries().values(),
    ],
)
def test_these_queries_are_written_as_they_were_read(query: str) -> None:
    assert changed_word(query, parse(query)) is None


def test_function_calls_keep_their_name_and_arguments() -> None:
    written = "SELECT MONTHS_BETWEEN(a, b), NVL(a, b), CEIL(a, 1), TO_DATE(a, 'yyyy'), DECODE(a, 1, 2) FROM t"
    assert sql_of(parse(written)) == written
