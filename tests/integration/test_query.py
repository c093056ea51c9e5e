"""QUERY on real Spark: filters, projections, aggregates, joins, time travel, and a stranger's SQL."""

from collections.abc import Callable
from typing import Any

import pytest

from service.catalog.tables import Catalog
from service.engine.session.jvm import activate
from service.model.filters.filters import parse_filter
from service.model.filters.pruning import iceberg_json
from service.model.names import TableName
from service.model.schema.columns import columns_of
from tests.harness import Firn

UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
FIELDS = {
    "id": {"type": "long", "required": True},
    "name": {"type": "string"},
    "age": {"type": "integer"},
    "f": {"type": "float"},
    "x": {"type": "double"},
    "d": {"type": "decimal(10,2)"},
    "big": {"type": "decimal(38,0)"},
    "ok": {"type": "boolean"},
    "day": {"type": "date"},
    "ts": {"type": "timestamp"},
    "tz": {"type": "timestamptz"},
    "bin": {"type": "binary"},
    "u": {"type": "uuid"},
    "tags": {"type": "array", "items": "string"},
    "nums": {"type": "array", "items": "long"},
    "m": {"type": "map", "key_type": "string", "value_type": "string"},
    "address": {
        "type": "struct",
        "fields": {"city": {"type": "string"}, "geo": {"type": "struct", "fields": {"lat": {"type": "double"}}}},
    },
}
PEOPLE = (
    {
        **{"id": 1, "name": "Ann%", "age": 30, "f": 0.1, "x": 0.1, "d": "1.50", "big": "9" * 38, "ok": True},
        **{"day": "2024-01-31", "ts": "2024-01-31T10:00:00.5", "tz": "2024-01-31T10:00:00Z", "bin": "AP8=", "u": UUID},
        **{"tags": ["red", "blue", None], "nums": [1, 2], "m": {"color": "red"}},
        **{"address": {"city": "Oslo", "geo": {"lat": 59.9}}},
    },
    {
        **{"id": 2, "name": "Bo", "f": "NaN", "x": "NaN", "d": "-3.00", "ok": False, "day": "2023-02-01"},
        **{"ts": "2023-02-01T00:00:00", "tz": "2023-02-01T00:00:00+02:00", "tags": ["green"]},
        **{"m": {"color": "blue", "z": None}, "address": {"city": "Rome"}},
    },
    {"id": 3, "name": "a'b\\c\"`", "age": 25, "f": -1.5, "x": "Infinity", "d": "1.50", "tags": []},
    {"id": 4, "age": 41},
)
ORDERS = (
    {"id": 10, "person_id": 1, "total": "5.00"},
    {"id": 11, "person_id": 1, "total": "7.50"},
    {"id": 12, "person_id": 3},
    {"id": 13, "person_id": 99, "total": "1.00"},
)
Ask = Callable[..., Any]


def create(firn: Firn, tenant: str, table: str, fields: dict[str, Any], *records: Any, **more: Any) -> None:
    address = {"tenant_id": tenant, "table": table, **more}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": fields}})
    if records:
        firn.ok({"operation": "WRITE", **address, "records": list(records)})


@pytest.fixture(scope="module")
def people(firn: Firn) -> str:
    """A tenant whose tables these tests only read."""
    tenant = "query-reads"
    create(firn, tenant, "people", FIELDS, *PEOPLE)
    order = {"id": {"type": "long"}, "person_id": {"type": "long"}, "total": {"type": "decimal(10,2)"}}
    create(firn, tenant, "orders", order, *ORDERS)
    item = {"order_id": {"type": "long"}, "sku": {"type": "string"}}
    create(firn, tenant, "my-items", item, {"order_id": 10, "sku": "s1"}, namespace="shop")
    create(firn, tenant, "people", {"id": {"type": "long"}}, {"id": 7}, namespace="shop")
    create(firn, "query-other", "secret", {"id": {"type": "long"}}, {"id": 666})
    assert TableName("query-other", "default", "secret").identifier == ("query_other__default__80b", "secret")
    return tenant


@pytest.fixture
def ask(firn: Firn, people: str) -> Ask:
    """The whole answer to a QUERY of the table of people."""

    def asked(table: str | None = "people", **parts: Any) -> dict[str, Any]:
        return firn.ok({"operation": "QUERY", "tenant_id": people, "table": table, **parts})

    return asked


