"""Dynamic tables by request, as far as they need no Spark: listed, described, altered, dropped, and kept from edits."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.app import App
from service.dynamic.reads import DynamicReads
from service.ledger.dynamic_cursors import Cursors
from service.ledger.dynamic_tables import DynamicTableRecords
from service.model.dynamic.definition import DynamicOptions, check_built
from service.model.times import now_ms
from tests.harness import Firn, wait_until
from tests.support.dynamic import Declared, refreshed
from tests.support.refreshing import add_rows
from tests.support.served import served


@pytest.fixture(scope="module")
def firn(app: App) -> Iterator[Firn]:
    with served(app) as firn:
        yield firn


class Shop(Declared):
    """Two base tables, a dynamic table over both, and one over that."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        assert firn.app is not None
        super().__init__(firn.app, tenant)
        self.firn = firn
        for name in ("orders", "customers"):
            self.base(name)
        self.dynamic("details", "orders", "customers", classes=("inner join",))
        self.dynamic("totals", "details", options=DynamicOptions(None, scheduled=False), full_code="LIMIT")

    def request(self, operation: str, table: str | None = "details", **fields: Any) -> dict[str, Any]:
        address = {} if table is None else {"table": table}
        return {"operation": operation, "tenant_id": self.tenant, **address, **fields}

    def ok(self, operation: str, table: str | None = "details", **fields: Any) -> dict[str, Any]:
        return self.firn.ok(self.request(operation, table, **fields))

    def fail(self, code: str, operation: str, table: str | None = "details", **fields: Any) -> dict[str, Any]:
        return self.firn.fail(self.request(operation, table, **fields), code)

    @property
    def records(self) -> DynamicTableRecords:
        return self.definitions.records

    def refresh(self, name: str, number: int, **parts: Any) -> None:
        self.records.put_refresh(refreshed(self.definitions.of(self.load(name)), number, **parts))


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def test_a_list_has_each_table_with_its_options_and_sources(shop: Shop) -> None:
    shop.refresh("details", 1, mode="FULL")
    [details, totals] = shop.ok("LIST_DYNAMIC_TABLES", None)["dynamic_tables"]
    assert details["table"] == "details"
    assert (details["target_lag"], details["scheduler"], details["state"]) == ("5 minutes", "ENABLED", "active")
    assert details["sources"] == [
        {"namespace": "default", "table": "orders"},
        {"namespace": "default", "table": "customers"},
    ]
    assert details["last_mode"] == "FULL"
    assert (totals["target_lag"], totals["scheduler"], totals["incremental"]) == ("downstream", "DISABLED", False)
    assert "lag_ms" not in totals


def test_a_list_is_of_a_state_and_a_scope_and_goes_on_after_its_cursor(shop: Shop) -> None:
    shop.dynamic("far.away", "orders")
    shop.ok("ALTER_DYNAMIC_TABLE", "totals", suspend=True)
    listed = shop.ok("LIST_DYNAMIC_TABLES", None, scope="tenant", limit=2)
    assert [one["table"] for one in listed["dynamic_tables"]] == ["details", "totals"]
    rest = shop.ok("LIST_DYNAMIC_TABLES", None, scope="tenant", limit=2, cursor=listed["next_cursor"])
    assert [one["namespace"] for one in rest["dynamic_tables"]] == ["far"]
    assert "next_cursor" not in rest
    suspended = shop.ok("LIST_DYNAMIC_TABLES", None, state="suspended")["dynamic_tables"]
    assert [one["table"] for one in suspended] == ["totals"]


def test_a_description_has_definition_sources_dependents_and_refreshes(shop: Shop) -> None:
    for number in range(1, 4):
        shop.refresh("details", number, details={"lag_ms": 500 * number})
    found = shop.ok("DESCRIBE_DYNAMIC_TABLE", refreshes=2)["dynamic_table"]
    assert found["query"] == "SELECT * FROM orders JOIN customers"
    assert found["classes"] == ["inner join"]
    assert [(one["table"], one["is_base"], one["exists"]) for one in found["sources"]] == [
        ("orders", True, True),
        ("customers", True, True),
    ]
    assert found["dependents"] == [{"namespace": "default", "table": "totals"}]
    assert [one["refresh_id"] for one in found["refreshes"]] == ["details-3", "details-2"]
    assert [one["lag_ms"] for one in found["refreshes"]] == [1500, 1000]
    assert found["lag_p95_ms"] == 1500
    assert set(found["schema"]["fields"]) == {"id", "note"}


