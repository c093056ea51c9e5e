"""What only Spark can refuse, and how deep a column may be. `tests/unit/operations/test_refusals.py` has the others."""

from collections.abc import Iterator

import pytest

from tests.harness import Firn
from tests.support.refusals import GIVEN, SHAPES, Bad, check, check_deep_nesting, table_states
from tests.unit.operations.test_refusals import query

BY_SPARK = [
    Bad(query(filter={"name": {"regex": "("}}), "INVALID_FILTER", None),
    Bad(query(table=None, sql="SELEC 1"), "INVALID_QUERY", "sql"),
    Bad(query(table=None, sql="SELECT nmae FROM people"), "INVALID_QUERY", "sql"),
    Bad(query(table=None, sql="SELECT * FROM peopel"), "TABLE_NOT_FOUND", "sql", "people", 404),
    Bad(query(table=None, sql="SELECT 1 / (id - 1) FROM people"), "INVALID_QUERY", "sql", "nullif(divisor, 0)"),
    Bad(query(table=None, sql="SELECT (SELECT id FROM people)"), "INVALID_QUERY", "sql"),
    Bad(
        query(table=None, sql="WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"),
        "INVALID_QUERY",
        "sql",
    ),
    Bad(query(table=None, sql="DROP TABLE people"), "INVALID_QUERY", "sql"),
    Bad(query(table=None, sql="SELECT * FROM people; SELECT 1"), "INVALID_QUERY", "sql"),
    Bad(query(table=None, sql="SELECT * FROM people WHERE id = :id"), "INVALID_QUERY", "params.id"),
    Bad(query(table=None, sql="SELECT 1", params={"id": 1}), "INVALID_QUERY", "params.id"),
]


@pytest.fixture(scope="module", autouse=True)
def _tables(firn: Firn) -> None:
    for request in GIVEN:
        firn.ok(request)


@pytest.fixture(autouse=True)
def _nothing_changes(firn: Firn) -> Iterator[None]:
    """Every test here asks for what must not be done."""
    before = table_states(firn)
    yield
    assert table_states(firn) == before


@pytest.mark.parametrize("bad", BY_SPARK, ids=str)
def test_a_bad_request_is_refused_alike_through_both_doors(bad: Bad, firn: Firn) -> None:
    check(bad, ("http", "v1 text"), firn)


@pytest.mark.parametrize("shape", SHAPES, ids=["lists", "filters"])
def test_deep_nesting_in_parameters_of_sql_is_refused_and_breaks_nothing(shape: tuple[str, str], firn: Firn) -> None:
    request = '{"operation": "QUERY", "tenant_id": "refusals", "sql": "SELECT :a", "params": {"a": %s}}'
    check_deep_nesting(request, shape, firn)


def test_a_column_as_deep_as_a_schema_may_be_is_written_and_read(firn: Firn, tenant: str) -> None:
    for deepest in range(40, 0, -1):
        kind: object = "long"
        value: object = 1
        for _ in range(deepest):
            kind, value = {"type": "map", "key_type": "string", "value_type": kind}, {"k": value}
        create = {"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "deep", "schema": {"fields": {"v": kind}}}
        if firn.send(create).status_code == 200:
            break
    assert deepest > 10
    firn.post({"operation": "WRITE", "tenant_id": tenant, "table": "deep", "records": [{"v": value}]})
    assert firn.post({"operation": "QUERY", "tenant_id": tenant, "table": "deep"})["data"] == [{"v": value}]


@pytest.mark.parametrize(
    ("opening", "deepest", "closing"), [("array(", 62, ")"), ("map(1, ", 31, ")"), ("struct(", 62, ")")]
)
def test_a_column_that_sql_nests_is_answered_as_deep_as_it_can_be_read_and_refused_beyond(
    opening: str, deepest: int, closing: str, firn: Firn, tenant: str
) -> None:
    def sent(depth: int) -> dict[str, str]:
        sql = f"SELECT {opening * depth}1{closing * depth} AS v"
        return {"operation": "QUERY", "tenant_id": tenant, "sql": sql}

    (row,) = firn.post(sent(deepest))["data"]
    depth, value = 0, row["v"]
    while isinstance(value, dict | list):
        depth, value = depth + 1, value[0] if isinstance(value, list) else next(iter(value.values()))
    assert (depth, value) == (deepest, 1)
    for depth in (deepest + 1, 200):
        assert "nested" in firn.fail(sent(depth), "INVALID_QUERY", 400)["message"]
