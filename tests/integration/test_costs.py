"""What queries pay for small files is measured, shown by RECOMMEND, and gone once they are merged."""

from typing import Any

import pytest

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog, Table
from service.engine.session.engine import Engine
from service.maintenance.advise.auto import Auto
from service.maintenance.advise.query_log import QueryLog, QuerySample
from service.model.names import TableName
from tests.harness import Firn

ARROW = "application/vnd.apache.arrow.stream"
SCHEMA = {"fields": {"id": {"type": "long"}, "country": {"type": "string"}}}
BY_COUNTRY = {"partitions": [{"field": "country", "transform": "identity"}]}


class Shop:
    """Tables of one tenant, of which every query is a sample."""

    def __init__(self, firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.firn = firn
        self.tenant = tenant
        monkeypatch.setattr(firn.app.parts[QueryLog], "due", lambda tables: True)

    def make(self, name: str, files: int = 0, **fields: Any) -> None:
        address = {"tenant_id": self.tenant, "table": name}
        self.firn.ok({"operation": "CREATE_TABLE", **address, "schema": SCHEMA, **fields})
        for i in range(files):
            country = ("at", "de", "ch")[i % 3]
            self.firn.ok({"operation": "WRITE", **address, "records": [{"id": i, "country": country}]})

    def query(self, table: str, **query: Any) -> list[dict[str, Any]]:
        return self.firn.rows(self.tenant, table, **query)

    def table(self, name: str) -> Table:
        return self.firn.app.parts[Catalog].load(TableName(self.tenant, "default", name))

    def last(self, name: str) -> QuerySample:
        return self.firn.app.parts[QueryLog].samples(self.table(name).uuid)[-1]

    def advice(self, name: str) -> dict[str, Any]:
        listed = self.firn.ok({"operation": "RECOMMEND", "tenant_id": self.tenant})["recommendations"]
        [found] = [each for each in listed if each["table"] == name]
        return dict(found)


@pytest.fixture
def shop(firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(firn, tenant, monkeypatch)


class TestMeasured:
    def test_a_sample_has_the_files_and_bytes_that_the_query_opened(self, shop: Shop) -> None:
        shop.make("t", 6, partition=BY_COUNTRY)
        answer = shop.firn.ok({"operation": "QUERY", "tenant_id": shop.tenant, "table": "t"})["metadata"]
        whole = shop.last("t")
        assert (whole.files, whole.bytes) == (answer["scanned_files"], answer["scanned_bytes"])
        assert whole.files == 6
        assert whole.manifests >= 1
        assert (whole.total_ms or 0) > whole.planning_ms > 0
        shop.query("t", filter={"country": "de"})
        assert shop.last("t").files == 2
        shop.query("t", filter={"country": "fr"})
        assert shop.last("t").files == 0
        shop.query("t", aggregations=[{"op": "count"}], group_by=["country"], filter={"country": "ch"})
        assert shop.last("t").files == 2

    def test_each_table_of_a_query_has_its_own(self, shop: Shop) -> None:
        shop.make("a", 3)
        shop.make("b", 2)
        shop.query("a", join=[{"table": "b", "on": [{"left": "a.id", "right": "b.id"}]}], projection=["a.id"])
        assert [(shop.last(t).files, shop.last(t).total_ms) for t in "ab"] == [(3, None), (2, None)]
        sql = "SELECT a.id FROM a JOIN b ON a.id = b.id WHERE a.id IN (SELECT id FROM b)"
        shop.firn.ok({"operation": "QUERY", "tenant_id": shop.tenant, "sql": sql})
        assert [(shop.last(t).files, shop.last(t).total_ms) for t in "ab"] == [(3, None), (4, None)]

    def test_sql_streams_and_times_past_are_measured_too(self, shop: Shop) -> None:
        shop.make("t", 4)
        first = shop.table("t").snapshots()[0].snapshot_id
        shop.firn.ok({"operation": "QUERY", "tenant_id": shop.tenant, "sql": "SELECT max(country) AS m FROM t"})
        assert shop.last("t").total_ms is not None
        shop.query("t", as_of=first)
        assert shop.last("t").files == 1
        before = shop.last("t")
        request = {"operation": "QUERY", "tenant_id": shop.tenant, "table": "t", "sort": ["id"]}
        streamed = shop.firn.client.post("/database", json=request, headers={"Accept": ARROW})
        assert streamed.status_code == 200
        after = shop.last("t")
        assert after is not before
        assert (after.files, after.total_ms) == (4, None)
        assert after.planning_ms > 0

    def test_what_is_only_explained_or_refused_is_not_counted(self, shop: Shop) -> None:
        shop.make("t", 1)
        shop.firn.ok({"operation": "QUERY", "tenant_id": shop.tenant, "table": "t", "explain": True})
        shop.firn.post({"operation": "QUERY", "tenant_id": shop.tenant, "table": "t", "filter": {"x": 1}})
        assert shop.firn.app.parts[QueryLog].per_hour(shop.table("t").uuid) == 0


@pytest.mark.thorough
def test_sixty_small_files_cost_queries_more_than_one_and_recommend_says_so(shop: Shop) -> None:
    shop.make("t", 60)
    shop.make("empty")
    for _ in range(6):
        assert len(shop.query("t")) == 60
    before = shop.advice("t")
    assert (before["recommended"], before["small_files"], before["files"], before["files_after"]) == (True, 60, 60, 1)
    assert before["files_opened"] == 60
    assert before["planning_ms"] > 0
    assert before["queries_per_hour"] > 5
    for figure in ("predicted_query_saving_ms", "predicted_saving_ms_per_hour", "predicted_cost_ms", "worth"):
        assert before[figure] > 0
    assert shop.advice("empty")["recommended"] is False
    shop.firn.ok({"operation": "COMPACT", "tenant_id": shop.tenant, "table": "t"})
    for _ in range(20):
        shop.query("t")
    after = shop.advice("t")
    assert (after["recommended"], after["files"], after["files_opened"]) == (False, 1, 1)
    assert after["planning_ms"] < before["planning_ms"]
    assert (after["predicted_query_saving_ms"], after["worth"]) == (0, 0)


def test_a_table_with_mode_auto_is_compacted_by_itself_and_one_with_recommend_is_not(shop: Shop) -> None:
    for name, mode in (("auto", "auto"), ("told", "recommend"), ("few", "auto")):
        properties = {"compaction": {"mode": mode}}
        shop.make(name, 2 if name == "few" else 8, properties=properties)
        for _ in range(3):
            shop.query(name)
    rows = {name: shop.query(name, sort=["id"]) for name in ("auto", "told", "few")}
    log = shop.firn.app.parts[QueryLog]
    for _ in range(500):  # a busy day
        log.answered([shop.table("auto")], None, None)
    shop.firn.app.parts[Auto].look()
    files = {name: shop.advice(name)["files"] for name in rows}
    assert files == {"auto": 1, "told": 8, "few": 2}
    assert {name: shop.query(name, sort=["id"]) for name in rows} == rows


def test_recommend_is_of_the_tenant_and_of_the_namespace_that_is_named(shop: Shop) -> None:
    shop.make("t", 3)
    other = {"tenant_id": shop.tenant, "namespace": "other", "table": "u"}
    shop.firn.ok({"operation": "CREATE_TABLE", **other, "schema": SCHEMA})

    def listed(**fields: Any) -> tuple[list[tuple[str, str]], bool]:
        answer = shop.firn.ok({"operation": "RECOMMEND", "tenant_id": shop.tenant, **fields})
        return [(r["namespace"], r["table"]) for r in answer["recommendations"]], "next_cursor" in answer

    assert listed() == ([("default", "t")], False)
    assert listed(scope="tenant") == ([("default", "t"), ("other", "u")], False)
    assert listed(scope="tenant", limit=1) == ([("default", "t")], True)
    every = {"operation": "RECOMMEND", "tenant_id": shop.tenant, "scope": "tenant", "limit": 1}
    cursor = shop.firn.ok(every)["next_cursor"]
    # The first page's table now is the least worthwhile, and is not repeated.
    shop.firn.ok({"operation": "COMPACT", "tenant_id": shop.tenant, "table": "t", "force": True})
    assert listed(scope="tenant", limit=1, cursor=cursor) == ([("other", "u")], False)
    assert listed(namespace="other") == ([("other", "u")], False)
    assert listed(namespace="nowhere") == ([], False)
    assert shop.firn.ok({"operation": "RECOMMEND", "tenant_id": f"{shop.tenant}x"})["recommendations"] == []


@pytest.mark.thorough
def test_what_was_predicted_of_a_compaction_is_compared_with_what_came_of_it(shop: Shop) -> None:
    shop.make("t", 20)
    for _ in range(6):
        shop.query("t")
    answer = shop.firn.ok({"operation": "COMPACT", "tenant_id": shop.tenant, "table": "t"})
    address = {"operation": "COMPACTION_LOG", "tenant_id": shop.tenant, "table": "t"}
    [before] = shop.firn.ok(address)["compactions"]
    predicted = before["predicted"]
    assert (predicted["files_before"], predicted["files_merged"]) == (20, 20)
    assert predicted["files_after"] == answer["stats"]["files_after"] == 1
    assert predicted["files_opened_before"] == 20
    assert predicted["query_ms_before"] > predicted["query_ms"] > 0
    assert predicted["time_ms"] > 0
    assert "actual_query_ms" not in predicted
    for _ in range(6):
        shop.query("t")
    shop.firn.app.parts[Auto].look()
    [after] = shop.firn.ok(address)["compactions"]
    assert {key: after["predicted"][key] for key in predicted} == predicted
    assert after["predicted"]["actual_files_opened"] == 1
    assert after["predicted"]["actual_query_ms"] > 0
    assert after["stats"] == before["stats"]


@pytest.mark.thorough
def test_a_compaction_nobody_asked_for_is_noted_as_one_of_auto_mode(shop: Shop) -> None:
    shop.make("t", 8)
    for _ in range(3):
        shop.query("t")
    shop.firn.ok({"operation": "SET_COMPACTION", "tenant_id": shop.tenant, "table": "t", "mode": "auto"})
    shop.firn.app.parts[Auto].look()
    noted = shop.firn.ok({"operation": "COMPACTION_LOG", "tenant_id": shop.tenant, "table": "t"})["compactions"]
    assert [(note["requested_by"], note["state"], note["predicted"]["files_after"]) for note in noted] == [
        ("auto", "done", 1)
    ]


@pytest.mark.thorough
def test_a_large_file_with_many_deleted_rows_is_recommended_until_it_is_compacted(shop: Shop) -> None:
    policy = {"small_file_threshold_mb": 1, "mode": "recommend"}
    shop.make("t", properties={"compaction": policy, "target_file_size_mb": 8})
    name, rows = shop.table("t").spark_name, 200_000

    def sql(text: str) -> None:
        shop.firn.app.parts[Engine].run(lambda session: session.sql(text).collect())

    sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, uuid() FROM range({rows})")
    sql(f"DELETE FROM {name} WHERE id % 10 = 0")
    [file] = list_files(shop.table("t")).data
    assert (file.deleted, file.rows) == (rows // 10, rows)
    assert file.bytes > 1024 * 1024
    assert (shop.advice("t")["small_files"], shop.advice("t")["recommended"]) == (0, False)
    sql(f"DELETE FROM {name} WHERE id % 10 < 3")
    advice = shop.advice("t")
    assert (advice["small_files"], advice["recommended"]) == (1, True)
    assert "1 because of their deleted rows" in advice["reason"]
    answer = shop.firn.ok({"operation": "COMPACT", "tenant_id": shop.tenant, "table": "t"})
    assert (answer["compacted"], answer["stats"]["small_files_remaining"]) == (True, 0)
    [file] = list_files(shop.table("t")).data
    assert (file.deleted, file.rows) == (0, rows * 7 // 10)
    assert not shop.advice("t")["recommended"]