def test_the_lag_is_the_age_of_the_oldest_change_that_is_missing(shop: Shop) -> None:
    details, orders = shop.load("details"), shop.load("orders")
    shop.firn.app.parts[DynamicReads].cursors.put(details.uuid, Cursors("pass", {orders.uuid: None}), {orders.uuid})
    shop.records.refreshed(details.uuid, now_ms() - 60_000)

    def lags() -> list[int]:
        listed = shop.ok("LIST_DYNAMIC_TABLES", None)["dynamic_tables"]
        return [listed[0]["lag_ms"], shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["lag_ms"]]

    assert lags() == [0, 0]  # however long ago the refresh was
    add_rows(orders, 1)
    wait_until(lambda: min(lags()) > 0, 20)


def test_a_description_says_why_a_query_is_not_incremental(shop: Shop) -> None:
    found = shop.ok("DESCRIBE_DYNAMIC_TABLE", "totals")["dynamic_table"]
    assert found["not_incremental"]["code"] == "LIMIT"
    assert [(one["table"], one["is_base"]) for one in found["sources"]] == [("details", False)]


def test_a_table_that_its_creation_has_not_built_yet_cannot_be_read(shop: Shop) -> None:
    refused = shop.fail("TABLE_NOT_BUILT", "QUERY")
    assert "REFRESH_DYNAMIC_TABLE" in refused["message"]
    check_built(shop.load("details").properties, "details", snapshot_id=1)
    on_schedule = shop.dynamic("later", "orders", options=DynamicOptions(300, initialise="ON_SCHEDULE"))
    check_built(on_schedule.properties, "later", None)


def test_dynamic_tables_are_marked_among_all_tables(shop: Shop) -> None:
    listed = shop.ok("LIST_TABLES", None, details=True)
    assert listed["tables"] == ["customers", "details", "orders", "totals"]
    assert listed["dynamic"] == ["details", "totals"]
    assert [one["table"] for one in listed["details"] if one["dynamic"]] == listed["dynamic"]
    assert shop.ok("LIST_TABLES", None, limit=2)["dynamic"] == ["details"]
    marks = [shop.ok("DESCRIBE_TABLE", name)["description"]["dynamic"] for name in ("orders", "details")]
    assert marks == [False, True]


def test_name_is_another_word_for_table(shop: Shop) -> None:
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE", None, name="totals")["dynamic_table"]["table"] == "totals"
    refused = shop.fail("INVALID_REQUEST", "DESCRIBE_DYNAMIC_TABLE", "details", name="totals")
    assert refused["field"] == "name"


def test_a_table_that_is_not_dynamic_is_refused(shop: Shop) -> None:
    for operation in ("DESCRIBE_DYNAMIC_TABLE", "DROP_DYNAMIC_TABLE"):
        assert "is not a dynamic table" in shop.fail("INVALID_REQUEST", operation, "orders")["message"]
    refused = shop.fail("INVALID_REQUEST", "ALTER_DYNAMIC_TABLE", "orders", suspend=True)
    assert "is not a dynamic table" in refused["message"]
    shop.fail("TABLE_NOT_FOUND", "DESCRIBE_DYNAMIC_TABLE", "nowhere")


def test_a_definition_that_only_the_table_has_is_completed(shop: Shop) -> None:
    table = shop.dynamic("half", "orders", register=False)
    assert shop.records.find(table.uuid) is None
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE", "half")["dynamic_table"]["target_lag"] == "5 minutes"
    assert shop.records.find(table.uuid) is not None


