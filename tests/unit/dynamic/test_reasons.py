"""What is not refreshed incrementally says why, with a stable code and its place; what is wrong is refused."""

import pytest

from service.dynamic.query.compile import compile_query
from service.dynamic.query.tables import tables_named, with_views
from service.errors import InvalidQuery, QueryTooExpensive
from service.model.schema.types import Field, Map, Primitive
from tests.unit.dynamic.duck import Duck

LONG, TEXT, DOUBLE = Primitive("long"), Primitive("string"), Primitive("double")
SCHEMAS = {
    "t": [Field("id", LONG), Field("k", LONG), Field("v", LONG), Field("s", TEXT), Field("f", DOUBLE)],
    "u": [Field("id", LONG), Field("k", LONG), Field("w", LONG)],
}


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck(SCHEMAS)


REASONS = [
    ("SELECT id FROM t LIMIT 3", "LIMIT"),
    ("SELECT id FROM t ORDER BY id LIMIT 3", "LIMIT"),
    ("SELECT id FROM (SELECT id FROM t ORDER BY v LIMIT 1) x", "LIMIT"),
    ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u LIMIT 1)", "LIMIT"),
    ("SELECT id, RANDOM() AS r FROM t", "NON_DETERMINISTIC"),
    ("SELECT id FROM t WHERE v > RANDOM() * 3", "NON_DETERMINISTIC"),
    ("SELECT k, FIRST(v) AS r FROM t GROUP BY k", "NON_DETERMINISTIC"),
    ("SELECT k, ANY_VALUE(v) AS r FROM t GROUP BY k", "NON_DETERMINISTIC"),
    ("SELECT id, LAST_VALUE(v) OVER (PARTITION BY k ORDER BY v) AS r FROM t", "NON_DETERMINISTIC"),
    ("SELECT id, FIRST_VALUE(v) OVER (PARTITION BY k) AS r FROM t", "NON_DETERMINISTIC"),
    ("SELECT id, CURRENT_DATE AS d FROM t", "CLOCK"),
    ("SELECT id, CURRENT_DATE() AS d FROM t", "CLOCK"),
    ("SELECT id, CURRENT_TIMESTAMP AS d FROM t", "CLOCK"),
    ("SELECT k, s, COUNT(*) AS n FROM t GROUP BY ROLLUP (k, s)", "GROUPING_SETS"),
    ("SELECT k, s, COUNT(*) AS n FROM t GROUP BY CUBE (k, s)", "GROUPING_SETS"),
    ("SELECT k, s, COUNT(*) AS n FROM t GROUP BY GROUPING SETS ((k), (s))", "GROUPING_SETS"),
    ("SELECT id FROM t TABLESAMPLE (10 PERCENT)", "NON_DETERMINISTIC"),
    ("SELECT q.id FROM (SELECT SUM(f) AS x, k AS id FROM t GROUP BY k) q JOIN u ON u.id = q.x", "INEXACT"),
    ("SELECT u.id FROM u WHERE u.k IN (SELECT k FROM t GROUP BY k HAVING SUM(f) > 1)", "INEXACT"),
    ("SELECT id, SOUNDS_LIKE(s) AS d FROM t", "UNSUPPORTED"),
    ("SELECT id, k IN (SELECT k FROM u) AS r FROM t", "UNSUPPORTED"),
    ("SELECT id FROM t WHERE NOT (v = 1 OR k IN (SELECT k FROM u))", "UNSUPPORTED"),
    ("SELECT id FROM t WHERE (k IN (SELECT k FROM u)) IS NULL", "UNSUPPORTED"),
    (r"SELECT id FROM t WHERE s LIKE '\d'", "UNSUPPORTED"),
]


def types_of(duck: Duck, query: str):  # type: ignore[no-untyped-def]
    """Types as DuckDB sees them, and of nothing where it knows the function under another name."""
    table = duck.table("SELECT id FROM t")

    def types(sql: str) -> tuple[Field, ...]:
        try:
            return table.types(sql)
        except InvalidQuery:
            return (Field("id", LONG), Field("r", LONG)) if "," in sql.split("FROM")[0] else (Field("id", LONG),)

    for i, one in enumerate(tables_named(query)):
        duck.db.execute(f"CREATE OR REPLACE VIEW s{i}_new AS FROM {one.table}_v0")
    return types


