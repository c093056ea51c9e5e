"""SQL over ingestion tables: `*` never means their internal columns, wherever it is and whatever else is named."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness import Firn
from tests.support.ingesting import IngestedTable
from tests.support.marks import thorough_except

DATASET = {"columns": [{"name": "id", "type": "BIGINT"}, {"name": "kind", "type": "VARCHAR"}]}
# The rows of two dates are the same, so that a hidden column which counts shows.
FILES = {"2024-01-01": "id,kind\n1,a\n2,b\n", "2024-01-02": "id,kind\n1,a\n3,c\n"}
A, B, C = [1, "a"], [2, "b"], [3, "c"]
FIRST = "_firn_date = DATE'2024-01-01'"
BOTH = "_firn_date > DATE'2023-12-31'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def shop(firn: Firn, folder: Path) -> str:
    """A tenant with two ingestion tables, `sales` and `more`, and an ordinary one, `names`."""
    tenant = "ingest-sql"
    for name in ("sales", "more"):
        table = IngestedTable(firn, tenant, folder, name, dataset=DATASET)
        for day, content in FILES.items():
            table.ingest(day, content)
    address = {"tenant_id": tenant, "table": "names"}
    schema = {"fields": {"id": {"type": "long"}, "name": {"type": "string"}}}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": schema})
    firn.ok({"operation": "WRITE", **address, "records": [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]})
    return tenant


def answer(firn: Firn, shop: str, sql: str) -> tuple[list[str], list[list[Any]]]:
    rows = firn.ok({"operation": "QUERY", "tenant_id": shop, "sql": sql})["data"]
    return list(rows[0]) if rows else [], sorted((list(row.values()) for row in rows), key=str)


COLUMNS = ["id", "kind"]
CASES: list[tuple[str, list[str], list[list[Any]]]] = [
    ("SELECT DISTINCT * FROM sales", COLUMNS, [A, B, C]),
    (f"SELECT DISTINCT * FROM sales WHERE {BOTH}", COLUMNS, [A, B, C]),
    (f"SELECT DISTINCT s.* FROM sales s WHERE s.{FIRST}", COLUMNS, [A, B]),
    (f"SELECT * FROM sales WHERE {BOTH} UNION SELECT * FROM more", COLUMNS, [A, B, C]),
    (f"SELECT * FROM sales WHERE {FIRST} UNION ALL SELECT * FROM names", COLUMNS, [A, [1, "one"], B, [2, "two"]]),
    (f"SELECT * FROM sales EXCEPT SELECT * FROM more WHERE {FIRST}", COLUMNS, [C]),
    (f"SELECT * FROM sales INTERSECT SELECT * FROM more WHERE {FIRST}", COLUMNS, [A, B]),
    (f"SELECT * FROM (SELECT * FROM sales WHERE {FIRST})", COLUMNS, [A, B]),
    (
        f"SELECT * FROM (SELECT *, _firn_date FROM sales) WHERE {FIRST} AND id = 2",
        [*COLUMNS, "_firn_date"],
        [[*B, "2024-01-01"]],
    ),
    (
        f"WITH x AS (SELECT * FROM sales WHERE {FIRST}) SELECT x.*, 1 AS one FROM x",
        [*COLUMNS, "one"],
        [[*A, 1], [*B, 1]],
    ),
    (f"WITH sales AS (SELECT * FROM sales WHERE {FIRST}) SELECT * FROM sales", COLUMNS, [A, B]),
    (f"SELECT * FROM sales JOIN names USING (id) WHERE {FIRST}", ["id", "kind", "name"], [[*A, "one"], [*B, "two"]]),
    (f"SELECT DISTINCT * FROM sales s JOIN more m USING (id, kind) WHERE s.{FIRST}", COLUMNS, [A, B]),
    (
        "SELECT * FROM sales JOIN more USING (id, kind, _firn_date) WHERE id = 2",
        [*COLUMNS, "_firn_date"],
        [[*B, "2024-01-01"]],
    ),
    (
        "SELECT n.*, s._firn_date AS day FROM names n JOIN sales s ON n.id = s.id AND s.kind = 'b'",
        ["id", "name", "day"],
        [[2, "two", "2024-01-01"]],
    ),
    (
        "SELECT s.*, m._firn_date FROM sales s JOIN more m USING (id) WHERE s.id = 3",
        [*COLUMNS, "_firn_date"],
        [[*C, "2024-01-02"]],
    ),
    ("SELECT * FROM sales NATURAL JOIN more", COLUMNS, [A] * 4 + [B, C]),
    (f"SELECT * FROM sales NATURAL JOIN names WHERE {FIRST}", ["id", "kind", "name"], [[*A, "one"], [*B, "two"]]),
    ("SELECT count(*) AS n FROM sales", ["n"], [[4]]),
    (f"SELECT count(*) AS n FROM sales WHERE {FIRST}", ["n"], [[2]]),
    (f"SELECT count(*) AS n FROM (SELECT DISTINCT * FROM sales WHERE {BOTH})", ["n"], [[3]]),
    (f"SELECT count(DISTINCT *) AS n FROM sales WHERE {BOTH}", ["n"], [[3]]),
    (
        "SELECT _firn_date, count(*) AS n FROM sales GROUP BY ALL",
        ["_firn_date", "n"],
        [["2024-01-01", 2], ["2024-01-02", 2]],
    ),
    (f"SELECT struct(*) AS whole FROM sales WHERE {FIRST} AND id = 1", ["whole"], [[{"id": 1, "kind": "a"}]]),
    (f"SELECT id FROM names WHERE (id, name) IN (SELECT * FROM sales WHERE {FIRST})", [], []),
    (f"SELECT id FROM names n WHERE EXISTS (SELECT * FROM sales s WHERE s.id = n.id AND {FIRST})", ["id"], [[1], [2]]),
    (f"SELECT * EXCEPT (kind) FROM sales WHERE {FIRST}", ["id"], [[1], [2]]),
    (
        "SELECT *, _firn_period, _FIRN_DATE FROM sales WHERE id = 2",
        [*COLUMNS, "_firn_period", "_FIRN_DATE"],
        [[*B, "2024-01", "2024-01-01"]],
    ),
    ("SELECT *, 'ü _firn_date *' AS text FROM sales WHERE id = 2", [*COLUMNS, "text"], [[*B, "ü _firn_date *"]]),
    (
        f"SELECT 'ü' AS `ü`, s . * FROM default.sales AS s WHERE {FIRST} ORDER BY _firn_date, id DESC",
        ["ü", *COLUMNS],
        [["ü", *A], ["ü", *B]],
    ),
    (
        "SELECT *, row_number() OVER (PARTITION BY _firn_date ORDER BY id) AS nth FROM sales WHERE id = 3",
        [*COLUMNS, "nth"],
        [[*C, 1]],
    ),
]


# Of UNION and UNION ALL, INTERSECT and EXCEPT, and other pairs, `make test` runs one.
PAIRED = [CASES[n] for n in (0, 3, 6, 17, 18, 21)]
IN_EVERY_RUN = [case for case in CASES if case not in PAIRED]


@pytest.mark.parametrize(
    ("sql", "columns", "rows"), thorough_except(IN_EVERY_RUN, CASES), ids=[sql for sql, _, _ in CASES]
)
def test_a_star_means_the_columns_that_the_table_shows(
    firn: Firn, shop: str, sql: str, columns: list[str], rows: list[list[Any]]
) -> None:
    assert answer(firn, shop, sql) == (columns, rows)


def test_a_natural_join_that_would_compare_internal_columns_is_refused(firn: Firn, shop: str) -> None:
    sql = "SELECT *, sales._firn_date FROM sales NATURAL JOIN more"
    error = firn.fail({"operation": "QUERY", "tenant_id": shop, "sql": sql}, "INVALID_QUERY")
    assert "USING" in error["message"]
    assert error["field"] == "sql"