def test_a_target_lag_is_changed_in_the_table_and_in_the_ledger(shop: Shop) -> None:
    altered = shop.ok("ALTER_DYNAMIC_TABLE", target_lag="1 hour", scheduler="DISABLED")
    assert (altered["target_lag"], altered["scheduler"], altered["state"]) == ("1 hour", "DISABLED", "active")
    known = shop.records.find(shop.load("details").uuid)
    assert known is not None
    assert (known.definition.options.target_lag_s, known.definition.options.scheduled) == (3600, False)
    assert shop.definitions.of(shop.load("details")) == known


def test_a_suspended_table_is_resumed(shop: Shop) -> None:
    suspended = shop.ok("ALTER_DYNAMIC_TABLE", suspend=True, reason="for the migration")
    assert (suspended["state"], suspended["reason"]) == ("suspended", "for the migration")
    resumed = shop.ok("ALTER_DYNAMIC_TABLE", resume=True)
    assert (resumed["state"], "reason" in resumed) == ("active", False)


def test_a_failed_table_is_resumed_and_its_failures_are_forgotten(shop: Shop) -> None:
    uuid = shop.load("details").uuid
    shop.records.failed(uuid, "it divides by zero", None, state="failed")
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["state"] == "failed"
    assert shop.ok("ALTER_DYNAMIC_TABLE", resume=True)["state"] == "active"
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["failures"] == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, None),
        ({"suspend": True, "resume": True}, "resume"),
        ({"target_lag": "1 hour", "reason": "so"}, "reason"),
        ({"target_lag": "often"}, "target_lag"),
        ({"target_lag": "0 seconds"}, "target_lag"),
        ({"scheduler": "SOMETIMES"}, "scheduler"),
    ],
)
def test_an_alteration_that_makes_no_sense_is_refused(shop: Shop, fields: dict[str, Any], field: str | None) -> None:
    assert shop.fail("INVALID_REQUEST", "ALTER_DYNAMIC_TABLE", **fields).get("field") == field


def test_a_repeated_alteration_with_its_key_takes_effect_once(shop: Shop) -> None:
    first = shop.ok("ALTER_DYNAMIC_TABLE", suspend=True, idempotency_key="once")
    shop.ok("ALTER_DYNAMIC_TABLE", resume=True)
    assert shop.ok("ALTER_DYNAMIC_TABLE", suspend=True, idempotency_key="once") == first
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["state"] == "active"


def test_a_dynamic_table_that_others_read_is_not_dropped(shop: Shop) -> None:
    refused = shop.fail("TABLE_IN_USE", "DROP_DYNAMIC_TABLE")
    assert "totals" in refused["message"]
    assert refused["details"] == {"dynamic_tables": ["totals"]}
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["table"] == "details"


def test_a_cascade_drops_those_that_depend_on_it_first_and_they_can_be_restored(shop: Shop) -> None:
    shop.dynamic("top", "totals", "customers")
    dropped = shop.ok("DROP_DYNAMIC_TABLE", cascade=True)
    assert [one["table"] for one in dropped["dropped"]] == ["top", "totals"]
    assert shop.ok("LIST_DYNAMIC_TABLES", None)["dynamic_tables"] == []
    for name in ("details", "totals"):
        shop.ok("RESTORE_TABLE", name)
    assert [one["table"] for one in shop.ok("LIST_DYNAMIC_TABLES", None)["dynamic_tables"]] == ["details", "totals"]


def test_dropping_what_does_not_exist_is_refused_unless_that_is_all_right(shop: Shop) -> None:
    shop.fail("TABLE_NOT_FOUND", "DROP_DYNAMIC_TABLE", "nowhere")
    dropped = shop.ok("DROP_DYNAMIC_TABLE", "nowhere", if_exists=True)
    assert (dropped["table_dropped"], dropped["table_existed"], dropped["dropped"]) == (False, False, [])


def test_a_drop_with_its_key_is_answered_again(shop: Shop) -> None:
    first = shop.ok("DROP_DYNAMIC_TABLE", "totals", idempotency_key="once")
    assert shop.ok("DROP_DYNAMIC_TABLE", "totals", idempotency_key="once") == first


def test_a_purge_needs_its_confirmation_and_leaves_no_definition(shop: Shop) -> None:
    shop.fail("CONFIRMATION_REQUIRED", "DROP_DYNAMIC_TABLE", "totals", purge=True)
    uuid = shop.load("totals").uuid
    assert shop.ok("DROP_DYNAMIC_TABLE", "totals", purge=True, confirm=True)["purged"]
    assert shop.records.find(uuid) is None