@pytest.fixture
def data(ask: Ask) -> Ask:
    """The rows of such an answer."""

    def rows(**parts: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(**parts)["data"]
        return found

    return rows


@pytest.fixture
def sql(firn: Firn, people: str) -> Ask:
    """The rows of a SELECT, each as the tuple of its values."""

    def rows(text: str, **parts: Any) -> list[tuple[Any, ...]]:
        answer = firn.ok({"operation": "QUERY", "tenant_id": people, "sql": text, **parts})
        return [tuple(row.values()) for row in answer["data"]]

    return rows


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ({"age": {"gt": 28}}, [1, 4]),
        ({"age": {"gt": 29.5, "lte": 30}}, [1]),
        ({"age": {"ne": 30}}, [3, 4]),
        ({"not": {"age": 30}}, [3, 4]),
        ({"age": 30.5}, []),
        ({"not": {"age": 30.5}}, [1, 3, 4]),
        ({"age": None}, [2]),
        ({"age": {"is_not_null": True}}, [1, 3, 4]),
        ({"age": {"in": [30, 41, 99]}}, [1, 4]),
        ({"age": {"in": [30, None]}}, [1]),
        ({"age": {"not_in": [30]}}, [3, 4]),
        ({"age": {"not_in": [30, None]}}, []),
        ({"age": {"in": []}}, []),
        ({"age": {"not_in": []}}, [1, 2, 3, 4]),
        ({"id": {"lt": 1e30}}, [1, 2, 3, 4]),
        ({"f": 0.1}, [1]),
        ({"x": 0.1}, [1]),
        ({"f": "NaN"}, [2]),
        ({"x": {"gt": 1}}, [2, 3]),
        ({"x": {"lt": "NaN"}}, [1, 3]),
        ({"f": {"in": ["NaN", -1.5]}}, [2, 3]),
        ({"f": {"not_in": ["NaN"]}}, [1, 3]),
        ({"d": 1.5}, [1, 3]),
        ({"d": {"gt": "1.499"}}, [1, 3]),
        ({"big": "9" * 38}, [1]),
        ({"big": {"gt": 0.5}}, [1]),
        ({"ok": {"ne": True}}, [2]),
        ({"day": {"between": ["2023-01-01", "2023-12-31"]}}, [2]),
        ({"ts": "2024-01-31T10:00:00.5"}, [1]),
        ({"tz": "2024-01-31T11:00:00+01:00"}, [1]),
        ({"bin": "AP8="}, [1]),
        ({"bin": {"gt": "AA=="}}, [1]),
        ({"u": UUID.upper()}, [1]),
        ({"tags": {"like": "gr%"}}, [2]),
        ({"tags": {"ilike": "RED"}}, [1]),
        ({"not": {"tags": {"array_contains": "green"}}}, [3]),
        ({"nums": {"array_contains": 2}}, [1]),
        ({"nums": {"array_contains": 2.5}}, []),
        ({"m.color": "red"}, [1]),
        ({"m.nope": "x"}, []),
        ({"address.city": "Oslo"}, [1]),
        ({"address.geo.lat": {"gt": 50}}, [1]),
        ({"address.geo": None}, [2, 3, 4]),
        ({"name": {"like": "%n\\%"}}, [1]),
        ({"name": {"ilike": "bO"}}, [2]),
        ({"name": {"regex": "^B.$"}}, [2]),
        ({"name": {"starts_with": "A_n"}}, []),
        ({"name": {"ends_with": "%"}}, [1]),
        ({"name": {"contains": "'b\\c\"`"}}, [3]),
        ({"name": {"in": ["Bo", "a'b\\c\"`"]}}, [2, 3]),
        ({"or": [{"age": 30}, {"name": "Bo"}]}, [1, 2]),
        ([{"field": "age", "operator": "gt", "value": 20}, {"or": [{"id": 1}, {"id": 3}]}], [1, 3]),
        ({"age": {"gt": {"field": "id"}}}, [1, 3, 4]),
        ({"f": {"field": "x"}}, [2]),
    ],
)
def test_a_filter_keeps_the_rows_that_sql_would(data: Ask, filter: Any, ids: list[int]) -> None:
    assert [row["id"] for row in data(filter=filter, projection=["id"], sort="id")] == ids


