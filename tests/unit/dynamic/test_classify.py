"""A changed query is nothing new, more columns, or another result."""

import pytest

from service.dynamic.declare.classify import QueryChange, classify, is_same_query, only_selects_more
from service.model.schema.types import Field, Primitive, TableSchema

QUERY = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE o.amount > 5"


@pytest.mark.parametrize(
    "same",
    [
        QUERY.lower(),
        QUERY.replace(" FROM", "\n  FROM").replace("WHERE", "-- large ones\nWHERE"),
        QUERY.replace("orders o", "orders AS o"),
        QUERY.replace("o.id", "`o`.`ID`"),
    ],
)
def test_layout_comments_and_case_change_nothing(same: str) -> None:
    assert is_same_query(QUERY, same)


@pytest.mark.parametrize(
    "other",
    [
        QUERY.replace("> 5", "> 6"),
        QUERY.replace("JOIN", "LEFT JOIN"),
        QUERY.replace("o.id, c.name", "c.name, o.id"),
        QUERY.replace("c.name", "c.name AS customer"),
        QUERY.replace("WHERE o.amount > 5", ""),
        QUERY.replace("c.name", "'name'"),
    ],
)
def test_another_meaning_is_another_query(other: str) -> None:
    assert not is_same_query(QUERY, other)
    assert not only_selects_more(QUERY, other)


def test_text_in_quotes_keeps_its_case() -> None:
    assert not is_same_query("SELECT id FROM t WHERE a = 'X'", "SELECT id FROM t WHERE a = 'x'")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (QUERY, QUERY.replace("c.name", "c.name, o.amount * 2 AS twice")),
        ("SELECT a, count(*) AS n FROM t GROUP BY a", "SELECT a, count(*) AS n, max(b) AS most FROM t GROUP BY a"),
        ("WITH x AS (SELECT a, b FROM t) SELECT a FROM x", "WITH x AS (SELECT a, b FROM t) SELECT a, b FROM x"),
    ],
)
def test_more_columns_at_the_end_leave_the_rows_as_they_are(old: str, new: str) -> None:
    assert only_selects_more(old, new)
    assert not only_selects_more(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (QUERY, QUERY.replace("o.id,", "o.amount, o.id,")),
        ("SELECT DISTINCT a FROM t", "SELECT DISTINCT a, b FROM t"),
        ("SELECT a, count(*) AS n FROM t GROUP BY a", "SELECT a, count(*) AS n, b FROM t GROUP BY a, b"),
        ("SELECT a FROM t", "SELECT a, explode(b) AS c FROM t"),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", "SELECT a, b FROM t UNION ALL SELECT a, b FROM u"),
    ],
)
def test_what_may_change_the_rows_is_more_than_columns(old: str, new: str) -> None:
    assert not only_selects_more(old, new)


def columns(**kinds: str) -> TableSchema:
    return TableSchema(tuple(Field(name, Primitive(kind)) for name, kind in kinds.items()))  # type: ignore[arg-type]


BEFORE = ("SELECT a FROM t", ["uuid-t"], columns(a="long"))


def test_the_same_query_over_the_same_tables_is_nothing_new() -> None:
    assert classify(BEFORE, ("select A from T", ["uuid-t"], columns(a="long"))) == QueryChange("nothing")


def test_the_same_query_over_another_table_of_that_name_is_another_result() -> None:
    assert classify(BEFORE, ("SELECT a FROM t", ["uuid-other"], columns(a="long"))) == QueryChange("rebuild")


def test_columns_that_come_and_go_are_named() -> None:
    found = classify(BEFORE, ("SELECT b FROM t", ["uuid-t"], columns(b="long")))
    assert found == QueryChange("rebuild", ("b",), ("a",))
    assert classify(BEFORE, ("SELECT a, b FROM t", ["uuid-t"], columns(a="long", b="long"))) == QueryChange(
        "columns_added", ("b",)
    )


def test_a_column_of_another_type_is_another_column() -> None:
    assert classify(BEFORE, ("SELECT a FROM t", ["uuid-t"], columns(a="string"))) == QueryChange("rebuild", (), ("a",))


def test_a_star_that_stands_for_more_columns_by_now_adds_them() -> None:
    before = ("SELECT * FROM t", ["uuid-t"], columns(a="long"))
    assert classify(before, ("SELECT * FROM t", ["uuid-t"], columns(a="long", b="long"))).change == "columns_added"