@pytest.mark.parametrize(("query", "code"), REASONS)
def test_what_is_not_incremental_has_a_code_and_its_own_text(duck: Duck, query: str, code: str) -> None:
    tables = tables_named(query)
    found = compile_query(query, [SCHEMAS[one.table] for one in tables], types_of(duck, query))
    assert found.not_incremental is not None, found.classes
    assert found.not_incremental.code == code, found.not_incremental
    assert found.not_incremental.message
    assert found.hidden == ()
    assert with_views(query, tables) in found.full


PLACES = [
    ("SELECT id\nFROM t\nORDER BY id LIMIT 3", 3, 13),
    ("SELECT id\nFROM t\nLIMIT ALL", 3, 1),
    ("SELECT id FROM t\n  OFFSET 3", 2, 3),
    ("SELECT id FROM (\n  SELECT id FROM t\n  ORDER BY v\n  LIMIT 1) x", 4, 3),
    ("SELECT k, COUNT(*) AS n\nFROM t\nGROUP BY\nROLLUP (k)", 3, 1),
    ("SELECT id\nFROM t\nSORT BY v", 3, 1),
    ("SELECT id FROM t\nUNION SELECT id FROM u\nEXCEPT SELECT k FROM u", 3, 15),
    ("SELECT id\nFROM t\nWHERE v > RANDOM()", 3, 11),
]


@pytest.mark.parametrize(("query", "line", "column"), PLACES)
def test_what_is_not_incremental_has_its_place(duck: Duck, query: str, line: int, column: int) -> None:
    tables = tables_named(query)
    found = compile_query(query, [SCHEMAS[one.table] for one in tables], types_of(duck, query)).not_incremental
    assert found is not None
    assert (found.line, found.column) == (line, column), found


INCREMENTAL = [
    "SELECT id FROM t ORDER BY id",
    "SELECT /*+ BROADCAST(u) */ t.id FROM t JOIN u USING (k)",
    "SELECT id, 1 AS `one more` FROM t",
    "SELECT id, LEVENSHTEIN(s, 'x') AS d FROM t",
    "SELECT T.ID, K FROM T WHERE V > 1",
    "SELECT id FROM t WHERE s LIKE 'a!%' ESCAPE '!'",
    "SELECT id, 'it''s' AS a, \"it's\" AS b, 1L AS c, 1.5D AS d, 2Y AS e FROM t",
    "SELECT id, DATE '2024-01-01' + INTERVAL 1 MONTH AS d FROM t",
    "SELECT k, SUM(x) AS s FROM (SELECT k, SUM(f) AS x FROM t GROUP BY k) q GROUP BY k",
]


@pytest.mark.parametrize("query", INCREMENTAL)
def test_what_looks_unusual_is_incremental_all_the_same(duck: Duck, query: str) -> None:
    found = duck.table(query.replace("T WHERE", "t WHERE")).compiled
    assert found.not_incremental is None


WRONG = [
    ("SELECT nothing FROM t", "nothing is not a column of the tables in FROM; use one of id, ", 1, 8),
    ("SELECT id\nFROM t JOIN u ON t.k = u.k", "id is ambiguous", 1, 8),
    ("SELECT t.id FROM t\nJOIN u ON t.k = z.k", "z.k is not a column", 2, 17),
    ("SELECT x.* FROM t", "x is not a table in FROM", 1, 8),
]


@pytest.mark.parametrize(("query", "problem", "line", "column"), WRONG)
def test_a_wrong_column_is_refused_with_its_place(duck: Duck, query: str, problem: str, line: int, column: int) -> None:
    with pytest.raises(InvalidQuery, match=problem) as error:
        duck.table(query)
    assert f"(line {line}, column {column})" in error.value.message


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT 1 AS one", "reads no table"),
        ("SELECT * FROM (VALUES (1)) AS x", "reads no table"),
        ("INSERT INTO t SELECT * FROM u", "declared by a query"),
        ("SELECT id FROM t; SELECT id FROM u", "one statement"),
        ("SELECT id FROM", "line 1"),
        ("SELECT id, v AS id FROM t", "two columns of the result are called id"),
        ("SELECT id, v AS ID FROM t", "two columns"),
        ("SELECT id AS _firn_id FROM t", "keeps for itself"),
        ("SELECT id FROM a.b.t", "not the name of a table"),
        ("SELECT id FROM u JOIN t VERSION AS OF 3 ON 1 = 1", r"t is named at a fixed snapshot \(line 1, column 23\)"),
    ],
)
def test_a_wrong_query_is_refused(duck: Duck, query: str, problem: str) -> None:
    with pytest.raises(InvalidQuery, match=problem):
        duck.table(query)