@pytest.mark.parametrize(
    ("filter", "pushed"),
    [
        ({"day": {"gte": "2024-01-01"}}, "day >= 19723"),
        ({"ts": {"lt": "2024-01-01T00:00:00"}}, "ts < 1704067200000000"),
        ({"tz": {"lt": "2024-01-01T00:00:00Z"}}, "tz < 1704067200000000"),
        ({"id": {"in": [1, 2, 3]}}, "id IN (1, 2, 3)"),
        ({"name": {"starts_with": "A"}}, "name LIKE 'A%'"),
        ({"d": {"gt": 1.234}}, "d > 1.23"),
        ({"f": "NaN"}, "is_nan(f)"),
        ({"bin": "AP8="}, "bin = X'00FF'"),
        ({"address.city": "Oslo"}, "address.city = 'Oslo'"),
        ({"not": {"age": {"in": [1, 2]}}}, "age NOT IN (1, 2)"),
        ({"or": [{"id": 1}, {"name": None}]}, "(id = 1 OR name IS NULL)"),
    ],
)
def test_a_filter_reaches_the_scan(ask: Ask, filter: Any, pushed: str) -> None:
    answer = ask(filter=filter, explain=True)
    assert pushed in answer["plan"].partition("filters=")[2].partition("runtimeFilters")[0]
    assert answer["data"] == []


def test_the_expression_of_a_filter_is_read_by_iceberg_itself(firn: Firn, people: str) -> None:
    table = firn.app.parts[Catalog].load(TableName(people, "default", "people"))
    values = {"name": "a", "age": 3, "f": 0.1, "x": 0.5, "d": "1.5", "big": 7, "ok": True, "u": UUID}
    times = {"day": "2024-01-31", "ts": "2024-01-31T10:00:00.5", "tz": "2024-01-31T10:00:00+02:00"}
    every: list[Any] = [{"address.city": "Oslo"}, {"x": "NaN"}, {"x": {"gt": 1}}, {"name": {"starts_with": "a"}}, {}]
    for name, value in {**values, **times}.items():
        every += [{name: value}, {name: {"not_in": [value]}}, {name: {"in": [value]}}, {name: None}]

    def bound(session: Any, texts: list[str]) -> list[str]:
        activate(session)
        java = session._jvm
        schema = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            session._jsparkSession, table.spark_name.replace("`", "")
        ).schema()
        parser, binder = (
            java.org.apache.iceberg.expressions.ExpressionParser,
            java.org.apache.iceberg.expressions.Binder,
        )
        return [binder.bind(schema.asStruct(), parser.fromJson(text, schema), True).toString() for text in texts]

    texts = [iceberg_json(parse_filter(value, columns_of(table.schema)), {*FIELDS, "address.city"}) for value in every]
    assert len(firn.app.engine.run(bound, texts)) == len(every)


@pytest.mark.thorough
def test_a_list_of_ten_thousand_values_is_one_filter(data: Ask) -> None:
    assert len(data(filter={"id": {"in": list(range(10_000))}}, projection="id")) == 4


def test_a_bad_regular_expression_is_the_caller_s_mistake(firn: Firn, people: str) -> None:
    request = {"operation": "QUERY", "tenant_id": people, "table": "people", "filter": {"name": {"regex": "("}}}
    assert firn.send(request).status_code == 400


def test_a_projection_computes_in_its_documented_order(data: Ask) -> None:
    [row] = data(
        filter={"id": 1},
        projection=[
            "address.city",
            {"field": "name", "upper": True, "substring": [1, 3], "alias": "short"},
            {"field": "ts", "date_trunc": "month", "alias": "month"},
            {"field": "day", "date_trunc": "year", "alias": "year"},
            {"field": "tz", "date_trunc": "hour", "alias": "hour"},
            {"field": "ts", "date_format": "yyyy-MM", "alias": "text"},
            {"field": "ts", "extract": "second", "alias": "second"},
            {"field": "d", "cast": "long", "alias": "whole"},
            {"field": "m.color", "alias": "color"},
        ],
    )
    assert row == {
        "address.city": "Oslo",
        "short": "ANN",
        "month": "2024-01-01T00:00:00",
        "year": "2024-01-01",
        "hour": "2024-01-31T10:00:00Z",
        "text": "2024-01",
        "second": "0.500000",
        "whole": 1,
        "color": "red",
    }


