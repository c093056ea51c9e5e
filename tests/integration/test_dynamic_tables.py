"""CREATE_DYNAMIC_TABLE: declared by a statement or by fields, built at once, replaced in one commit, or refused."""

import re
from typing import Any

import pytest

from handlers.create_dynamic_table import CreateDynamicTable
from service.catalog.tables import Catalog
from service.dynamic.declare.creation import Creations
from service.dynamic.definitions import Definitions
from service.model.call import Call, IdempotencyKey
from service.model.dynamic.state import state_of
from service.model.names import TableName
from tests.harness import Firn, wait_until

ORDERS = [
    {"order_id": 1, "customer_id": 1, "amount": "10.00"},
    {"order_id": 2, "customer_id": 2, "amount": "5.50"},
    {"order_id": 3, "customer_id": 1, "amount": "7.25"},
]
CUSTOMERS = [{"customer_id": 1, "name": "Ann", "region": "north"}, {"customer_id": 2, "name": "Bo", "region": "south"}]
DETAILS = (
    "CREATE DYNAMIC TABLE details TARGET_LAG = '5 minutes' AS\n"
    "SELECT o.order_id, o.amount, c.name FROM orders o JOIN customers c ON o.customer_id = c.customer_id"
)


class Shop:
    """Orders and customers of a tenant."""

    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn, self.tenant = firn, tenant
        for table, records, columns in (
            ("orders", ORDERS, {"order_id": "long", "customer_id": "long", "amount": "decimal(10,2)"}),
            ("customers", CUSTOMERS, {"customer_id": "long", "name": "string", "region": "string"}),
        ):
            fields = {name: {"type": kind} for name, kind in columns.items()}
            self.ok("CREATE_TABLE", table=table, schema={"fields": fields})
            self.ok("WRITE", table=table, records=records)

    def request(self, operation: str, **fields: Any) -> dict[str, Any]:
        return {"operation": operation, "tenant_id": self.tenant, **fields}

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.ok(self.request(operation, **fields))

    def fail(self, code: str, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.fail(self.request(operation, **fields), code)

    def create(self, sql: str = DETAILS, **fields: Any) -> dict[str, Any]:
        return self.ok("CREATE_DYNAMIC_TABLE", sql=sql, **fields)

    def refused(self, sql: str, code: str = "INVALID_QUERY", **fields: Any) -> dict[str, Any]:
        return self.fail(code, "CREATE_DYNAMIC_TABLE", sql=sql, **fields)

    def rows(self, table: str, *sort: str) -> list[dict[str, Any]]:
        return self.firn.rows(self.tenant, table, sort=list(sort))

    def exists(self, table: str) -> bool:
        return table in self.firn.app.parts[Catalog].list_tables(self.tenant, "default")


@pytest.fixture
def shop(firn: Firn, tenant: str) -> Shop:
    return Shop(firn, tenant)


def test_a_table_is_declared_by_a_statement_and_built(shop: Shop) -> None:
    made = shop.create()
    assert (made["table_created"], made["change"], made["mode"], made["records_inserted"]) == (
        True,
        "created",
        "FULL",
        3,
    )
    assert made["incremental"]
    assert made["sources"] == [
        {"namespace": "default", "table": "orders"},
        {"namespace": "default", "table": "customers"},
    ]
    assert shop.rows("details", "order_id") == [
        {"order_id": 1, "amount": "10.00", "name": "Ann"},
        {"order_id": 2, "amount": "5.50", "name": "Bo"},
        {"order_id": 3, "amount": "7.25", "name": "Ann"},
    ]
    found = shop.ok("DESCRIBE_DYNAMIC_TABLE", name="details")["dynamic_table"]
    assert [one["snapshot_id"] for one in found["sources"]] == [one["current_snapshot_id"] for one in found["sources"]]
    assert found["refreshes"][-1]["reason"] == "FIRST_BUILD"
    assert found["query"].startswith("SELECT o.order_id")


def test_fields_say_the_same_as_a_statement(shop: Shop) -> None:
    made = shop.ok(
        "CREATE_DYNAMIC_TABLE",
        name="totals",
        target_lag="1 hour",
        query="SELECT customer_id, sum(amount) AS total FROM orders GROUP BY customer_id;",
        refresh_mode="INCREMENTAL",
        scheduler="DISABLED",
        cardinality_threshold=0.5,
    )
    assert made["records_inserted"] == 2
    found = shop.ok("DESCRIBE_DYNAMIC_TABLE", name="totals")["dynamic_table"]
    assert (found["target_lag"], found["refresh_mode"], found["scheduler"]) == ("1 hour", "INCREMENTAL", "DISABLED")
    assert str(found["cardinality_threshold"]) == "0.5"


def test_a_change_of_a_source_comes_with_the_next_refresh(shop: Shop) -> None:
    shop.create()
    shop.ok("UPDATE", table="customers", filter={"customer_id": 1}, updates={"name": "Anna"})
    refreshed = shop.ok("REFRESH_DYNAMIC_TABLE", name="details")
    assert refreshed["mode"] in ("INCREMENTAL", "FULL")
    assert [row["name"] for row in shop.rows("details", "order_id")] == ["Anna", "Bo", "Anna"]
    assert shop.ok("REFRESH_DYNAMIC_TABLE", name="details")["mode"] == "NO_DATA"


@pytest.mark.thorough
def test_tables_are_built_upon_each_other(shop: Shop) -> None:
    shop.create()
    shop.create(
        "CREATE DYNAMIC TABLE spent TARGET_LAG = downstream AS SELECT name, sum(amount) AS n FROM details GROUP BY name"
    )
    assert shop.rows("spent", "name") == [{"name": "Ann", "n": "17.25"}, {"name": "Bo", "n": "5.50"}]
    graph = shop.ok("DESCRIBE_DYNAMIC_TABLE", name="details")["dynamic_table"]
    assert graph["dependents"] == [{"namespace": "default", "table": "spent"}]


def test_on_schedule_leaves_the_first_refresh_to_the_worker(shop: Shop) -> None:
    made = shop.create(DETAILS.replace(" AS\n", " INITIALIZE = ON_SCHEDULE SCHEDULER = DISABLED AS\n"))
    assert "mode" not in made
    assert shop.rows("details") == []
    assert shop.ok("REFRESH_DYNAMIC_TABLE", name="details")["mode"] == "FULL"


def test_a_dry_run_makes_nothing(shop: Shop) -> None:
    plan = shop.create(dry_run=True)["plan"]
    assert (plan["change"], plan["rebuilds"]) == ("created", [{"namespace": "default", "table": "details"}])
    assert set(plan["schema"]["fields"]) == {"order_id", "amount", "name"}
    assert not shop.exists("details")


def test_a_table_is_built_by_a_job(shop: Shop) -> None:
    accepted = shop.create(**{"async": True})
    seen: dict[str, Any] = {}

    def has_ended() -> bool:
        seen.update(shop.firn.parsed(shop.firn.client.get(accepted["status_url"]))["job"])
        return seen["state"] not in ("queued", "running")

    wait_until(has_ended, 300)
    job = seen
    assert job["state"] == "done", job
    assert job["result"]["records_inserted"] == 3


def test_a_key_makes_one_table(shop: Shop) -> None:
    first = shop.create(idempotency_key="once")
    assert shop.create(idempotency_key="once") == first
    refused = shop.refused(DETAILS, "TABLE_EXISTS")
    assert "replace: true" in refused["message"]


def test_if_not_exists_leaves_a_table_as_it_is(shop: Shop) -> None:
    shop.create()
    again = shop.create(DETAILS.replace("TABLE details", "TABLE IF NOT EXISTS details").replace("5", "9"))
    assert (again["table_created"], again["table_existed"]) == (False, True)
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE", name="details")["dynamic_table"]["target_lag"] == "5 minutes"


OR_REPLACE = DETAILS.replace("CREATE ", "CREATE OR REPLACE ")


def test_the_same_query_again_changes_only_options(shop: Shop) -> None:
    shop.create()
    table = shop.firn.app.parts[Catalog].load(TableName(shop.tenant, "default", "details"))
    same = shop.create(OR_REPLACE.replace("SELECT", "select -- all of them\n"))
    assert (same["change"], same["table_created"]) == ("nothing", False)
    options = shop.create(OR_REPLACE.replace("5 minutes", "1 day"))
    assert options["change"] == "options"
    now = shop.firn.app.parts[Catalog].load(table.name)
    assert (now.uuid, now.current_snapshot_id) == (table.uuid, table.current_snapshot_id)
    assert shop.ok("DESCRIBE_DYNAMIC_TABLE", name="details")["dynamic_table"]["target_lag"] == "1 day"


def test_more_columns_and_another_query_replace_rows_columns_and_definition_in_one_commit(shop: Shop) -> None:
    shop.create()
    catalog, definitions = shop.firn.app.parts[Catalog], shop.firn.app.parts[Definitions]
    name = TableName(shop.tenant, "default", "details")
    before = catalog.load(name)
    more = OR_REPLACE.replace("c.name FROM", "c.name, c.region FROM")
    plan = shop.create(more, dry_run=True)["plan"]
    assert (plan["change"], plan["columns_added"], plan["columns_removed"]) == ("columns_added", ["region"], [])
    assert plan["rebuilds"] == [{"namespace": "default", "table": "details"}]
    assert catalog.load(name).current_snapshot_id == before.current_snapshot_id
    made = shop.create(more)
    assert (made["change"], made["mode"], made["records_inserted"]) == ("columns_added", "FULL", 3)
    assert [row["region"] for row in shop.rows("details", "order_id")] == ["north", "south", "north"]
    after = catalog.load(name)
    assert (after.uuid, after.snapshot_count) == (before.uuid, before.snapshot_count + 1)
    other = OR_REPLACE.partition("AS\n")[0] + "AS\nSELECT region AS name, count(*) AS n FROM customers GROUP BY region"
    replaced = shop.create(other)
    assert (replaced["change"], replaced["columns_added"]) == ("rebuild", ["n"])
    assert sorted(replaced["columns_removed"]) == ["amount", "order_id", "region"]
    assert shop.rows("details", "name") == [{"name": "north", "n": 1}, {"name": "south", "n": 1}]
    last = catalog.load(name)
    assert last.snapshot_count == after.snapshot_count + 1
    assert last.current_snapshot_id is not None
    state = state_of(last.snapshot(last.current_snapshot_id).summary)
    assert state is not None
    assert state.definition == definitions.of(last).definition.version
    shop.ok("WRITE", table="customers", records=[{"customer_id": 3, "name": "Cy", "region": "north"}])
    shop.ok("REFRESH_DYNAMIC_TABLE", name="details")
    assert shop.rows("details", "name") == [{"name": "north", "n": 2}, {"name": "south", "n": 1}]


def test_a_replacement_that_fails_leaves_rows_and_definition_as_they_are(shop: Shop) -> None:
    shop.create()
    failing = OR_REPLACE.partition("AS\n")[0] + "AS\nSELECT order_id, amount / (order_id - 1) AS q FROM orders"
    shop.refused(failing)
    assert len(shop.rows("details")) == 3
    found = shop.ok("DESCRIBE_DYNAMIC_TABLE", name="details")["dynamic_table"]
    assert found["query"].startswith("SELECT o.order_id")
    assert (found["state"], found["failures"]) == ("active", 0)


def test_a_table_that_cannot_be_built_leaves_nothing(shop: Shop) -> None:
    sql = "CREATE DYNAMIC TABLE q TARGET_LAG = '1 hour' AS SELECT amount / (order_id - 1) AS q FROM orders"
    shop.refused(sql, idempotency_key="once")
    assert not shop.exists("q")
    assert shop.ok("LIST_DYNAMIC_TABLES")["dynamic_tables"] == []
    shop.ok("DELETE", table="orders", filter={"order_id": 1})
    assert shop.create(sql, idempotency_key="once")["table_created"]


def declaring(query: str, options: str = "TARGET_LAG = '1 hour'") -> str:
    return f"CREATE DYNAMIC TABLE bad {options} AS\n{query}"


REFUSED = [
    (declaring("SELECT * FROM ordesr"), "TABLE_NOT_FOUND", r"'orders'.*line 2, column 15"),
    (declaring("SELECT nothing FROM orders"), "INVALID_QUERY", r"nothing.*line 2, column 8"),
    (
        declaring("SELECT customer_id FROM orders o\n  JOIN customers c ON o.customer_id = c.customer_id"),
        "INVALID_QUERY",
        r"customer_id.*line 2, column 8",
    ),
    (declaring("SELECT reflect('java.lang.System', 'exit', 1) AS x FROM orders"), "INVALID_QUERY", r"reflect.*line 2"),
    (declaring("SELECT * FROM parquet.`/etc`"), "INVALID_QUERY|TABLE_NOT_FOUND|INVALID_REQUEST", r"."),
    (declaring("SELECT 1 AS one"), "INVALID_QUERY", r"no table"),
    (declaring("SELECT order_id, order_id FROM orders"), "INVALID_QUERY", r"order_id"),
    (declaring("SELECT order_id AS _firn_x FROM orders"), "INVALID_QUERY|INVALID_SCHEMA", r"_firn_x"),
    (declaring("SELECT order_id FROM orders WHERE amount > :least"), "INVALID_QUERY", r"least|parameter"),
    (
        declaring("SELECT order_id FROM orders LIMIT 3", "TARGET_LAG = '1 hour' REFRESH_MODE = INCREMENTAL_STRICT"),
        "INVALID_QUERY",
        r"LIMIT.*INCREMENTAL_STRICT",
    ),
]


@pytest.mark.parametrize(("sql", "codes", "message"), REFUSED)
def test_a_query_with_a_mistake_is_refused_with_its_place(shop: Shop, sql: str, codes: str, message: str) -> None:
    response = shop.firn.post(shop.request("CREATE_DYNAMIC_TABLE", sql=sql))
    assert not response["success"], response
    error = response["error"]
    assert error["code"] in codes.split("|"), error
    assert re.search(message, error["message"], re.DOTALL), error
    assert error.get("field") == "sql", error
    assert not shop.exists("bad")


def test_a_cycle_is_refused_with_its_way(shop: Shop) -> None:
    shop.create()
    shop.create(
        "CREATE DYNAMIC TABLE spent TARGET_LAG = downstream AS SELECT name, sum(amount) AS n FROM details GROUP BY name"
    )
    replaced = OR_REPLACE.partition("AS\n")[0]
    refused = shop.refused(f"{replaced}AS\nSELECT name FROM spent")
    assert "details → spent" in refused["message"]
    assert "line 2, column 18" in refused["message"]
    assert "itself" in shop.refused(f"{replaced}AS\nSELECT name FROM details")["message"]


def test_columns_that_a_source_gets_later_do_not_change_what_a_star_means(shop: Shop) -> None:
    star = "CREATE DYNAMIC TABLE every TARGET_LAG = '1 hour' AS SELECT * FROM customers"
    shop.create(star)
    shop.ok("ALTER_TABLE", table="customers", add_columns={"mail": {"type": "string"}})
    shop.ok("WRITE", table="customers", records=[{"customer_id": 3, "name": "Cy", "region": "west", "mail": "c@x"}])
    shop.ok("REFRESH_DYNAMIC_TABLE", name="every")
    assert shop.rows("every", "customer_id")[-1] == {"customer_id": 3, "name": "Cy", "region": "west"}
    again = shop.create(star.replace("CREATE", "CREATE OR REPLACE"))
    assert (again["change"], again["columns_added"]) == ("columns_added", ["mail"])
    assert shop.rows("every", "customer_id")[-1]["mail"] == "c@x"


@pytest.mark.thorough
def test_a_partitioned_result_keeps_its_layout_and_needs_its_column(shop: Shop) -> None:
    shop.create()
    shop.ok("REPARTITION", table="details", partition={"partitions": [{"field": "name", "transform": "identity"}]})
    more = OR_REPLACE.replace("c.name FROM", "c.name, c.region FROM")
    assert shop.create(more)["change"] == "columns_added"
    described = shop.ok("DESCRIBE_TABLE", table="details")["description"]
    assert described["partition"]["partitions"][0]["field"] == "name"
    assert len(shop.rows("details")) == 3
    without = OR_REPLACE.replace(", c.name FROM", " FROM")
    assert "partitioned by 'name'" in shop.refused(without, "INVALID_REQUEST")["message"]


@pytest.mark.thorough
def test_a_column_that_others_read_is_not_taken_away_unless_that_is_confirmed(shop: Shop) -> None:
    shop.create()
    reads = "SELECT name, sum(amount) AS n FROM details GROUP BY name"
    shop.create(f"CREATE DYNAMIC TABLE spent TARGET_LAG = downstream AS {reads}")
    without = OR_REPLACE.replace("o.amount, ", "")
    refused = shop.refused(without, "TABLE_IN_USE", dry_run=True)
    assert "spent reads 'amount'" in refused["message"]
    assert refused["details"] == {"dynamic_tables": ["spent"]}
    shop.refused(without, "TABLE_IN_USE")
    assert shop.create(OR_REPLACE.replace("o.order_id, ", ""))["columns_removed"] == ["order_id"]
    assert shop.create(without, confirm=True)["columns_removed"] == ["amount"]
    failed = shop.fail("INVALID_QUERY", "REFRESH_DYNAMIC_TABLE", name="spent")
    assert "amount" in failed["message"]


def test_a_creation_whose_process_ended_before_it_was_built_is_completed_by_the_same_request(shop: Shop) -> None:
    creations, call = shop.firn.app.parts[Creations], Call("r1")
    request = CreateDynamicTable.model_validate({"sql": DETAILS, **shop.request("CREATE_DYNAMIC_TABLE")})
    creations.create(creations.declared(request.declaration, None, call), call)
    assert "is being built" in shop.fail("TABLE_NOT_BUILT", "QUERY", table="details")["message"]
    other = DETAILS.replace("o.order_id, ", "")
    assert shop.refused(other, "TABLE_EXISTS")["field"] == "table"
    made = shop.create()
    assert (made["table_created"], made["mode"], made["records_inserted"]) == (True, "FULL", 3)
    assert shop.refused(DETAILS, "TABLE_EXISTS")["field"] == "table"


@pytest.mark.thorough
def test_a_replacement_with_its_key_is_made_once(shop: Shop) -> None:
    shop.create()
    more = OR_REPLACE.replace("c.name FROM", "c.name, c.region FROM")
    first = shop.create(more, idempotency_key="once")
    table = shop.firn.app.parts[Catalog].load(TableName(shop.tenant, "default", "details"))
    assert shop.create(more, idempotency_key="once") == first
    creations = shop.firn.app.parts[Creations]
    key = IdempotencyKey("CREATE_DYNAMIC_TABLE", table.name, "once", "")
    assert creations.made_before(table, Call("r2", key)) == "columns_added"
    assert creations.made_before(table, Call("r3")) is None
