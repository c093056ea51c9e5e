"""Two tenants, every operation, every way to name the other's things: nothing is seen, nothing changes, and the answer
is the same whether there is something or not."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from handlers import discover
from service.catalog.tables import Catalog
from service.model import wire
from service.operations.operation import Operation
from tests.support.dynamic import Declared
from tests.unit.tenants.guarded import MINE, OTHER, Guarded, create_table

OPERATIONS = {operation.name: operation for operation in discover()}
TABLES = (("shop", "orders"), ("shop", "Orders"), ("lab", "rats"))
SCHEDULE = {"name": "nightly", "cron": "0 2 29 2 *", "task": {"operation": "COMPACT"}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("home"))
    for tenant in (MINE, OTHER):
        for namespace, table in TABLES:
            guarded.ok("root", create_table(tenant, namespace, table))
        guarded.ok("root", {"operation": "CREATE_SCHEDULE", "tenant_id": tenant, **SCHEDULE, "namespace": "shop"})
        Declared(guarded.app, tenant).dynamic("lab.totals", "shop.orders")
    guarded.ok("root", create_table(OTHER, "secret", "plans"))
    guarded.ok("root", {"operation": "DROP_TABLE", "tenant_id": OTHER, "namespace": "secret", "table": "plans"})
    yield guarded
    guarded.app.stop()


@pytest.fixture(scope="module")
def state_before(guarded: Guarded) -> list[Any]:
    return state(guarded)


@pytest.fixture(autouse=True)
def nothing_changes(guarded: Guarded, state_before: list[Any]) -> Iterator[None]:
    yield
    assert state(guarded) == state_before


def state(guarded: Guarded) -> list[Any]:
    """What the other tenant has."""
    catalog, found = guarded.app.parts[Catalog], []
    for _, namespace in sorted(catalog.list_namespaces(OTHER)):
        for table in catalog.list_tables(OTHER, namespace):
            described = {"operation": "DESCRIBE_TABLE", "tenant_id": OTHER, "namespace": namespace, "table": table}
            found.append((namespace, table, guarded.ok("root", described)["description"]))
    listed = {"tenant_id": OTHER, "scope": "tenant"}
    for operation in ("LIST_SCHEDULES", "LIST_JOBS", "LIST_DYNAMIC_TABLES", "REFRESH_HISTORY"):
        answer = guarded.ok("root", {"operation": operation, **listed})
        found.append({name: value for name, value in answer.items() if name != "metadata"})
    keys = guarded.ok("root", {"operation": "LIST_KEYS", "tenant_id": OTHER})["keys"]
    return [*found, [(key["key_id"], key["live"]) for key in keys]]


def requests(operation: Operation) -> Iterator[dict[str, Any]]:
    """The operation's examples, about a table that exists."""
    for example in operation.examples:
        request = {name: value for name, value in example.request.items() if name != "tenant_id"}
        yield {**request, **({"namespace": "shop"} if "namespace" in request else {})}


def placed(request: Mapping[str, Any], tenant: str, table: str) -> dict[str, Any]:
    return {**request, "tenant_id": tenant, **({"table": table} if "table" in request else {})}