def test_a_value_that_cannot_be_cast_is_the_caller_s_mistake(firn: Firn, people: str) -> None:
    cast = {"field": "name", "cast": "integer"}
    request = {"operation": "QUERY", "tenant_id": people, "table": "people", "projection": [cast]}
    firn.fail(request, "INVALID_QUERY", 400)


def test_pages_follow_a_sort_and_say_whether_there_is_more(ask: Ask) -> None:
    first, second = (ask(projection="id", sort=["age"], limit=2, offset=offset) for offset in (0, 2))
    assert [row["id"] for row in first["data"] + second["data"]] == [2, 3, 1, 4]
    assert [answer["metadata"]["has_more"] for answer in (first, second)] == [True, False]
    assert first["metadata"]["row_count"] == 2


def test_sort_places_nulls_first_going_up_and_last_going_down_unless_told(data: Ask) -> None:
    def order(**sort: Any) -> list[int]:
        return [row["id"] for row in data(projection="id", sort=[{"field": "age", **sort}])]

    assert order() == [2, 3, 1, 4]
    assert order(order="desc") == [4, 1, 3, 2]
    assert order(order="desc", nulls_first=True) == [2, 4, 1, 3]


def test_distinct_rows_come_once(data: Ask) -> None:
    assert data(projection="d", distinct=True, sort="d") == [{"d": None}, {"d": "-3.00"}, {"d": "1.50"}]


def test_aggregates_are_exact_and_skip_nulls(data: Ask) -> None:
    ops = ("sum", "avg", "min", "max", "count", "count_distinct")
    [row] = data(
        aggregations=[
            *({"op": op, "field": "d", "alias": op} for op in ops),
            {"op": "count", "alias": "rows"},
            *({"function": op, "field": "age", "alias": op} for op in ("stddev", "variance", "median")),
            {"op": "sum", "field": "d", "distinct": True, "alias": "once"},
        ]
    )
    assert {key: str(value) for key, value in row.items() if key not in ("stddev", "variance")} == {
        **{"sum": "0.00", "avg": "0.000000", "min": "-3.00", "max": "1.50", "count": "3", "count_distinct": "2"},
        **{"rows": "4", "median": "30.0", "once": "-1.50"},
    }
    assert float(row["variance"]) == pytest.approx(67)
    assert float(row["stddev"]) == pytest.approx(67**0.5)


def test_groups_can_be_computed_filtered_and_sorted(data: Ask) -> None:
    assert data(
        projection=[{"field": "tz", "date_trunc": "year", "alias": "year"}],
        group_by=["year"],
        aggregations=[{"op": "count"}, {"op": "max", "field": "id"}],
        having={"count": {"gte": 1}, "year": {"is_not_null": True}},
        sort=[{"field": "max_id", "order": "desc"}],
    ) == [
        {"year": "2023-01-01T00:00:00Z", "count": 1, "max_id": 2},
        {"year": "2024-01-01T00:00:00Z", "count": 1, "max_id": 1},
    ]


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        ("inner", [(1, 10), (1, 11), (3, 12)]),
        ("left", [(1, 10), (1, 11), (2, None), (3, 12), (4, None)]),
        ("right", [(None, 13), (1, 10), (1, 11), (3, 12)]),
        ("full", [(None, 13), (1, 10), (1, 11), (2, None), (3, 12), (4, None)]),
    ],
)
def test_a_join_pairs_rows(data: Ask, kind: str, pairs: list[tuple[int | None, int | None]]) -> None:
    rows = data(
        projection=["people.id", "o.id"],
        join={"table": "orders", "alias": "o", "type": kind, "on": {"id": "person_id"}},
        sort=["people.id", "o.id"],
    )
    assert [(row["people.id"], row["o.id"]) for row in rows] == pairs


def test_joins_chain_across_namespaces_on_several_conditions(data: Ask) -> None:
    assert data(
        projection=["people.id", "sku", {"field": "total", "alias": "paid"}],
        join=[
            {"table": "orders", "on": [{"id": "person_id"}, {"left": "age", "right": "total", "operator": "gt"}]},
            {"table": "my-items", "namespace": "shop", "on": {"orders.id": "order_id"}},
        ],
    ) == [{"people.id": 1, "sku": "s1", "paid": "5.00"}]