def test_tables_are_named_once_in_the_order_of_the_text_and_not_if_the_query_defines_them() -> None:
    query = "WITH c AS (SELECT * FROM lake.sales.t) SELECT * FROM c JOIN `u` ON 1 = 1 JOIN sales.t x ON 1 = 1, u AS y"
    found = tables_named(query)
    assert [(one.namespace, one.table, one.line, one.column) for one in found] == [
        ("sales", "t", 1, 26),
        (None, "u", 1, 61),
    ]
    assert with_views(query, found) == (
        "WITH c AS (SELECT * FROM s0_new AS `t`) SELECT * FROM c JOIN s1_new AS `u` ON 1 = 1 "
        "JOIN s0_new x ON 1 = 1, s1_new AS y"
    )


def test_columns_may_be_written_with_the_namespace_of_their_table() -> None:
    query = "SELECT 'ü→' AS x, lake.sales.t.id, sales.t.k, t.v FROM sales.t WHERE `sales`.t.s.f > 1"
    assert with_views(query, tables_named(query)) == (
        "SELECT 'ü→' AS x, `t`.id, `t`.k, t.v FROM s0_new AS `t` WHERE `t`.s.f > 1"
    )


def test_a_value_without_a_name_is_called_after_its_text(duck: Duck) -> None:
    table = duck.table("SELECT k, SUM(v), SUM(v) + 1 FROM t GROUP BY k")
    assert [name for name in table.columns if not name.startswith("_firn_")] == ["k", "sum_v", "sum_v_1"]


def test_sources_are_read_in_the_columns_that_are_needed(duck: Duck) -> None:
    query = "SELECT t.id FROM t JOIN u ON t.k = u.k WHERE u.w > 1 AND EXISTS (SELECT 1 FROM t x WHERE x.v = u.w)"
    assert [(one.table, one.columns) for one in duck.table(query).compiled.sources] == [
        ("t", ("id", "k", "v")),
        ("u", ("k", "w")),
    ]
    assert [one.columns for one in duck.table("SELECT COUNT(*) AS n FROM t").compiled.sources] == [("id",)]


def test_a_star_means_no_internal_columns_of_ingestion_tables_even_if_the_query_names_them() -> None:
    fields = [Field("id", LONG), Field("kind", TEXT), Field("_firn_date", Primitive("date"))]
    types = Duck({"sales": fields}).table("SELECT id FROM sales").types
    query = "SELECT *, _firn_date AS day FROM sales s JOIN (SELECT * FROM sales) x USING (id, kind)"
    found = compile_query(query, [fields], types, shown=lambda sql: sql.replace("SELECT *", "SELECT id, kind"))
    assert found.not_incremental is None
    assert [field.name for field in types(found.full)] == ["id", "kind", "day"]
    assert [one.columns for one in found.sources] == [("id", "kind", "_firn_date")]
    with pytest.raises(InvalidQuery, match="_firn_date is a name that Firn keeps for itself; give the column another"):
        compile_query("SELECT id, _firn_date FROM sales", [fields], types)


def test_columns_with_maps_are_kept_but_not_compared() -> None:
    fields = [Field("id", LONG), Field("m", Map(TEXT, LONG))]
    kinds = {"id": LONG, "m": Map(TEXT, LONG)}

    def types(sql: str) -> tuple[Field, ...]:
        names = [name for name in ("id", "m") if name in sql.split("FROM")[0]]
        return tuple(Field(name, kinds[name]) for name in names)

    assert compile_query("SELECT id, m FROM t", [fields], types).not_incremental is None
    found = compile_query("SELECT DISTINCT m FROM t", [fields], types).not_incremental
    assert found is not None
    assert found.code == "MAP_KEY"


def test_a_map_that_the_query_makes_is_not_compared_either() -> None:
    def types(sql: str) -> tuple[Field, ...]:
        return (Field("m", Map(TEXT, LONG)),)

    found = compile_query("SELECT DISTINCT MAP('a', id) AS m FROM t", [[Field("id", LONG)]], types).not_incremental
    assert found is not None
    assert found.code == "MAP_KEY"


STARS = "SELECT id FROM t"
for _ in range(40):
    STARS = f"SELECT *, * FROM ({STARS}) x"


def test_stars_that_double_are_not_followed() -> None:
    def types(sql: str) -> tuple[Field, ...]:
        raise refusal

    for refusal in (QueryTooExpensive("the columns of a subquery"), InvalidQuery("an unknown function")):
        with pytest.raises(type(refusal), match=refusal.message):
            compile_query(STARS, [SCHEMAS["t"]], types)
