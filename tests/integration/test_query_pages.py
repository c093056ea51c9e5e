"""QUERY's pages: together they are exactly the rows of the pinned snapshots, whatever changes in between."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from service.model import wire
from tests.harness import Firn
from tests.support.marks import thorough_except
from tests.support.tables import ServedTable

FIELDS = {
    "n": {"type": "integer"},
    "x": {"type": "double"},
    "s": {"type": "string"},
    "d": {"type": "decimal(10,2)"},
    "m": {"type": "map", "key_type": "string", "value_type": "long"},
}
CITIES = ("Oslo", "Rome", "Zürich", None)


class Shop:
    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn, self.tenant = firn, tenant
        self.luck = random.Random(14)

    def ok(self, operation: str, table: str = "t", **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, "tenant_id": self.tenant, "table": table, **fields})

    def write(self, rows: int, table: str = "t") -> None:
        self.ok("WRITE", table, records=[self.row() for _ in range(rows)])

    def row(self) -> dict[str, Any]:
        pick = self.luck.choice
        return {
            "n": pick((None, 1, 1, 2, 3)),
            "x": pick((None, "NaN", "Infinity", 0.0, -0.0, 1.5)),
            "s": pick(CITIES),
            "d": pick((None, "0.00", "1.10", "-7.25")),
            "m": pick((None, {}, {"a": 1}, {"a": 1, "b": 2})),
        }

    def query(self, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": "QUERY", "tenant_id": self.tenant, **fields})

    def pages(self, limit: int, **fields: Any) -> Iterator[list[dict[str, Any]]]:
        page = self.query(limit=limit, **fields)
        while True:
            yield page["data"]
            assert page["metadata"]["has_more"] == ("next_cursor" in page), page
            if "next_cursor" not in page:
                return
            assert len(page["data"]) == limit
            limit = self.luck.randrange(1, 9)
            page = self.query(limit=limit, cursor=page["next_cursor"], **fields)


@pytest.fixture(scope="module")
def shop(firn: Firn) -> Shop:
    made = Shop(firn, "pages")
    for table in ("t", "u"):
        made.ok("CREATE_TABLE", table, schema={"fields": FIELDS})
    for rows in (7, 1, 12, 5, 9):
        made.write(rows)
    made.write(6, "u")
    return made


def bag(rows: list[dict[str, Any]]) -> Counter[bytes]:
    return Counter(map(wire.render, rows))


T = {"table": "t"}
QUERIES: list[dict[str, Any]] = [
    T,
    {**T, "offset": 9},
    {**T, "projection": ["s"]},
    {**T, "filter": {"n": 1}},
    {**T, "filter": {"x": {"gte": 0}}, "offset": 2},
    {**T, "filter": {"n": 99}},
    {**T, "sort": ["n"]},
    {**T, "sort": [{"field": "x", "order": "desc"}, "s"], "projection": ["s", "d"]},
    {**T, "sort": [{"field": "x", "nulls_first": False}], "offset": 3},
    {**T, "distinct": True, "projection": ["n", "x", "s"]},
    {**T, "distinct": True, "projection": ["x", "s"], "sort": ["s"]},
    {**T, "group_by": ["x", "s"], "aggregations": [{"op": "count"}, {"op": "sum", "field": "x"}]},
    {
        **T,
        "group_by": ["n", "s", "x"],
        "aggregations": [{"op": "count", "alias": "c"}],
        "projection": ["s"],
        "sort": ["c"],
    },
    {
        **T,
        "group_by": ["s", "x"],
        "aggregations": [{"op": "sum", "field": "d", "alias": "d"}],
        "having": {"d": {"gt": -99}},
    },
    {**T, "group_by": ["n", "s"], "aggregations": [{"op": "count"}], "projection": ["s"], "distinct": True},
    {**T, "join": {"table": "u", "on": "n", "type": "left"}, "projection": ["t.s", "u.s", "t.x"]},
    {**T, "join": {"table": "u", "on": "n", "type": "full"}, "sort": ["t.s"], "projection": ["t.s", "u.x"]},
    {**T, "join": {"table": "t", "alias": "o", "on": "n"}, "projection": ["t.s", "o.d"], "filter": {"t.n": 2}},
    {"sql": "SELECT n, x, s FROM t"},
    {"sql": "SELECT s FROM t ORDER BY x DESC"},
    {"sql": "SELECT s, n FROM t ORDER BY n LIMIT 17 OFFSET 3"},
    {"sql": "WITH q AS (SELECT n, s FROM t WHERE n IS NOT NULL) SELECT * FROM q ORDER BY s"},
    {"sql": "SELECT t.s, u.n, avg(u.n) AS a FROM t JOIN u ON t.n = u.n GROUP BY 1, 2"},
    {"sql": "SELECT DISTINCT s, x FROM t WHERE n > :n", "params": {"n": 0}},
]

# One of each kind: the table as it is, sorted, distinct, grouped, joined, and SQL without and with an order.
IN_EVERY_RUN = [QUERIES[n] for n in (0, 7, 9, 12, 17, 18, 19, 20)]


@pytest.mark.parametrize("query", thorough_except(IN_EVERY_RUN, QUERIES), ids=str)
def test_pages_together_are_the_whole_result_while_the_tables_change(shop: Shop, query: dict[str, Any]) -> None:
    whole = shop.query(**query, limit=100_000)
    assert "next_cursor" not in whole
    every = shop.query(**{**query, "offset": 0}, limit=100_000)["data"] if "offset" in query else whole["data"]
    found: list[dict[str, Any]] = []
    for i, page in enumerate(shop.pages(1 + len(whole["data"]) // 5, **query)):
        found += page
        if i == 0:
            shop.write(2)
            shop.write(1, "u")
        elif i == 1:
            shop.ok("DELETE", filter={"s": "Rome", "n": 3})
            shop.ok("COMPACT", force=True)
    # Which of the rows without an order an offset leaves out is open, but not that the others are there, each once.
    assert (len(found), bag(found) - bag(every)) == (len(whole["data"]), Counter())
    keys = [item if isinstance(item, str) else item["field"] for item in query.get("sort", [])]
    names = [key for key in keys if all(key in row for row in found)]
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in whole["data"]]


def test_a_page_that_ends_with_the_last_row_is_the_last(shop: Shop) -> None:
    rows = len(shop.query(**T, limit=100_000)["data"])
    page = shop.query(**T, limit=rows)
    assert (len(page["data"]), page["metadata"]["has_more"], "next_cursor" in page) == (rows, False, False)


def test_pages_of_a_past_state_stay_in_it(shop: Shop) -> None:
    snapshot = shop.query(**T)["metadata"]["snapshot_id"]
    whole = shop.query(**T, as_of=snapshot, limit=100_000)["data"]
    shop.write(3)
    assert bag([row for page in shop.pages(10, **T, as_of=snapshot) for row in page]) == bag(whole)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM (SELECT n FROM t LIMIT 20)",
        "SELECT n, rand() AS r FROM t",
        "SELECT n, now() AS r FROM t",
        "SELECT n, row_number() OVER (ORDER BY n) AS r FROM t",
        "SELECT s, n, x, first(d) AS f FROM t GROUP BY 1, 2, 3",
        "SELECT s, n, x, sum(x) AS f FROM t GROUP BY 1, 2, 3",
        "SELECT m FROM t",
    ],
)
def test_a_select_whose_rows_could_differ_from_run_to_run_has_no_cursor(shop: Shop, sql: str) -> None:
    answer = shop.query(sql=sql, limit=3)
    assert (answer["metadata"]["has_more"], "next_cursor" in answer) == (True, False)


def test_a_sort_by_sums_of_fractions_has_no_cursor(shop: Shop) -> None:
    groups = {**T, "group_by": ["s", "n"], "aggregations": [{"op": "avg", "field": "x", "alias": "a"}]}
    assert "next_cursor" not in shop.query(**groups, sort=["a"], limit=2)
    assert "next_cursor" not in shop.query(**groups, having={"a": {"lt": 10}}, limit=1)
    assert "next_cursor" in shop.query(**groups, sort=["s"], limit=2)


def refused(shop: Shop, code: str, **fields: Any) -> dict[str, Any]:
    error = shop.firn.fail({"operation": "QUERY", "tenant_id": shop.tenant, **fields}, code)
    assert error["field"] == "cursor"
    return error


def test_a_cursor_of_another_request_or_a_damaged_one_is_refused(shop: Shop) -> None:
    cursor = shop.query(**T, limit=2)["next_cursor"]
    assert len(shop.query(**T, limit=3, cursor=cursor)["data"]) == 3
    other = refused(shop, "INVALID_REQUEST", **T, sort=["n"], cursor=cursor)
    assert "another request" in other["message"]
    refused(shop, "INVALID_REQUEST", table="u", cursor=cursor)
    refused(shop, "INVALID_REQUEST", **T, cursor=cursor[:-1])
    refused(shop, "INVALID_REQUEST", **T, cursor="nonsense")


def test_a_stream_has_no_pages(shop: Shop) -> None:
    cursor = shop.query(**T, limit=2)["next_cursor"]
    request = {"operation": "QUERY", "tenant_id": shop.tenant, **T, "limit": 2, "cursor": cursor}
    response = shop.firn.client.post("/database", content=wire.render(request), headers={"Accept": "text/csv"})
    assert (response.status_code, response.json()["error"]["field"]) == (400, "cursor")


def test_a_cursor_whose_snapshot_has_expired_says_to_start_again(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.ok("CREATE_TABLE", schema={"fields": FIELDS})
    shop.write(5)
    for query in (T, {**T, "sort": ["n"]}, {"sql": "SELECT n FROM t"}):
        cursor = shop.query(**query, limit=2)["next_cursor"]
        shop.write(1)
        shop.ok("COMPACT", force=True, snapshot_retention_hours=0)
        error = refused(shop, "SNAPSHOT_NOT_FOUND", **query, limit=2, cursor=cursor)
        assert "send the request without cursor to start again" in error["message"]
    cursor = shop.query(**T, limit=2)["next_cursor"]
    shop.ok("DROP_TABLE", confirm=True, purge=True)
    shop.ok("CREATE_TABLE", schema={"fields": FIELDS})
    refused(shop, "SNAPSHOT_NOT_FOUND", **T, limit=2, cursor=cursor)


def test_pages_go_on_where_a_column_was_added_after_the_last_write(firn: Firn, tenant: str) -> None:
    shop = Shop(firn, tenant)
    shop.ok("CREATE_TABLE", schema={"fields": FIELDS})
    shop.write(4)
    shop.write(4)
    shop.ok("ALTER_TABLE", add_columns={"later": {"type": "string"}})
    whole = shop.query(**T, limit=100)["data"]
    assert {"later"} <= whole[0].keys()
    assert bag([row for page in shop.pages(3, **T) for row in page]) == bag(whole)
    cursor = shop.query(**T, limit=2)["next_cursor"]
    shop.write(1)
    refused(shop, "SNAPSHOT_NOT_FOUND", **T, limit=2, cursor=cursor)


def test_rows_that_another_engine_deleted_are_on_no_page(firn: Firn, tenant: str) -> None:
    shop = ServedTable(firn, tenant, schema={"fields": {"id": {"type": "long"}}})
    shop.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    for start in (0, 10, 20):
        shop.ok("WRITE", records=[{"id": i} for i in range(start, start + 10)])
    shop.sql("DELETE FROM {t} WHERE id % 3 = 1")
    assert shop.sql("SELECT * FROM {t}.delete_files"), "nothing to test"
    found = Shop(firn, tenant).pages(4, table="t")
    assert sorted(row["id"] for page in found for row in page) == [i for i in range(30) if i % 3 != 1]


class TestBySize:
    """A response takes 6 MB at most; what is beyond is the next page."""

    ROWS = 40

    @pytest.fixture(scope="class")
    def shop(self, firn: Firn) -> Shop:
        shop = Shop(firn, "pagesbysize")
        shop.ok("CREATE_TABLE", schema={"fields": {"id": {"type": "long"}, "t": {"type": "string"}}})
        # Half of it are quotes, which take two bytes inside the JSON of an event.
        for half in range(2):
            ids = range(half * self.ROWS // 2, (half + 1) * self.ROWS // 2)
            shop.ok("WRITE", records=[{"id": i, "t": 'x"' * 60_000} for i in ids])
        return shop

    @pytest.mark.parametrize("query", [{"table": "t"}, {"sql": "SELECT * FROM t"}, {"table": "t", "sort": ["id"]}])
    def test_pages_are_cut_between_rows_and_together_all_of_them(self, shop: Shop, query: dict[str, Any]) -> None:
        found, cursor = [], {}
        for _ in range(self.ROWS):
            sent = {"operation": "QUERY", "tenant_id": shop.tenant, "limit": 1000, **query, **cursor}
            response = shop.firn.send(sent)
            body = shop.firn.parsed(response)
            assert len(response.content) <= shop.firn.app.settings.limits.response_bytes, body.get("error")
            found += [row["id"] for row in body["data"]]
            assert body["metadata"]["row_count"] == len(body["data"]) > 0
            assert body["metadata"]["has_more"] == ("next_cursor" in body)
            if "next_cursor" not in body:
                break
            cursor = {"cursor": body["next_cursor"]}
        assert sorted(found) == list(range(self.ROWS))

    def test_an_event_counts_what_its_quotes_take(self, shop: Shop) -> None:
        request = {"operation": "QUERY", "tenant_id": shop.tenant, "table": "t", "limit": 1000}
        event = {"httpMethod": "POST", "path": "/database", "body": wire.render(request).decode()}
        answer = shop.firn.event(event)
        assert answer["statusCode"] == 200
        assert len(wire.render(answer)) <= shop.firn.app.settings.limits.response_bytes
        body = wire.parse(answer["body"])
        assert body["metadata"]["has_more"]
        assert "next_cursor" in body

    def test_rows_without_an_order_are_refused_with_the_way_out(self, shop: Shop) -> None:
        request = {"operation": "QUERY", "tenant_id": shop.tenant, "sql": "SELECT *, rand() AS r FROM t"}
        error = shop.firn.fail(request, "RESPONSE_TOO_LARGE", 422)
        assert "Arrow" in error["message"]
        assert error["field"] == "limit"


def test_a_page_of_a_longer_table_takes_one_job_and_one_of_a_shorter_one_does_too(shop: Shop) -> None:
    """Some queries are measured, and take one more."""

    def jobs() -> int:
        return int(shop.firn.app.engine.run(lambda s: s._jsparkSession.sparkContext().dagScheduler().numTotalJobs()))

    for limit, has_more in ((3, True), (100, False)):
        counted = []
        for _ in range(3):
            before = jobs()
            assert shop.query(table="t", limit=limit)["metadata"]["has_more"] == has_more
            counted.append(jobs() - before)
        assert min(counted) == 1, counted