def test_a_table_joins_itself_under_an_alias(data: Ask) -> None:
    assert data(
        projection=["people.id", "q.id"],
        join={"table": "people", "alias": "q", "on": "d"},
        filter={"people.id": {"lt": {"field": "q.id"}}},
    ) == [{"people.id": 1, "q.id": 3}]


def test_a_join_groups_and_aggregates(data: Ask) -> None:
    assert data(
        group_by=["people.name"],
        aggregations=[{"op": "sum", "field": "total", "alias": "spent"}],
        join={"table": "orders", "on": {"id": "person_id"}},
        sort=[{"field": "spent", "order": "desc"}],
        limit=1,
    ) == [{"people.name": "Ann%", "spent": "12.50"}]


def test_a_missing_table_of_a_join_is_named(firn: Firn, people: str) -> None:
    join = {"table": "ordres", "on": {"id": "person_id"}}
    request = {"operation": "QUERY", "tenant_id": people, "table": "people", "join": join}
    error = firn.fail(request, "TABLE_NOT_FOUND", 404)
    assert (error["field"], error["suggestion"]) == ("join[0].table", "orders")


def test_as_of_reads_what_was(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t", {"id": {"type": "long"}})
    write = {"operation": "WRITE", "tenant_id": tenant, "table": "t"}
    first = firn.ok({**write, "records": [{"id": 1}]})["metadata"]["snapshot_id"]
    second = firn.ok({**write, "records": [{"id": 2}]})["metadata"]["snapshot_id"]
    ask = {"operation": "QUERY", "tenant_id": tenant, "table": "t", "sort": "id"}
    for as_of, ids, snapshot in (
        (first, [1], first),
        (int(first), [1], first),
        ("2999-01-01T00:00:00Z", [1, 2], second),
        (None, [1, 2], second),
    ):
        answer = firn.ok({**ask, "as_of": as_of})
        assert ([row["id"] for row in answer["data"]], answer["metadata"]["snapshot_id"]) == (ids, snapshot)
        answer = firn.ok({"operation": "QUERY", "tenant_id": tenant, "sql": "TABLE t ORDER BY id", "as_of": as_of})
        assert ([row["id"] for row in answer["data"]], answer["metadata"]["snapshot_id"]) == (ids, snapshot)
    firn.fail({**ask, "as_of": "2001-01-01"}, "SNAPSHOT_NOT_FOUND", 404)
    firn.fail({**ask, "as_of": 12345}, "SNAPSHOT_NOT_FOUND", 404)
    firn.fail({**ask, "as_of": "yesterday"}, "SNAPSHOT_NOT_FOUND", 404)


def test_scanned_files_and_bytes_are_those_left_after_pruning(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t", {"id": {"type": "long"}})
    for number in range(3):
        firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "t", "records": [{"id": number}]})
    ask = {"operation": "QUERY", "tenant_id": tenant, "table": "t"}
    whole, pruned = (firn.ok({**ask, "filter": f})["metadata"] for f in ({}, {"id": 1}))
    assert (whole["scanned_files"], pruned["scanned_files"]) == (3, 1)
    assert 0 < pruned["scanned_bytes"] < whole["scanned_bytes"]
    joined = firn.ok({**ask, "join": {"table": "t", "alias": "u", "on": "id"}, "group_by": "t.id", "sort": "t.id"})
    assert (len(joined["data"]), joined["metadata"]["scanned_files"]) == (3, 6)


def test_a_table_without_rows_answers_too(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "t", {"id": {"type": "long"}})
    assert firn.rows(tenant, "t") == []
    assert firn.rows(tenant, "t", aggregations={"op": "count"}) == [{"count": 0}]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT id FROM people WHERE age > 28 ORDER BY id", [(1,), (4,)]),
        ("SELECT p.id, i.sku FROM people p, shop.`my-items` i WHERE p.id = 1", [(1, "s1")]),
        ("SELECT '😀', id FROM shop . people /* c */ WHERE id > 1 -- x", [("😀", 7)]),
        ("SELECT a.id, b.id AS other FROM people a, shop.people b WHERE a.id = 1", [(1, 7)]),
        ("WITH people AS (SELECT 5 AS id) SELECT * FROM PEOPLE", [(5,)]),
        ("WITH w AS (SELECT id FROM people WHERE id = 1), people AS (SELECT id + 1 AS id FROM w) TABLE people", [(2,)]),
        ("SELECT p.id FROM default.people p WHERE EXISTS (SELECT 1 FROM people q WHERE q.id = p.id + 3)", [(1,)]),
        ("SELECT id, t FROM people LATERAL VIEW explode(tags) e AS t WHERE id = 2", [(2, "green")]),
        ("SELECT count(*), max(age) FROM people GROUP BY ALL HAVING count(*) > 1", [(4, 41)]),
        ("SELECT id, rank() OVER (ORDER BY age DESC NULLS LAST) AS r FROM people ORDER BY r LIMIT 1", [(4, 1)]),
        ("SELECT transform(tags, t -> upper(t)) AS t FROM people WHERE id = 2", [(["GREEN"],)]),
        ("VALUES (1, 'a')", [(1, "a")]),
    ],
)
def test_a_select_reads_the_tenant_s_tables(sql: Ask, text: str, rows: list[tuple[Any, ...]]) -> None:
    assert sql(text) == rows


