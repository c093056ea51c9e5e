"""Expressions on real Spark: what they compute is what Spark's own SQL computes, in UPDATE, DELETE and every filter."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.model.expressions import parse_expression
from service.model.expressions.functions import FUNCTIONS, Function
from service.model.expressions.kinds import family
from service.model.schema.columns import columns_of
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.types import Array, DecimalType
from tests.expressions import SCHEMA, Tree, trees, written
from tests.harness import Firn
from tests.support.marks import thorough_after

UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
FIELDS = {
    "id": {"type": "long", "required": True},
    "a": {"type": "integer"},
    "b": {"type": "long"},
    "x": {"type": "double"},
    "d": {"type": "decimal(10,2)"},
    "name": {"type": "string"},
    "ok": {"type": "boolean"},
    "day": {"type": "date"},
    "ts": {"type": "timestamp"},
    "seen": {"type": "timestamptz"},
    "u": {"type": "uuid"},
    "bin": {"type": "binary"},
    "tags": {"type": "array", "items": "string"},
    "sizes": {"type": "array", "items": "integer"},
    "labels": {"type": "map", "key_type": "string", "value_type": "string"},
    "home": {"type": "struct", "fields": {"city": {"type": "string"}, "key": {"type": "uuid"}}},
}
ROWS = [
    {
        **{"id": 1, "a": 7, "b": 40, "x": 2.5, "d": "19.90", "name": "Ann", "ok": True, "day": "2024-01-31", "u": UUID},
        **{"ts": "2024-01-31T10:00:00.5", "seen": "2024-01-31T23:30:00Z", "bin": "AP8=", "tags": ["red", "blue"]},
        **{"sizes": [1, 2], "labels": {"team": "a"}, "home": {"city": "Oslo", "key": UUID}},
    },
    {
        **{"id": 2, "a": -7, "b": 3, "x": "NaN", "d": "-0.05", "name": "it's 100%", "ok": False, "day": "2023-02-28"},
        **{"ts": "2023-02-28T00:00:00", "seen": "2023-03-01T00:00:00Z", "tags": ["red"], "sizes": [5]},
        **{"labels": {"team": "b"}, "home": {"city": ""}},
    },
    {"id": 3, "a": 1, "name": "", "ok": None, "tags": ["", None], "sizes": [None, 3], "labels": {}},
    {"id": 4},
]
# Texts that mean the same in Spark's SQL, there with its own types and casts.
SAME_IN_SPARK = [
    *("a + b * 2 - 3", "a / b", "-a % 4", "a * d", "d / 3", "(d - x) / b * 10000", "b DIV a", "1.5 + 2e1", "- a + -b"),
    *("x > 1", "x = x", "a < b OR ok", "NOT ok AND a > 0", "ok IS NULL", "a IS NOT NULL AND b IS NULL", "ok <=> NULL"),
    *("a IN (7, 1, NULL)", "a NOT IN (7, 1)", "a BETWEEN -7 AND 1", "d NOT BETWEEN 0 AND 20", "a = 7.0", "b > 3.5"),
    *("name LIKE '%n_'", "name ILIKE 'aN%'", "name RLIKE '^A.n$'", "name LIKE name", "name = 'it''s 100%'"),
    *("name || '-' || a", "name || day", "concat_ws('/', name, d, ok)", "home.city || labels.team", "name || NULL"),
    *("CASE WHEN a > 0 THEN 'more' WHEN a < 0 THEN 'less' END", "CASE name WHEN 'Ann' THEN 1 ELSE d END"),
    *("CASE WHEN ok THEN day ELSE ts END", "if(ok, a, x)", "coalesce(a, b, 0)", "greatest(a, b, d)", "least(day, ts)"),
    *("CAST(d AS integer)", "CAST(a AS string)", "CAST(ts AS date)", "CAST('1.5' AS decimal(6,2))", "CAST(ok AS int)"),
    *("TRY_CAST(name AS double)", "CAST(day AS timestamp)", "CAST(CAST(name AS binary) AS string)"),
    *("CAST(x AS string)",),
    *("day > DATE '2024-01-01'", "day <= ts", "ts < seen", "seen BETWEEN '2023-01-01' AND '2024-01-01'", "ts = seen"),
    *("day IN ('2024-01-31', '2020-01-01')", "year(day) * 100 + month(seen)", "datediff(seen, ts)", "date_add(ts, a)"),
    *("date_trunc('week', day)", "date_trunc('hour', seen)", "date_trunc('quarter', ts)", "hour(seen) + minute(ts)"),
    *("next_day(ts, 'Mon')", "date_format(ts, 'HH:mm:ss.SSS')", "unix_millis(seen)", "to_date(CAST(day AS string))"),
    *("round(d, -1)", "round(x)", "bround(d, 1)", "ceil(d)", "floor(x / 2)", "power(a, 2)", "ln(a)", "try_mod(a, 0)"),
    *("try_add(2147483647, a)", "pmod(a, 3)", "sign(d)", "isnan(x)", "nanvl(x, d)", "abs(d) + abs(x)", "sqrt(a)"),
    *("size(tags)", "array_contains(tags, 'red')", "array_contains(sizes, 5)", "element_at(tags, -1)", "sizes IS NULL"),
    *("element_at(labels, 'team')", "try_element_at(sizes, 3)", "array_max(sizes)", "size(map_keys(labels))"),
    *("md5(name)", "sha2(name, 224)", "xxhash64(a, name, d, day, ts, seen, bin, ok, x)", "hash(b)", "hex(bin)"),
    *("u = u", f"u = '{UUID}'", "upper(u)", "home.key = u", "u IN (name, home.key)", "home IS NULL", "u IS NULL"),
    *("substring(name, 2)", "left(name, 2) || right(name, 1)", "regexp_extract(name, '([0-9]+)')"),
    *("regexp_replace(name, '(.)(.)', '$2$1')", "replace(name, 'n', '')", "initcap(lower(name))", "length(name)"),
]  # fmt: skip


NOT_COMPUTED = re.compile(r"(filter\.or\[\d+\]\.expression: )?a value of a row cannot be computed: ")


def column_type(text: str) -> Any:
    """The type that holds what an expression gives, wide enough for any number."""
    schema = parse_schema({"fields": FIELDS})
    kind = parse_expression(text.replace(" int)", " integer)"), columns_of(schema), "e", InvalidRequest).kind
    if isinstance(kind, DecimalType):
        return {"type": "decimal(38,10)"}
    if isinstance(kind, Array):
        return {"type": "array", "items": str(kind.items)}
    if kind is not None and family(kind) == "text":
        return {"type": "string"}
    return {"type": str(kind or "string")}


def in_spark(text: str, kind: dict[str, Any]) -> str:
    names = {"timestamp": "timestamp_ntz", "timestamptz": "timestamp", "integer": "int"}
    if kind["type"] == "array":
        return text
    return f"CAST(({text}) AS {names.get(kind['type'], kind['type'])})"


def test_an_expression_computes_what_sparks_own_sql_does(firn: Firn, tenant: str) -> None:
    """Every function of the table is among them, each by its own example."""
    texts = [*SAME_IN_SPARK, *(function.example for function in FUNCTIONS.values())]
    kinds = [column_type(text) for text in texts]
    columns = {f"e{i}": kind for i, kind in enumerate(kinds)}
    address = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {**FIELDS, **columns}}})
    firn.ok({"operation": "WRITE", **address, "records": ROWS})
    updates = {f"e{i}": {"expression": text.replace(" int)", " integer)")} for i, text in enumerate(texts)}
    assert firn.ok({"operation": "UPDATE", **address, "updates": updates, "all": True})["records_updated"] == 4
    found = firn.rows(tenant, "t", sort=["id"])
    selected = ", ".join(f"{in_spark(text, kinds[i])} AS e{i}" for i, text in enumerate(texts))
    sql = {"operation": "QUERY", "tenant_id": tenant, "sql": f"SELECT {selected} FROM t ORDER BY id"}
    expected = firn.ok(sql)["data"]
    wrong = {
        text: ([row[f"e{i}"] for row in found], [row[f"e{i}"] for row in expected])
        for i, text in enumerate(texts)
        if [row[f"e{i}"] for row in found] != [row[f"e{i}"] for row in expected]
    }
    assert not wrong, wrong
    nowhere = [text for i, text in enumerate(texts) if all(row[f"e{i}"] is None for row in found)]
    assert nowhere == ["name || NULL", *(text for text in nowhere if text.lower().startswith(("try_", "nullif(0")))]


def test_rows_without_the_value_beside_an_expression_are_left_alone_however_many_columns_there_are(
    firn: Firn, tenant: str
) -> None:
    """Spark tests the rows of tables with more than a hundred columns by other code."""
    address = {"tenant_id": tenant, "table": "wide"}
    fields = {"id": {"type": "long"}, "zero": {"type": "integer"}, **{f"c{i}": {"type": "long"} for i in range(120)}}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": fields}})
    firn.ok({"operation": "WRITE", **address, "records": [{"id": 1, "zero": 1}, {"id": 3, "zero": 0}]})
    [row] = firn.rows(tenant, "wide", filter={"id": 1, "expression": "1 / zero = 1"})
    assert row["id"] == 1


def test_every_function_gives_what_the_documents_show(firn: Firn, people: str) -> None:
    def shows(function: Function) -> str:
        if function.result == "null":
            return f"{function.example} IS NULL"
        if function.result.startswith("["):
            return f"element_at({function.example}, 1) = '{function.result[1:-1]}'"
        return f"CAST({function.example} AS string) = '{function.result}'"

    # One query for all of them; only if one is wrong, it takes one for each to say which.
    def wrong(functions: list[Function]) -> list[str]:
        asked = {"id": 1, "and": [{"expression": shows(function)} for function in functions]}
        response = firn.post({"operation": "QUERY", "tenant_id": people, "table": "t", "filter": asked})
        if response["success"] and len(response["data"]) == 1:
            return []
        return [functions[0].name] if len(functions) == 1 else [name for one in functions for name in wrong([one])]

    assert wrong(list(FUNCTIONS.values())) == []


@pytest.fixture(scope="module")
def people(firn: Firn) -> str:
    """A tenant whose tables these tests only read."""
    tenant = "expression-reads"
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "t", "schema": {"fields": FIELDS}})
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "t", "records": ROWS})
    other = {"fields": {"id": {"type": "long"}, "limit": {"type": "double"}, "ok": {"type": "boolean"}}}
    firn.ok({"operation": "CREATE_TABLE", "tenant_id": tenant, "table": "other", "schema": other})
    limits = [{"id": 1, "limit": 3}, {"id": 2, "limit": 1, "ok": True}, {"id": 3, "limit": 0}]
    firn.ok({"operation": "WRITE", "tenant_id": tenant, "table": "other", "records": limits})
    return tenant


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"expression": "a < b"}, [1, 2]),
        ({"not": {"expression": "a < b"}}, []),
        ({"not": {"expression": "a * 2 > b"}}, [1, 2]),
        ({"expression": "b IS NULL OR a * 2 < b"}, [1, 2, 3, 4]),
        ([{"expression": "a > 0"}, {"field": "name", "operator": "eq", "value": "Ann"}], [1]),
        ({"or": [{"expression": "a = 1"}, {"id": 4}, {"expression": "ok"}]}, [1, 3, 4]),
        ({"and": [{"expression": "a = 7"}, {"not": [{"expression": "name = 'Bo'"}]}]}, [1]),
        ({"expression": "ok"}, [1]),
        ({"expression": "NOT ok"}, [2]),
        ({"expression": "ok OR NULL"}, [1]),
        ({"expression": "true"}, [1, 2, 3, 4]),
        ({"expression": "false"}, []),
        ({"expression": f"u = '{UUID}' AND home.key = u"}, [1]),
        ({"expression": "day = '2024-01-31'", "id": {"gt": 0}}, [1]),
        ({"expression": "try_divide(b, a + 7) > 1"}, [1] if 40 / 14 > 1 else []),
        ({"expression": "`name` LIKE '%''%'"}, [2]),
        ({"expression": r"name = '\' OR id = 4"}, [4]),
        ({"expression": "u IN (name, home.key)"}, [1]),
        ({"expression": "TRY_CAST(bin AS string) IS NULL AND bin IS NOT NULL"}, [1]),
        ({"expression": "CAST(CAST(name AS binary) AS string) = 'Ann'"}, [1]),
        ({"expression": "(a = 1.50) IS NULL"}, [4]),
        ({"expression": "(a = 7.0) <=> ok"}, [1, 2, 4]),
        ({"not": {"expression": "(ok AND NULL) IS NULL"}}, [2]),
        ({"expression": "coalesce(a = 1.5, b IS NULL) OR id = 2"}, [2, 4]),
        ({"expression": "CASE WHEN id > 0 THEN ok AND NULL END IS NULL"}, [1, 3, 4]),
        ({"expression": "CAST(a - 7 AS boolean) OR id = 4"}, [2, 3, 4]),
    ],
    ids=str,
)
def test_a_filter_keeps_the_rows_its_expressions_are_true_of(
    firn: Firn, people: str, asked: Any, ids: list[int]
) -> None:
    rows = firn.rows(people, "t", filter=asked, projection=["id"], sort=["id"])
    assert [row["id"] for row in rows] == ids


def test_an_expression_reads_the_columns_of_every_joined_table(firn: Firn, people: str) -> None:
    join = {"table": "other", "on": "id"}
    asked = {"expression": "x < limit AND (t.ok OR other.ok)"}
    rows = firn.rows(people, "t", join=join, filter=asked, projection=["t.id"])
    assert [row["t.id"] for row in rows] == [1]
    error = firn.fail(
        {"operation": "QUERY", "tenant_id": people, "table": "t", "join": join, "filter": {"expression": "ok"}},
        "INVALID_QUERY",
    )
    assert "is ambiguous; write t.ok or other.ok" in error["message"]


def test_having_takes_an_expression_over_the_groups(firn: Firn, people: str) -> None:
    rows = firn.rows(
        people,
        "t",
        group_by=["ok"],
        aggregations=[{"op": "sum", "field": "a"}, {"op": "count"}],
        having={"expression": "sum_a / count > 0 AND ok IS NOT NULL"},
    )
    assert rows == [{"ok": True, "sum_a": 7, "count": 1}]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("1 / (a - 7) > 0", "INVALID_QUERY", "Division by zero; divide by nullif(divisor, 0)"),
        ("CAST(name AS integer) > 0", "INVALID_QUERY", "cannot be cast to"),
        ("a + 2147483647 > 0", "INVALID_QUERY", "overflow"),
        ("CAST(b AS integer) * 100000000 > 0", "INVALID_QUERY", "overflow"),
        ("element_at(tags, 3) = 'x'", "INVALID_QUERY", "out of bounds"),
        ("name RLIKE '('", "INVALID_FILTER", "regular expression"),
        ("date_format(day, 'qqqqqq') = 'x'", "INVALID_QUERY", "pattern"),
        ("CAST(bin AS string) = 'x'", "INVALID_QUERY", "Invalid UTF8"),
        ("CAST(name AS uuid) = u", "INVALID_REQUEST", "a text is not a uuid; TRY_CAST gives null instead"),
    ],
)
def test_what_cannot_be_computed_of_a_row_is_one_clear_error(
    firn: Firn, people: str, text: str, code: str, words: str
) -> None:
    query = {"operation": "QUERY", "tenant_id": people, "table": "t", "filter": {"expression": text}}
    error = firn.fail(query, code, 400)
    assert words in error["message"]
    assert "spark." not in error["message"]


@pytest.fixture(scope="module")
def every_kind(firn: Firn) -> dict[str, Any]:
    """The table that random expressions are over."""
    address = {"tenant_id": "expression-kinds", "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": describe_schema(SCHEMA)})
    firn.ok({"operation": "WRITE", **address, "records": [{}]})
    return address


@pytest.mark.parametrize("examples", thorough_after(1, [10, 40]))
def test_spark_takes_every_expression_that_is_taken(firn: Firn, every_kind: dict[str, Any], examples: int) -> None:
    """Its analyser finds nothing wrong that the checks do not; what a value fails at is found when it is computed."""

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True)
    @given(st.lists(trees(), min_size=1, max_size=8))
    def holds(some: list[Tree]) -> None:
        asked = [{"expression": f"({written(tree, full=False)}) IS NULL"} for tree in some]
        answer = firn.post({"operation": "QUERY", **every_kind, "filter": {"or": asked}, "explain": True})
        assert answer["success"] or NOT_COMPUTED.match(answer["error"]["message"]), (asked, answer)

    holds()


@pytest.fixture
def table(firn: Firn, tenant: str) -> dict[str, Any]:
    fields = {
        "id": {"type": "long", "required": True},
        "best_bid": {"type": "double"},
        "best_ask": {"type": "double"},
        "mid_price": {"type": "double"},
        "share": {"type": "float"},
        "spread": {"type": "decimal(12,4)"},
        "kind": {"type": "string"},
        "day": {"type": "date"},
        "key": {"type": "uuid"},
    }
    address = {"tenant_id": tenant, "table": "t"}
    by_kind = {"partitions": [{"field": "kind"}, {"field": "day", "transform": "month"}]}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": fields}, "partition": by_kind})
    rows = [
        {"id": 1, "best_bid": 99, "best_ask": 101, "mid_price": 100, "kind": "a", "day": "2024-01-31", "key": UUID},
        {"id": 2, "best_bid": 5, "best_ask": 4, "mid_price": 0, "kind": "b", "day": "2024-02-01"},
        {"id": 3, "kind": "a"},
    ]
    firn.ok({"operation": "WRITE", **address, "records": rows})
    return address


def update(firn: Firn, table: dict[str, Any], updates: dict[str, Any], **which: Any) -> int:
    answer = firn.ok({"operation": "UPDATE", **table, "updates": updates, **(which or {"all": True})})
    return int(answer["records_updated"])


def column(firn: Firn, table: dict[str, Any], name: str) -> list[Any]:
    return [row[name] for row in firn.rows(table["tenant_id"], table["table"], sort=["id"])]


def test_a_column_is_computed_from_the_others_of_its_row(firn: Firn, table: dict[str, Any]) -> None:
    bps = {"spread": {"expression": "(best_ask - best_bid) / mid_price * 10000"}}
    assert update(firn, table, bps, filter={"mid_price": {"gt": 0}}) == 1
    assert column(firn, table, "spread") == ["200.0000", None, None]


def test_every_assignment_reads_the_row_as_it_was(firn: Firn, table: dict[str, Any]) -> None:
    swap = {"best_bid": {"expression": "best_ask"}, "best_ask": {"expression": "best_bid"}, "kind": "c"}
    assert update(firn, table, swap) == 3
    assert column(firn, table, "best_bid") == [101, 4, None]
    assert column(firn, table, "best_ask") == [99, 5, None]
    assert column(firn, table, "kind") == ["c"] * 3


def test_an_expression_moves_rows_between_partitions(firn: Firn, table: dict[str, Any]) -> None:
    moved = {"kind": {"expression": "CASE WHEN best_ask < best_bid THEN 'crossed' ELSE upper(kind) END"}}
    assert update(firn, table, {**moved, "day": {"expression": "add_months(day, 1)"}}) == 3
    assert column(firn, table, "kind") == ["A", "crossed", "A"]
    assert column(firn, table, "day") == ["2024-02-29", "2024-03-01", None]
    assert [row["id"] for row in firn.rows(table["tenant_id"], "t", filter={"kind": "A"}, sort=["id"])] == [1, 3]
    partitions = firn.ok({"operation": "LIST_PARTITIONS", **table})["partitions"]
    assert sum(p["records"] for p in partitions) == 3
    assert {p["partition"]["kind"] for p in partitions} == {"A", "crossed"}


def test_an_expression_sets_null(firn: Firn, table: dict[str, Any]) -> None:
    assert update(firn, table, {"best_bid": {"expression": "nullif(best_bid, 5)"}, "kind": {"expression": "NULL"}}) == 3
    assert column(firn, table, "best_bid") == [99, None, None]
    assert column(firn, table, "kind") == [None] * 3


def test_a_text_set_as_a_uuid_is_one(firn: Firn, table: dict[str, Any]) -> None:
    assert update(firn, table, {"key": {"expression": f"CAST(upper('{UUID}') AS uuid)"}}, filter={"id": 2}) == 1
    assert column(firn, table, "key") == [UUID, UUID, None]
    assert update(firn, table, {"key": {"expression": "TRY_CAST(kind AS uuid)"}}, filter={"id": 2}) == 1
    assert column(firn, table, "key") == [UUID, None, None]


TOO_LARGE = ("updates.mid_price.expression", "too large for its type")


@pytest.mark.parametrize(
    ("updates", "field", "words"),
    thorough_after(
        6,
        [
            (
                {"spread": {"expression": "1 / (mid_price - 100)"}},
                "updates.spread.expression",
                "Division by zero; divide by nullif(divisor, 0)",
            ),
            ({"spread": {"expression": "1e20"}}, "updates.spread.expression", "cannot be represented"),
            ({"spread": {"expression": "CAST(kind AS double)"}}, "updates.spread.expression", "cannot be cast"),
            ({"key": {"expression": "CAST(kind AS uuid)"}}, "updates.key.expression", "a text is not a uuid"),
            (
                {"id": {"expression": "nullif(id, 2)"}},
                "updates.id.expression",
                "null for a row, but the column is required",
            ),
            ({"id": {"expression": "coalesce(best_ask, 1) * 1e30"}}, "updates.id.expression", "overflow"),
            (
                {"day": {"expression": "date_add(day, 3000000)"}},
                "updates.day.expression",
                "outside the years 1 to 9999",
            ),
            ({"mid_price": {"expression": "best_ask * 1e308"}}, *TOO_LARGE),
            ({"mid_price": {"expression": "coalesce(mid_price, -1e308) - 1e308"}}, *TOO_LARGE),
            ({"mid_price": {"expression": "exp(best_ask * 1000)"}}, *TOO_LARGE),
            ({"share": {"expression": "1e300"}}, "updates.share.expression", "too large for its type"),
            ({"share": {"expression": "best_ask * 1e300"}}, "updates.share.expression", "too large for its type"),
            ({"kind": {"expression": "id"}}, "updates.kind.expression", "convert it with CAST(… AS string)"),
            ({"kid": {"expression": "id"}}, "updates.kid", "did you mean"),
            ({"kind": {"expression": "knd"}}, "updates.kind.expression", "did you mean 'kind'?"),
            ({"kind": {"expression": "upper("}}, "updates.kind.expression", "at character 7: expected a value"),
        ],
    ),
)
def test_an_update_that_cannot_be_computed_changes_nothing(
    firn: Firn, table: dict[str, Any], updates: dict[str, Any], field: str | None, words: str
) -> None:
    before = firn.rows(table["tenant_id"], "t", sort=["id"])
    response = firn.send({"operation": "UPDATE", **table, "updates": {"best_bid": 0, **updates}, "all": True})
    error = firn.parsed(response)["error"]
    assert (response.status_code, error.get("field")) == (400, field), error
    assert words in error["message"]
    assert firn.rows(table["tenant_id"], "t", sort=["id"]) == before


@pytest.mark.parametrize("dry_run", thorough_after(1, [False, True]))
def test_an_expression_that_fails_names_its_column_and_a_row(firn: Firn, table: dict[str, Any], dry_run: bool) -> None:
    updates = {
        "mid_price": {"expression": "mid_price + 1"},
        "spread": {"expression": "best_ask / (mid_price - 100)"},
        "kind": {"expression": "upper(kind)"},
    }
    asked = {"operation": "UPDATE", **table, "updates": updates, "filter": {"id": {"gte": 1}}, "dry_run": dry_run}
    error = firn.fail(asked, "INVALID_QUERY", 400)
    assert error["field"] == "updates.spread.expression"
    assert error["message"].startswith("updates.spread.expression: a value of a row cannot be computed: Division by")
    assert (error["details"]["column"], error["details"]["row"]["mid_price"]) == ("spread", 100)
    assert {"best_ask", "mid_price"} <= error["details"]["row"].keys()
    assert ". It fails for the row {" in error["message"]
    # What fails is the filter, not what is assigned.
    broken = {**asked, "updates": {"spread": {"expression": "best_ask * 2"}}, "filter": {"expression": "id / 0 > 1"}}
    error = firn.fail(broken, "INVALID_QUERY", 400)
    assert (error["field"], error["details"]["row"].keys()) == ("filter.expression", {"id"})


def test_what_is_computed_of_an_infinite_number_may_be_infinite(firn: Firn, table: dict[str, Any]) -> None:
    update(firn, table, {"mid_price": "-Infinity"}, filter={"id": 2})
    update(
        firn, table, {"mid_price": {"expression": "coalesce(mid_price, 0) * 2"}, "share": {"expression": "mid_price"}}
    )
    assert column(firn, table, "mid_price") == [200, "-Infinity", 0]
    assert column(firn, table, "share") == [100, "-Infinity", None]


CROSSED: list[Any] = [
    {"expression": "best_ask < best_bid"},
    [{"expression": "best_ask < best_bid"}],
    {"best_ask": {"lt": {"field": "best_bid"}}},
    [{"field": "best_ask", "operator": "lt", "value": {"field": "best_bid"}}],
]


@pytest.mark.thorough
@pytest.mark.parametrize("crossed", CROSSED, ids=str)
def test_update_and_delete_compare_columns_in_both_dialects(firn: Firn, table: dict[str, Any], crossed: Any) -> None:
    assert update(firn, table, {"kind": "crossed"}, filter=crossed) == 1
    assert column(firn, table, "kind") == ["a", "crossed", "a"]
    assert firn.ok({"operation": "DELETE", **table, "filter": crossed})["records_deleted"] == 1
    assert column(firn, table, "id") == [1, 3]


def test_an_edit_whose_expression_is_true_of_no_row_changes_nothing(firn: Firn, table: dict[str, Any]) -> None:
    for text in ("best_ask < best_ask", "false", "ln(0) > best_bid"):
        assert update(firn, table, {"kind": "x"}, filter={"expression": text}) == 0
        assert firn.ok({"operation": "DELETE", **table, "filter": {"expression": text}})["records_deleted"] == 0
    assert column(firn, table, "kind") == ["a", "b", "a"]


def test_a_compaction_refuses_an_expression_as_its_partitions(firn: Firn, table: dict[str, Any]) -> None:
    asked = {"operation": "COMPACT", **table, "partition_filter": {"expression": "kind = 'a'"}}
    assert "an expression cannot be used here" in firn.fail(asked, "INVALID_FILTER", 400)["message"]