def test_a_source_is_dropped_only_by_who_knows_that_it_is_read(shop: Shop) -> None:
    refused = shop.fail("TABLE_IN_USE", "DROP_TABLE", "orders")
    assert "details" in refused["message"]
    shop.fail("TABLE_IN_USE", "DROP_TABLE", "orders", purge=True, confirm=True)
    assert shop.ok("DROP_TABLE", "orders", confirm=True)["table_dropped"]
    [orders, customers] = shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["sources"]
    assert (orders["exists"], customers["exists"]) == (False, True)


def test_a_dynamic_table_is_not_dropped_as_another_table(shop: Shop) -> None:
    assert "DROP_DYNAMIC_TABLE" in shop.fail("INVALID_REQUEST", "DROP_TABLE", "totals", confirm=True)["message"]


def test_a_renamed_source_and_a_renamed_dynamic_table_are_followed(shop: Shop) -> None:
    shop.ok("RENAME_TABLE", "orders", new_name="purchases")
    shop.ok("RENAME_TABLE", "details", new_name="facts")
    found = shop.ok("DESCRIBE_DYNAMIC_TABLE", "facts")["dynamic_table"]
    assert (found["sources"][0]["table"], found["sources"][0]["name_in_query"]) == ("purchases", "orders")
    assert [one["table"] for one in found["dependents"]] == ["totals"]


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("WRITE", {"records": [{"id": 1}]}),
        ("UPDATE", {"updates": {"note": "x"}, "all": True}),
        ("UPDATE", {"updates": {"note": "x"}, "filter": {"id": 1}, "dry_run": True}),
        ("DELETE", {"filter": {"id": 1}}),
        ("UPSERT", {"records": [{"id": 1}], "key_cols": ["id"]}),
        ("DEDUPLICATE", {"key_cols": ["id"]}),
        ("UNDO", {"request_id": "r"}),
        ("ROLLBACK", {"as_of": 1}),
        ("RESTORE_BACKUP", {"name": "b"}),
        ("REINITIALISE_TABLE", {"confirm": True}),
        ("ALTER_TABLE", {"add_columns": {"more": {"type": "long"}}}),
        ("ALTER_TABLE", {"drop_columns": ["note"]}),
        ("REPARTITION", {"partition": {"partitions": []}, "target_table": "copy", "delete_source": True}),
    ],
)
def test_what_would_change_its_rows_or_columns_is_refused(shop: Shop, operation: str, fields: dict[str, Any]) -> None:
    message = shop.fail("INVALID_REQUEST", operation, **fields)["message"]
    assert "is a dynamic table" in message
    assert "CREATE_DYNAMIC_TABLE" in message


def test_its_description_and_policy_can_be_changed(shop: Shop) -> None:
    shop.ok("ALTER_TABLE", description="one row per order")
    shop.ok("SET_COMPACTION", mode="auto")
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE")["dynamic_table"]["query"] == "SELECT * FROM orders JOIN customers"


def test_refreshes_are_listed_by_table_state_and_time(shop: Shop) -> None:
    for number in (1, 2):
        shop.refresh("details", number)
        shop.refresh("totals", number, state="failed", error_code="INVALID_QUERY", error="it divides by zero")
    every = shop.ok("REFRESH_HISTORY", None)["refreshes"]
    assert len(every) == 4
    failed = shop.ok("REFRESH_HISTORY", None, state="failed", limit=1)
    [entry] = failed["refreshes"]
    assert entry["error"] == {"code": "INVALID_QUERY", "message": "it divides by zero"}
    more = shop.ok("REFRESH_HISTORY", None, state="failed", limit=1, cursor=failed["next_cursor"])
    assert [one["refresh_id"] for one in more["refreshes"]] == ["totals-1"]
    assert {one["table"] for one in shop.ok("REFRESH_HISTORY", "details")["refreshes"]} == {"details"}
    later = shop.ok("REFRESH_HISTORY", None, since="1970-01-01T00:00:02Z")["refreshes"]
    assert {one["pass_id"] for one in later} == {"pass-2"}
    assert {one["table"] for one in shop.ok("REFRESH_HISTORY", None, pass_id="pass-1")["refreshes"]} == {
        "details",
        "totals",
    }