@pytest.mark.parametrize("name", OPERATIONS)
def test_another_tenants_table_is_answered_as_if_there_were_none(name: str, guarded: Guarded) -> None:
    for request in requests(OPERATIONS[name]):
        there = guarded.refused("mine", placed(request, OTHER, "orders"))
        assert (there["status"], there["code"]) == (403, "FORBIDDEN")
        assert "suggestion" not in there
        for tenant, table in ((OTHER, "ordres"), ("nobody", "orders")):
            missing = guarded.refused("mine", placed(request, tenant, table))
            assert str(missing).replace(f"'{tenant}'", f"'{OTHER}'") == str(there)
        assert "orders" not in there["message"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_nobody_gets_further_than_his_role_in_his_namespace(name: str, guarded: Guarded) -> None:
    operation = OPERATIONS[name]
    for request in requests(operation):
        of_mine = placed(request, MINE, "orders")
        needed = operation.access_of(_model(guarded, of_mine))
        if needed.role != "reader":
            assert guarded.refused("reader", of_mine)["code"] == "FORBIDDEN"
        if needed.role == "admin":
            assert guarded.refused("writer", of_mine)["code"] == "FORBIDDEN"
        if not needed.somewhere:
            elsewhere = {**of_mine, **({"namespace": "lab"} if needed.namespace is not None else {})}
            assert guarded.refused("shop", elsewhere)["code"] == "FORBIDDEN"


def _model(guarded: Guarded, request: dict[str, Any]) -> Any:
    return guarded.app.pipeline.parse(request)[1]


NAMES = (
    *("OTHER", "Other", "oTHER", " other", "other ", "other\0", "other\n", "../other", "mine/../other", "mine/other"),
    *("other/", "./other", "`other`", '"other"', "'other'", "mine.other", "mine__other", "other__shop", "*", "%", ""),
    *(
        "оther",
        "ｏther",
        "other\u200b",
        "othér",
        "mine\0other",
        "mine,other",
        "mine other",
        "_firn",
        "other%00",
        "%6fther",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_no_other_spelling_names_another_tenant(name: str, guarded: Guarded) -> None:
    for field in ("tenant_id", "namespace", "table"):
        request = {"tenant_id": MINE, "namespace": "shop", "table": "orders", field: name}
        for operation in ("DESCRIBE_TABLE", "DROP_TABLE", "WRITE"):
            records = {"records": [{"id": 1}]} if operation == "WRITE" else {}
            status, body = guarded.ask("mine", {"operation": operation, **request, **records})
            assert status in (400, 403, 404), (field, body)
            assert "plans" not in wire.render(body).decode()


@pytest.mark.parametrize("namespace", ["other__shop", "shop__other", "mine__shop", "..", "other/shop", "other.shop"])
def test_no_namespace_leads_out_of_the_tenant(namespace: str, guarded: Guarded) -> None:
    request = {"operation": "DESCRIBE_TABLE", "tenant_id": MINE, "namespace": namespace, "table": "orders"}
    assert guarded.refused("mine", request)["status"] in (400, 404)


@pytest.mark.parametrize(
    "header",
    [
        {"X-Tenant-Id": OTHER},
        {"X-Forwarded-User": "other"},
        {"X-Original-Url": "/health"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Host": "127.0.0.1"},
    ],
)
def test_no_header_makes_another_of_a_sender(header: dict[str, str], guarded: Guarded) -> None:
    request = {"operation": "LIST_TABLES", "tenant_id": OTHER, "namespace": "shop"}
    assert guarded.refused("mine", request, **header)["status"] == 403
    assert guarded.refused(None, request, **header)["status"] == 401


@pytest.mark.parametrize(
    "request_",
    [
        {"tenant_id": MINE, "join": [{"table": "rats", "namespace": "lab", "on": {"id": "id"}}]},
        {"tenant_id": MINE, "join": [{"table": "missing", "namespace": "lab", "on": {"id": "id"}}]},
        {"tenant_id": MINE, "join": [{"table": "rats", "namespace": "nowhere", "on": {"id": "id"}}]},
    ],
)
def test_a_join_reaches_no_namespace_that_the_sender_may_not_read(request_: dict[str, Any], guarded: Guarded) -> None:
    query = {"operation": "QUERY", "namespace": "shop", "table": "orders", **request_}
    refused = guarded.refused("shop", query)
    assert (refused["status"], "rats" in refused["message"]) == (403, False)


def test_sql_needs_a_role_in_the_tenant_before_it_is_parsed(guarded: Guarded) -> None:
    query = {"operation": "QUERY", "tenant_id": OTHER, "sql": "SELECT * FROM shop.orders"}
    assert guarded.refused("mine", query)["code"] == "FORBIDDEN"


class TestSuggestions:
    def test_name_only_namespaces_that_the_sender_may_read(self, guarded: Guarded) -> None:
        request = {"operation": "LIST_TABLES", "tenant_id": MINE, "namespace": "shop"}
        assert guarded.ok("shop", request)["tables"] == ["Orders", "orders"]
        listed = guarded.ok("shop", {"operation": "LIST_NAMESPACES", "tenant_id": MINE})["namespaces"]
        assert listed == ["shop"]
        assert guarded.ok("mine", {"operation": "LIST_NAMESPACES", "tenant_id": MINE})["namespaces"] == ["lab", "shop"]

    def test_of_a_namespace_that_is_missing_name_no_other(self, guarded: Guarded) -> None:
        key = {"operation": "CREATE_KEY", "tenant_id": MINE, "principal": "labs", "roles": ["admin:mine/labs"]}
        made = guarded.ok("mine", key)
        missing = {"operation": "DROP_NAMESPACE", "tenant_id": MINE, "namespace": "labs"}
        found = guarded.send("POST", "/database", body=missing, headers={"X-Api-Key": made["api_key"]})
        guarded.ok("mine", {"operation": "REVOKE_KEY", "tenant_id": MINE, "key_id": made["key_id"]})
        error = found.json()["error"]
        assert error["code"] == "NAMESPACE_NOT_FOUND"
        assert "'lab'" not in error["message"]
        assert "shop" not in error["message"]
        assert "suggestion" not in error
        assert guarded.refused("mine", missing)["suggestion"] == "lab"

    def test_of_default_tables_name_only_readable_namespaces(self, guarded: Guarded) -> None:
        guarded.ok("mine", {"operation": "CREATE_NAMESPACE", "tenant_id": MINE, "namespace": "default"})
        made = guarded.ok(
            "mine",
            {"operation": "CREATE_KEY", "tenant_id": MINE, "principal": "d", "roles": ["reader:mine/default"]},
        )
        listing = {"operation": "LIST_TABLES", "tenant_id": MINE}
        found = guarded.send("POST", "/database", body=listing, headers={"X-Api-Key": made["api_key"]}).json()
        assert "namespaces_with_tables" not in found
        assert guarded.ok("mine", listing)["namespaces_with_tables"] == ["lab", "shop"]


class TestSwappedIds:
    def test_a_dropped_table_is_restored_only_by_its_own_tenant(self, guarded: Guarded) -> None:
        listing = {"operation": "LIST_TABLES", "tenant_id": OTHER, "namespace": "secret", "include_dropped": True}
        [dropped] = guarded.ok("root", listing)["dropped"]
        namespace = {"tenant_id": MINE, "namespace": "secret", "if_not_exists": True}
        guarded.ok("mine", {"operation": "CREATE_NAMESPACE", **namespace})
        restore = {"operation": "RESTORE_TABLE", "tenant_id": MINE, "namespace": "secret", "table": "plans"}
        by_id = guarded.refused("mine", {**restore, "table_id": dropped["table_id"]})
        unknown = guarded.refused("mine", {**restore, "table_id": "0" * 8 + "-0000-0000-0000-" + "0" * 12})
        assert by_id["code"] == unknown["code"]
        assert by_id["message"].replace(dropped["table_id"], "") == unknown["message"].replace(
            "0" * 8 + "-0000-0000-0000-" + "0" * 12, ""
        )
        [still] = guarded.ok("root", listing)["dropped"]
        assert still == dropped

    @pytest.mark.parametrize("operation", ["DELETE_SCHEDULE", "RUN_SCHEDULE"])
    def test_a_schedule_is_found_only_in_its_own_tenant(self, operation: str, guarded: Guarded) -> None:
        there = guarded.refused("mine", {"operation": operation, "tenant_id": OTHER, "name": "nightly"})
        missing = guarded.refused("mine", {"operation": operation, "tenant_id": OTHER, "name": "weekly"})
        assert there == missing

    def test_a_cursor_of_another_list_is_refused(self, guarded: Guarded) -> None:
        page = guarded.ok("other", {"operation": "LIST_TABLES", "tenant_id": OTHER, "namespace": "shop", "limit": 1})
        mine = {"operation": "LIST_TABLES", "tenant_id": MINE, "namespace": "shop", "limit": 1}
        assert guarded.refused("mine", {**mine, "cursor": page["next_cursor"]})["status"] == 400

    def test_a_key_is_managed_only_by_administrators_of_its_tenant(self, guarded: Guarded) -> None:
        [key] = guarded.ok("other", {"operation": "LIST_KEYS", "tenant_id": OTHER})["keys"]
        for operation in ("ROTATE_KEY", "REVOKE_KEY"):
            request = {"operation": operation, "tenant_id": MINE}
            found = guarded.refused("mine", {**request, "key_id": key["key_id"]})
            unknown = guarded.refused("mine", {**request, "key_id": "0000000000"})
            assert found["code"] == unknown["code"] == "API_KEY_NOT_FOUND"
            assert found["message"].replace(key["key_id"], "") == unknown["message"].replace("0000000000", "")

    def test_a_key_with_more_rights_is_not_rotated_by_those_with_fewer(self, guarded: Guarded) -> None:
        above = {"operation": "CREATE_KEY", "tenant_id": MINE, "principal": "above", "roles": ["admin:*"]}
        assert guarded.refused("mine", above)["code"] == "FORBIDDEN"
        made = guarded.ok("root", above)
        rotate = {"operation": "ROTATE_KEY", "tenant_id": MINE, "key_id": made["key_id"]}
        assert guarded.refused("mine", rotate)["code"] == "API_KEY_NOT_FOUND"
        guarded.ok("root", {"operation": "REVOKE_KEY", "tenant_id": MINE, "key_id": made["key_id"]})


def test_a_schedule_runs_with_the_rights_that_its_creator_has_then(guarded: Guarded) -> None:
    own = {"tenant_id": MINE}
    made = guarded.ok("mine", {"operation": "CREATE_KEY", **own, "principal": "planner", "roles": ["writer"]})
    planner = {"X-Api-Key": made["api_key"]}
    create = {"operation": "CREATE_SCHEDULE", **own, **SCHEDULE, "name": "planned", "namespace": "lab", "table": "rats"}
    assert guarded.send("POST", "/database", body=create, headers=planner).status_code == 200
    run = {"operation": "RUN_SCHEDULE", **own, "name": "planned", "wait": True}
    guarded.ok("mine", {"operation": "REVOKE_KEY", **own, "key_id": made["key_id"]})
    ended = guarded.ok("mine", run)["run"]
    assert (ended["state"], [each["error"]["code"] for each in ended["outcomes"]]) == ("failed", ["FORBIDDEN"])
    guarded.ok("mine", {"operation": "DELETE_SCHEDULE", **own, "name": "planned"})


def test_a_schedule_reaches_no_further_than_its_creator(guarded: Guarded) -> None:
    schedule = {"operation": "CREATE_SCHEDULE", "tenant_id": MINE, **SCHEDULE, "name": "wide"}
    for key, more in (
        ("reader", {"namespace": "shop"}),
        ("shop", {"scope": "tenant"}),
        ("shop", {"namespace": "lab"}),
    ):
        assert guarded.refused(key, {**schedule, **more})["code"] == "FORBIDDEN"
    assert guarded.refused("mine", {**schedule, "tenant_id": OTHER})["code"] == "FORBIDDEN"


class TestSchedulesOfANamespace:
    """A role in one namespace is enough for its schedules; those of others are as if they did not exist."""

    OWN: ClassVar[dict[str, Any]] = {"tenant_id": MINE, "name": "of-shop"}
    OTHERS: ClassVar[dict[str, Any]] = {"tenant_id": MINE, "name": "of-lab"}

    @pytest.fixture(autouse=True)
    def schedules(self, guarded: Guarded) -> Iterator[None]:
        create = {"operation": "CREATE_SCHEDULE", **SCHEDULE}
        guarded.ok("shop", {**create, **self.OWN, "namespace": "shop"})
        guarded.ok("mine", {**create, **self.OTHERS, "namespace": "lab"})
        yield
        for schedule in (self.OWN, self.OTHERS):
            guarded.ok("mine", {"operation": "DELETE_SCHEDULE", **schedule, "if_exists": True})

    def test_they_are_created_replaced_listed_run_and_deleted(self, guarded: Guarded) -> None:
        replaced = {"operation": "CREATE_SCHEDULE", **SCHEDULE, **self.OWN, "namespace": "shop", "replace": True}
        assert guarded.ok("shop", replaced)["schedule_replaced"]
        listed = guarded.ok("shop", {"operation": "LIST_SCHEDULES", "tenant_id": MINE, "namespace": "shop"})
        names = [schedule["name"] for schedule in listed["schedules"]]
        assert ("of-shop" in names, "of-lab" in names) == (True, False)
        run = guarded.ok("shop", {"operation": "RUN_SCHEDULE", **self.OWN})
        assert guarded.send("GET", run["status_url"], "shop").status_code == 200
        assert guarded.ok("shop", {"operation": "DELETE_SCHEDULE", **self.OWN})["schedule_deleted"]

    @pytest.mark.parametrize("operation", ["DELETE_SCHEDULE", "RUN_SCHEDULE"])
    def test_those_of_another_namespace_are_not_found_and_not_suggested(self, operation: str, guarded: Guarded) -> None:
        there = guarded.refused("shop", {"operation": operation, **self.OTHERS})
        missing = guarded.refused("shop", {"operation": operation, "tenant_id": MINE, "name": "of-lax"})
        assert there["code"] == "SCHEDULE_NOT_FOUND"
        assert {**there, "message": there["message"].replace("of-lab", "")} == {
            **missing,
            "message": missing["message"].replace("of-lax", ""),
        }
        assert (
            guarded.refused("mine", {"operation": operation, **self.OTHERS, "name": "of-lat"})["suggestion"] == "of-lab"
        )

    def test_one_of_another_namespace_is_not_replaced_or_deleted(self, guarded: Guarded) -> None:
        create = {"operation": "CREATE_SCHEDULE", **SCHEDULE, **self.OTHERS, "namespace": "shop"}
        for replace in (False, True):
            assert guarded.refused("shop", {**create, "replace": replace})["code"] == "SCHEDULE_EXISTS"
        gone = guarded.ok("shop", {"operation": "DELETE_SCHEDULE", **self.OTHERS, "if_exists": True})
        assert (gone["schedule_deleted"], gone["schedule_existed"]) == (False, False)
        listed = guarded.ok("mine", {"operation": "LIST_SCHEDULES", "tenant_id": MINE, "namespace": "lab"})
        assert "of-lab" in [schedule["name"] for schedule in listed["schedules"]]

    @pytest.mark.parametrize("operation", ["DELETE_SCHEDULE", "RUN_SCHEDULE"])
    def test_a_reader_sees_them_and_may_not_change_them(self, operation: str, guarded: Guarded) -> None:
        assert guarded.refused("reader", {"operation": operation, **self.OWN})["code"] == "FORBIDDEN"


class TestFiles:
    """Paths in requests: none may be named unless the settings say so, and never Firn's own."""

    def sources(self, guarded: Guarded) -> list[str]:
        home = guarded.app.settings.home
        return [f"{home}/warehouse/x.csv", f"{home}/ledger.db", "/etc/passwd", f"file://{home}/catalog.db", "s3://b/x"]

    def test_without_roots_no_path_is_read(self, guarded: Guarded) -> None:
        roots = guarded.app.parts[_roots()]
        for source in self.sources(guarded):
            with pytest.raises(Exception, match="no folder is open to requests"):
                roots.of(MINE).resolve(source)

    def test_a_root_may_be_one_for_each_tenant(self) -> None:
        roots = _roots()(("/srv/daily/{tenant}",), closed=True)
        assert roots.of(MINE).resolve("/srv/daily/mine/a.csv") == "/srv/daily/mine/a.csv"
        for path in ("/srv/daily/other/a.csv", "/srv/daily/mine/../other/a.csv", "/srv/daily/mine2/a.csv"):
            with pytest.raises(Exception, match="is not in a folder"):
                roots.of(MINE).resolve(path)

    def test_a_root_never_contains_the_data_of_the_service(self) -> None:
        roots = _roots()(("/", "s3://lake/"), own=("/srv/firn", "s3://lake/warehouse"), closed=True)
        assert roots.resolve("/srv/daily/a.csv") == "/srv/daily/a.csv"
        for path in ("/srv/firn/ledger.db", "/srv/x/../firn/a", "s3://lake/warehouse/a", "s3a://lake//warehouse/a"):
            with pytest.raises(Exception, match="is not in a folder"):
                roots.resolve(path)


def _roots() -> Any:
    from service.ingest.sources.roots import Roots

    return Roots