def test_parameters_keep_their_types_and_cannot_become_sql(sql: Ask) -> None:
    params = {"t": "'; DROP TABLE people --", "n": 2**62, "d": 1.25, "b": True, "x": None, "l": [1, 4]}
    [row] = sql("SELECT :t, :n AS n, :d AS d, :b AS b, :x AS x, :l AS l", params=params)
    assert [str(value) for value in row] == [params["t"], str(2**62), "1.25", "True", "None", "[1, 4]"]
    assert sql("SELECT id FROM people WHERE array_contains(:l, id) ORDER BY id", params={"l": [1, 4]}) == [(1,), (4,)]


def test_limit_and_offset_apply_around_a_select(firn: Firn, people: str) -> None:
    request = {"operation": "QUERY", "tenant_id": people, "sql": "SELECT id FROM people ORDER BY id DESC"}
    answer = firn.ok({**request, "limit": 2, "offset": 1})
    assert ([row["id"] for row in answer["data"]], answer["metadata"]["has_more"]) == ([3, 2], True)


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE people",
        "INSERT INTO people SELECT 1",
        "SELECT 1; SELECT 2",
        "BEGIN SELECT 1; END",
        "SET spark.sql.runSQLOnFiles=true",
        "SELECT TRANSFORM(id) USING 'id' FROM people",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT `java_method`('java.lang.Runtime', 'getRuntime')",
        "SELECT system.builtin.reflect('a', 'b')",
        "VALUES (reflect('java.lang.System', 'getProperty', 'user.home'))",
        "SELECT rank() OVER w FROM people WINDOW w AS (ORDER BY reflect('java.lang.System', 'lineSeparator'))",
        "SELECT * FROM firn.`query_other__default__80b`.secret",
        "SELECT * FROM `firn, query_other__default__80b, secret`",
        "WITH `firn, query_other__default__80b, secret` AS (SELECT 1) "
        "SELECT * FROM firn.query_other__default__80b.secret",
        "SELECT * FROM people ORDER BY (SELECT max(id) FROM firn.query_other__default__80b.secret)",
        "SELECT * FROM VALUES ((SELECT max(id) FROM firn.query_other__default__80b.secret))",
        "SELECT * FROM text.`/etc/hostname`",
        "SELECT * FROM default.people.files",
        "SELECT * FROM people VERSION AS OF 1",
        "SELECT * FROM people WITH ('branch' = 'main')",
        "SELECT * FROM range(10)",
        "SELECT * FROM STREAM people",
        "SELECT * FROM IDENTIFIER('firn.query_other__default__80b.secret')",
        "SELECT IDENTIFIER('reflect')('a', 'b')",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "SELECT input_file_name() FROM people",
        "SELECT current_user",
        "SELECT current_catalog()",
        "SELECT _file FROM people",
        "SELECT ?",
        "SELECT /*+ broadcast(people) */ id FROM people",
        "SELECT id, id FROM people",
        "SELECT INTERVAL '1-2' YEAR TO MONTH AS i",
        "SELECT nme FROM people",
        "SELECT 1/0 AS z",
        "SELEC 1",
        "",
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    ],
)
def test_whatever_else_sql_can_do_is_refused(firn: Firn, people: str, text: str) -> None:
    firn.fail({"operation": "QUERY", "tenant_id": people, "sql": text}, "INVALID_QUERY", 400)