def test_the_history_of_a_table_that_does_not_exist_is_refused(shop: Shop) -> None:
    assert shop.ok("REFRESH_HISTORY", "totals")["refreshes"] == []
    shop.fail("TABLE_NOT_FOUND", "REFRESH_HISTORY", "nowhere")
    assert "is not a dynamic table" in shop.fail("INVALID_REQUEST", "REFRESH_HISTORY", "orders")["message"]
    assert shop.fail("INVALID_REQUEST", "REFRESH_HISTORY", since="yesterday")["field"] == "since"


class Resources:
    """`/dynamic-tables` of a tenant."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.client = shop, shop.firn.client

    def send(self, method: str, path: str = "", body: Any = None, **parameters: str) -> tuple[int, dict[str, Any]]:
        parameters = {"tenant_id": self.shop.tenant, **parameters}
        sent = self.client.request(method, f"/dynamic-tables{path}", params=parameters, json=body)
        return sent.status_code, self.shop.firn.parsed(sent)


@pytest.fixture
def resources(shop: Shop) -> Resources:
    return Resources(shop)


def test_the_resources_are_the_same_as_the_operations(shop: Shop, resources: Resources) -> None:
    shop.refresh("details", 1)
    status, listed = resources.send("GET", limit="1")
    assert status == 200
    assert [one["table"] for one in listed["dynamic_tables"]] == ["details"]
    status, rest = resources.send("GET", limit="1", cursor=listed["next_cursor"])
    assert [one["table"] for one in rest["dynamic_tables"]] == ["totals"]
    status, found = resources.send("GET", "/details", refreshes="0")
    assert (status, found["dynamic_table"]["table"], found["dynamic_table"]["refreshes"]) == (200, "details", [])
    status, history = resources.send("GET", "/details/history")
    assert (status, len(history["refreshes"])) == (200, 1)
    status, altered = resources.send("PATCH", "/details", {"target_lag": "1 day"})
    assert (status, altered["target_lag"]) == (200, "1 day")
    status, refused = resources.send("DELETE", "/details")
    assert (status, refused["error"]["code"]) == (409, "TABLE_IN_USE")
    status, dropped = resources.send("DELETE", "/details", cascade="true")
    assert (status, [one["table"] for one in dropped["dropped"]]) == (200, ["totals"])


@pytest.mark.parametrize(
    ("method", "path", "body", "parameters", "field"),
    [
        ("GET", "", None, {"limits": "1"}, "limits"),
        ("GET", "", None, {"limit": "many"}, "limit"),
        ("GET", "/details", None, {"refreshes": "-1"}, "refreshes"),
        ("DELETE", "/details", None, {"cascade": "yes"}, "cascade"),
        ("PATCH", "/details", {"target_lags": "1 day"}, {}, "target_lags"),
        ("POST", "", {"sql": "CREATE TABLE x"}, {}, "sql"),
        ("POST", "", {"name": "x", "query": "SELECT 1"}, {}, "target_lag"),
    ],
)
def test_a_mistake_in_a_resource_is_refused_with_its_field(
    resources: Resources, method: str, path: str, body: Any, parameters: dict[str, str], field: str
) -> None:
    status, refused = resources.send(method, path, body, **parameters)
    assert (status, refused["error"]["field"]) == (400, field), refused


def test_a_resource_without_a_tenant_or_a_table_is_refused(shop: Shop, resources: Resources) -> None:
    found = shop.firn.parsed(shop.firn.client.get("/dynamic-tables"))
    assert found["error"]["field"] == "tenant_id"
    status, refused = resources.send("GET", "/nowhere")
    assert (status, refused["error"]["code"]) == (404, "TABLE_NOT_FOUND")
    status, refused = resources.send("PUT", "/details")
    assert (status, refused["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")


STATEMENT = "CREATE DYNAMIC TABLE made TARGET_LAG = '5 minutes' AS SELECT id FROM orders"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "table", "missing"),
        ({"name": "made"}, "query", "missing"),
        ({"name": "made", "query": "SELECT id FROM orders"}, "target_lag", "missing"),
        ({"name": "made", "target_lag": "1 hour"}, "query", "missing"),
        ({"name": "made", "query": "SELECT 1", "target_lag": "soon"}, "target_lag", "'5 minutes'"),
        ({"name": "made", "query": "SELECT 1", "target_lag": "1 day", "refresh_mode": "OFTEN"}, "refresh_mode", "FULL"),
        (
            {"name": "made", "query": "q", "target_lag": "1 day", "cardinality_threshold": 2},
            "cardinality_threshold",
            "1",
        ),
        ({"name": "made", "query": "q", "target_lag": "1 day", "initialize": "NEVER"}, "initialize", "ON_CREATE"),
        ({"name": "made", "query": "q", "target_lag": "1 day", "scheduler": "OFF"}, "scheduler", "ENABLED"),
        ({"name": "made", "query": "q", "target_lag": "1 day", "deduplication": "yes"}, "deduplication", "true"),
        ({"sql": STATEMENT, "query": "SELECT id FROM orders"}, "query", "leave it out"),
        ({"sql": STATEMENT, "replace": True}, "replace", "leave it out"),
        ({"sql": STATEMENT, "name": "other"}, "name", "'made'"),
        ({"sql": STATEMENT, "table": "other"}, "table", "'made'"),
        ({"sql": STATEMENT.replace("made", "shop.made"), "namespace": "lab"}, "namespace", "'shop'"),
        ({"sql": STATEMENT.replace("5 minutes", "5 fortnights")}, "sql", "line 1, column 40"),
        ({"sql": STATEMENT + "; DROP TABLE orders"}, "sql", "line 1, column"),
        ({"sql": STATEMENT.replace(" TARGET_LAG = '5 minutes'", "")}, "sql", "TARGET_LAG is missing"),
        ({"sql": STATEMENT.replace("TARGET_LAG", "TARGET_LAGS")}, "sql", "TARGET_LAG"),
        ({"sql": STATEMENT.replace("made", "a.b.c.d")}, "sql", "line 1, column 22"),
        ({"sql": STATEMENT.replace("orders", "ordres")}, "sql", "line 1, column 70"),
        ({"name": "made", "target_lag": "1 day", "query": "SELECT id\nFROM ordres"}, "query", "line 2, column 6"),
        ({"name": "details", "target_lag": "1 day", "query": "SELECT id FROM orders"}, "table", "replace: true"),
        ({"name": "orders", "target_lag": "1 day", "query": "SELECT id FROM customers"}, "table", "already exists"),
        (
            {"name": "orders", "target_lag": "1 day", "query": "SELECT id FROM customers", "replace": True},
            "table",
            "is not a dynamic table",
        ),
        (
            {"name": "a", "target_lag": "1 day", "query": "q", "replace": True, "if_not_exists": True},
            "if_not_exists",
            "contradicts",
        ),
    ],
)
def test_a_declaration_with_a_mistake_is_refused_where_it_is(
    shop: Shop, fields: dict[str, Any], field: str, message: str
) -> None:
    response = shop.firn.post({**shop.request("CREATE_DYNAMIC_TABLE", None), **fields})
    assert not response["success"], response
    assert response["error"].get("field") == field, response["error"]
    assert message in response["error"]["message"], response["error"]
    assert shop.catalog.list_tables(shop.tenant, "default") == ["customers", "details", "orders", "totals"]


def test_what_is_explained_is_a_table_or_a_query(shop: Shop) -> None:
    for fields in ({}, {"table": "details", "query": "SELECT id FROM orders"}):
        request = {**shop.request("EXPLAIN_DYNAMIC_TABLE", None), **fields}
        assert shop.firn.fail(request, "INVALID_REQUEST")["field"] == "query"
    refused = shop.fail("TABLE_NOT_FOUND", "EXPLAIN_DYNAMIC_TABLE", None, query="SELECT id FROM ordres")
    assert (refused["field"], refused["suggestion"]) == ("query", "orders")
