"""Spark's sessions serve all tenants in turns, and share nothing."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.harness import Firn

SETTING = "spark.sql.shuffle.partitions"


def test_sessions_share_no_setting_and_no_view(firn: Firn) -> None:
    with firn.app.engine.lend() as one, firn.app.engine.lend() as other:
        before = one.conf.get(SETTING)
        one.conf.set(SETTING, "77")
        one.range(3).createOrReplaceTempView("private")
        try:
            assert other.conf.get(SETTING) == before != "77"
            assert not other.catalog.tableExists("private")
        finally:
            one.conf.set(SETTING, str(before))
            one.catalog.dropTempView("private")


def test_a_query_leaves_its_session_as_it_found_it(firn: Firn, tenant: str) -> None:
    """No setting that differs between queries, no view under a name of a request, nothing cached."""
    address = {"tenant_id": tenant, "table": "t"}
    firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"id": {"type": "long"}}}})
    firn.ok({"operation": "WRITE", **address, "records": [{"id": i} for i in range(10)]})
    for _ in range(8):
        assert firn.ok({"operation": "QUERY", "tenant_id": tenant, "sql": "SELECT max(id) AS m FROM t"})["data"]
    found: list[list[str]] = []

    def look(session: Any) -> None:
        found.append([view.name for view in session.catalog.listTables() if not view.name.startswith("_firn_")])
        assert session._jsparkSession.sharedState().cacheManager().isEmpty()

    firn.app.engine.run_on_all(look)
    assert found
    assert not any(found)


def test_tenants_with_tables_of_the_same_name_get_their_own_rows(firn: Firn, tenant: str) -> None:
    """Whichever session serves them, and whatever it has served before."""
    tenants = [f"{tenant}-{letter}" for letter in "abc"]
    for name in tenants:
        address = {"tenant_id": name, "table": "same"}
        firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"v": {"type": "string"}}}})
        firn.ok({"operation": "WRITE", **address, "records": [{"v": name}]})

    def ask(name: str) -> list[dict[str, Any]]:
        request = {"operation": "QUERY", "tenant_id": name, "sql": "SELECT v FROM same"}
        data: list[dict[str, Any]] = Firn(firn.base_url).ok(request)["data"]
        return data

    asked = tenants * 6
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, asked)) == [[{"v": name}] for name in asked]