@pytest.mark.parametrize("name", ["secret", "query-other.secret", "people.files", "global_temp.x", "firn_source"])
def test_a_table_that_is_not_the_tenant_s_does_not_exist(firn: Firn, people: str, name: str) -> None:
    quoted = ".".join(f"`{part}`" for part in name.split("."))
    request = {"operation": "QUERY", "tenant_id": people, "sql": f"SELECT * FROM {quoted}"}
    firn.fail(request, "TABLE_NOT_FOUND", 404)


def test_text_that_spark_would_expand_stays_as_it_is(sql: Ask) -> None:
    assert sql("SELECT '${env:HOME}', '${spark.master}' AS m") == [("${env:HOME}", "${spark.master}")]


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"sql": "SELECT :a", "params": {"b": 1}}, "params.a"),
        ({"sql": "SELECT 1", "params": {"b": 1}}, "params.b"),
        ({"sql": "SELECT :a", "params": {"a": {"x": 1}}}, "params.a"),
        ({"sql": "SELECT 1", "filter": {"id": 1}}, "filter"),
        ({"sql": "SELECT 1", "sort": "id"}, "sort"),
        ({"table": "people", "params": {}}, "params"),
    ],
)
def test_sql_and_the_parts_of_a_query_do_not_mix(firn: Firn, people: str, parts: Any, field: str) -> None:
    error = firn.fail({"operation": "QUERY", "tenant_id": people, **parts}, "INVALID_QUERY", 400)
    assert error["field"] == field


def test_a_query_needs_a_table_or_sql(firn: Firn, people: str) -> None:
    error = firn.fail({"operation": "QUERY", "tenant_id": people}, "INVALID_REQUEST", 400)
    assert error["field"] == "table"


def test_no_view_of_a_select_outlives_it(firn: Firn, sql: Ask) -> None:
    sql("SELECT a.id FROM people a, shop.`my-items` b, shop.people c")
    left = views(firn)
    assert left
    # What is kept are snapshots, by names that no SELECT can say.
    assert all(name.startswith("_firn_") for names in left for name in names)


@pytest.mark.thorough
def test_snapshots_that_were_read_are_kept_for_the_next_query_and_bounded(firn: Firn, tenant: str) -> None:
    address = {"tenant_id": tenant, "table": "often"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"id": {"type": "long"}}}})
    for number in range(20):
        firn.ok({"operation": "WRITE", **address, "records": [{"id": number}]})
        assert len(firn.rows(tenant, "often")) == number + 1
    # Pages also read a snapshot with the place of each row.
    placed = [[name for name in names if name.endswith("_placed")] for names in views(firn)]
    plain = [[name for name in names if not name.endswith("_placed")] for names in views(firn)]
    assert all(len(names) <= 16 for names in (*placed, *plain))


def test_a_table_is_joined_with_itself(firn: Firn, tenant: str) -> None:
    address = {"tenant_id": tenant, "table": "twice"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"id": {"type": "long"}}}})
    firn.ok({"operation": "WRITE", **address, "records": [{"id": i} for i in range(3)]})
    with_itself = {"table": "twice", "alias": "other", "on": {"left": "id", "right": "id"}}
    joined = firn.ok({"operation": "QUERY", **address, "join": [with_itself], "filter": {"twice.id": 2}})["data"]
    assert joined == [{"id": 2, "other.id": 2}]
    text = "SELECT a.id, b.id AS more FROM twice a JOIN twice b ON a.id = b.id + 1 WHERE a.id = 1"
    assert firn.ok({"operation": "QUERY", "tenant_id": tenant, "sql": text})["data"] == [{"id": 1, "more": 0}]


def test_what_is_kept_of_a_snapshot_cannot_be_named(firn: Firn, sql: Ask, people: str) -> None:
    sql("SELECT id FROM people")
    for name in {name for names in views(firn) for name in names}:
        firn.fail({"operation": "QUERY", "tenant_id": people, "sql": f"SELECT * FROM {name}"}, "INVALID_REQUEST", 400)


@pytest.mark.thorough
def test_uuids_are_found_whatever_they_begin_with(firn: Firn, tenant: str) -> None:
    """Files are not left out by their smallest and greatest uuid, of which Java has another idea than files have."""
    address = {"tenant_id": tenant, "table": "ids"}
    inner = {"type": "struct", "fields": {"u": {"type": "uuid"}}}
    create(firn, tenant, "ids", {"u": {"type": "uuid"}, "s": inner, "n": {"type": "long"}})
    known = [f"{first}79c0000-0000-4000-8000-000000000000" for first in "f059"]
    rows = [{"u": u, "s": {"u": u}, "n": i} for i, u in enumerate(known)]
    firn.ok({"operation": "WRITE", **address, "records": [*rows, {"n": 4}]})

    def found(**asked: Any) -> list[int]:
        return sorted(row["n"] for row in firn.ok({"operation": "QUERY", "tenant_id": tenant, **asked})["data"])

    for i, u in enumerate(known):
        for where in ({"u": u}, {"u": {"in": [u]}}, {"s.u": u}, {"u": {"gte": u, "lte": u}}):
            assert found(table="ids", filter=where) == [i], where
        for where in (f"u = '{u}'", f"s.u = '{u}'", f"u IN ('{u}', 'x')", f"s = named_struct('u', '{u}')"):
            assert found(sql=f"SELECT n FROM ids WHERE {where}") == [i], where
    assert found(table="ids", filter={"u": {"gt": known[1]}}) == [0, 2, 3]
    assert found(table="ids", filter={"u": {"ne": known[1]}}) == [0, 2, 3]
    assert found(table="ids", filter={"u": None}) == found(sql="SELECT n FROM ids WHERE s.u IS NULL") == [4]
    updated = firn.ok({"operation": "UPDATE", **address, "updates": {"n": 10}, "filter": {"u": known[0]}})
    assert updated["records_updated"] == 1
    assert firn.ok({"operation": "DELETE", **address, "filter": {"u": {"in": known[1:3]}}})["records_deleted"] == 2
    assert found(table="ids") == [3, 4, 10]


@pytest.mark.thorough
def test_a_query_reads_more_tables_than_are_kept(firn: Firn, tenant: str) -> None:
    joins = []
    for number in range(18):
        create(firn, tenant, f"t{number}", {"id": {"type": "long"}})
        firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": f"t{number}", "records": [{"id": 1}]})
        joins.append({"table": f"t{number}", "on": {"t0.id": "id"}})
    ask = {"operation": "QUERY", "tenant_id": tenant, "table": "t0", "join": joins[1:], "projection": ["t17.id"]}
    assert firn.ok(ask)["data"] == [{"t17.id": 1}]
    assert firn.rows(tenant, "t0") == [{"id": 1}]
    for names in views(firn):
        # A view with the places of its rows may stand beside it.
        plain = {name for name in names if not name.endswith("_placed")}
        assert len(plain) <= 18
        assert {name.removesuffix("_placed") for name in names} == plain


@pytest.mark.parametrize(
    ("condition", "ids"), [("(n = 1.5) IS NULL", [3]), ("coalesce(ok AND NULL, n = 2.5, true)", [3])]
)
def test_sql_may_have_conditions_that_spark_cannot_translate_for_iceberg(
    firn: Firn, tenant: str, condition: str, ids: list[int]
) -> None:
    fields = {"id": {"type": "long"}, "n": {"type": "integer"}, "ok": {"type": "boolean"}}
    create(firn, tenant, "t", fields, {"id": 1, "ok": False, "n": 1}, {"id": 2, "n": 2}, {"id": 3})
    text = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    ask = {"operation": "QUERY", "tenant_id": tenant, "sql": text}
    assert [row["id"] for row in firn.ok(ask)["data"]] == ids
    streamed = firn.client.post("/database", json=ask, headers={"Accept": "text/csv"})
    assert streamed.text.split() == ["id", *map(str, ids)]


def test_sql_reads_a_table_whose_name_begins_with_a_digit(firn: Firn, tenant: str) -> None:
    create(firn, tenant, "7x", {"id": {"type": "long"}})
    ask = {"operation": "QUERY", "tenant_id": tenant, "sql": "SELECT id FROM `7x`"}
    assert firn.ok(ask)["data"] == []
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "7x", "records": [{"id": 1}]})
    assert firn.ok(ask)["data"] == [{"id": 1}]


def views(firn: Firn) -> list[list[str]]:
    """The temporary views of each session."""
    found: list[list[str]] = []
    firn.app.engine.run_on_all(lambda session: found.append([v.name for v in session.catalog.listTables()]))
    return found
