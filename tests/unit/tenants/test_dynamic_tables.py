"""Dynamic tables while requests have credentials: no name of a table that the sender may not read, and no change of
one that they may not write."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.dynamic.definitions import Definitions
from service.dynamic.refresh.audit import Audits
from service.dynamic.refresh.passes import Passes
from service.errors import Forbidden
from service.model import wire
from service.model.dynamic.state import SourceState
from service.model.identity.principal import Grant, Principal
from tests.support.dynamic import Declared, refreshed
from tests.unit.tenants.guarded import MINE, OTHER, Guarded

REPORT = {"tenant_id": MINE, "namespace": "shop", "table": "report"}
SHOP = Principal("mine/shop", (Grant("writer", MINE, "shop"),), "4fW9kQ0aBz")
OF_OTHERS = ("rats", "above", "lab")
LOST = "there is no table 'rats' in namespace 'lab'"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """`shop.report` reads `shop.orders` and `lab.rats`, and `lab.above` reads it."""
    guarded = Guarded(tmp_path_factory.mktemp("home"))
    mine = Declared(guarded.app, MINE)
    for name in ("shop.orders", "lab.rats"):
        mine.base(name)
    report = mine.dynamic("shop.report", "shop.orders", "lab.rats")
    mine.dynamic("lab.above", "shop.report")
    mine.dynamic("shop.own", "shop.orders")
    definitions = guarded.app.parts[Definitions]
    sources = tuple(
        SourceState(one.name.namespace, one.name.table, one.uuid, 1)
        for one in definitions.of(report).definition.sources
    )
    failed = {"state": "failed", "error_code": "TABLE_NOT_FOUND", "error": LOST}
    definitions.records.put_refresh(refreshed(definitions.of(report), 1, sources=sources, **failed))
    definitions.records.failed(report.uuid, f"TABLE_NOT_FOUND: {LOST}", None, state="failed")
    yield guarded
    guarded.app.stop()


def ask(guarded: Guarded, key: str, operation: str, **fields: Any) -> tuple[int, str, dict[str, Any]]:
    status, body = guarded.ask(key, {"operation": operation, **fields})
    return status, wire.render({**body, "metadata": None}).decode(), body


def test_a_description_names_only_what_its_reader_may_read(guarded: Guarded) -> None:
    status, text, body = ask(guarded, "shop", "DESCRIBE_DYNAMIC_TABLE", **REPORT)
    found = body["dynamic_table"]
    assert (status, [one["table"] for one in found["sources"]]) == (200, ["orders"])
    assert "query" not in found
    assert found["dependents"] == []
    assert found["reason"].startswith("TABLE_NOT_FOUND: you may not read")
    assert [one["table"] for one in found["refreshes"][0]["sources"]] == ["orders"]
    assert not [name for name in OF_OTHERS if name in text]


def test_readers_of_all_of_it_see_all_of_it(guarded: Guarded) -> None:
    found = ask(guarded, "mine", "DESCRIBE_DYNAMIC_TABLE", **REPORT)[2]["dynamic_table"]
    assert [one["table"] for one in found["sources"]] == ["orders", "rats"]
    assert "lab.rats" in found["query"]
    assert [one["table"] for one in found["dependents"]] == ["above"]
    assert found["refreshes"][0]["error"]["message"] == LOST
    assert LOST in found["reason"]


@pytest.mark.parametrize("operation", ["LIST_DYNAMIC_TABLES", "REFRESH_HISTORY"])
def test_lists_name_only_what_their_reader_may_read(operation: str, guarded: Guarded) -> None:
    asked = {"tenant_id": MINE, "namespace": "shop"}
    status, text, _ = ask(guarded, "shop", operation, **asked)
    assert status == 200
    assert "report" in text
    assert not [name for name in OF_OTHERS if name in text]
    assert "rats" in ask(guarded, "mine", operation, **asked)[1]


def test_a_plan_is_shown_to_those_who_may_read_every_source(guarded: Guarded) -> None:
    refused = guarded.refused("shop", {"operation": "EXPLAIN_DYNAMIC_TABLE", **REPORT})
    assert (refused["status"], refused["code"]) == (403, "FORBIDDEN")
    assert not [name for name in OF_OTHERS if name in refused["message"]]


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "EXPLAIN_DYNAMIC_TABLE", "query": "SELECT * FROM {}"},
        {"operation": "CREATE_DYNAMIC_TABLE", "table": "new", "query": "SELECT * FROM {}", "target_lag": "1 hour"},
        {"operation": "CREATE_DYNAMIC_TABLE", "table": "report", "query": "SELECT * FROM {}", "target_lag": "1 hour"},
        {
            "operation": "CREATE_DYNAMIC_TABLE",
            "sql": "CREATE OR REPLACE DYNAMIC TABLE own TARGET_LAG = '1 hour' AS SELECT * FROM {}",
        },
        {
            "operation": "CREATE_DYNAMIC_TABLE",
            "sql": "CREATE DYNAMIC TABLE new TARGET_LAG = '1 hour' AS SELECT * FROM orders WHERE id IN (FROM {})",
            "dry_run": True,
        },
    ],
)
def test_a_source_that_the_sender_may_not_read_is_answered_as_one_that_does_not_exist(
    request_: dict[str, Any], guarded: Guarded
) -> None:
    def refused(source: str) -> dict[str, Any]:
        placed = {name: text.format(source) if isinstance(text, str) else text for name, text in request_.items()}
        return guarded.refused("shop", {"tenant_id": MINE, "namespace": "shop", **placed})

    there = refused("lab.rats")
    assert (there["status"], there["code"]) == (403, "FORBIDDEN")
    assert "rats" not in there["message"]
    assert there == refused("lab.missing") == refused("`lab`.`rats`")
    assert str(refused("nowhere.rats")) == str(there).replace("'lab'", "'nowhere'")


def test_what_others_read_is_not_dropped_and_they_are_not_named(guarded: Guarded) -> None:
    drop = {"operation": "DROP_DYNAMIC_TABLE", **REPORT}
    in_use = guarded.refused("shop", drop)
    assert (in_use["code"], in_use["details"]) == ("TABLE_IN_USE", {"dynamic_tables": []})
    cascade = guarded.refused("shop", {**drop, "cascade": True})
    assert cascade["code"] == "FORBIDDEN"
    assert not [name for name in OF_OTHERS if name in str((in_use, cascade))]
    assert guarded.refused("mine", drop)["details"] == {"dynamic_tables": ["lab.above"]}
    assert ask(guarded, "mine", "DESCRIBE_DYNAMIC_TABLE", **REPORT)[0] == 200


def test_purge_is_for_administrators(guarded: Guarded) -> None:
    purge = {"operation": "DROP_DYNAMIC_TABLE", **REPORT, "table": "own", "purge": True, "confirm": True}
    assert guarded.refused("writer", purge)["code"] == "FORBIDDEN"


def test_readers_refresh_audit_and_alter_nothing(guarded: Guarded) -> None:
    for operation in ("REFRESH_DYNAMIC_TABLE", "AUDIT_DYNAMIC_TABLE", "ALTER_DYNAMIC_TABLE", "DROP_DYNAMIC_TABLE"):
        assert guarded.refused("reader", {"operation": operation, **REPORT})["code"] == "FORBIDDEN"


def test_why_a_table_is_not_refreshed_names_no_other_tables(guarded: Guarded) -> None:
    refused = guarded.refused("shop", {"operation": "REFRESH_DYNAMIC_TABLE", **REPORT})
    assert refused["code"] == "INVALID_REQUEST"
    assert not [name for name in OF_OTHERS if name in str(refused)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "?"),
        ("GET", "/report?"),
        ("GET", "/missing?"),
        ("DELETE", "/report?"),
        ("POST", "/report/refresh?"),
        ("GET", "/report/history?"),
    ],
)
def test_resources_are_guarded_like_operations(method: str, path: str, guarded: Guarded) -> None:
    where = f"/dynamic-tables{path}tenant_id={MINE}&namespace=shop"
    assert guarded.send(method, where).status_code == 401
    response = guarded.send(method, where, "other")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert "report" not in response.text


def test_a_body_does_not_lead_out_of_the_tenant(guarded: Guarded) -> None:
    body = {"tenant_id": OTHER, "namespace": "shop", "suspend": True}
    assert guarded.send("PATCH", "/dynamic-tables/report", "mine", body=body).status_code == 403


def test_the_definition_keeps_its_creator(guarded: Guarded) -> None:
    mine = Declared(guarded.app, MINE)
    made = mine.definitions.of(mine.dynamic("shop.kept", "shop.orders", owner=SHOP.dumps()))
    assert made.definition.owner == SHOP.dumps()
    guarded.ok("mine", {"operation": "ALTER_DYNAMIC_TABLE", **REPORT, "table": "kept", "target_lag": "1 hour"})
    assert mine.definitions.of(mine.load("shop.kept")).definition.owner == SHOP.dumps()


def test_the_service_refreshes_with_the_rights_of_the_creators_live_keys(guarded: Guarded) -> None:
    mine, creators = Declared(guarded.app, MINE), guarded.app.parts[Passes].creators
    new = {"operation": "CREATE_KEY", "tenant_id": MINE, "principal": "maker", "roles": ["writer:mine/shop"]}
    key = guarded.ok("mine", new)
    owner = Principal(f"{MINE}/maker", (), key["key_id"]).dumps()
    made = mine.definitions.of(mine.dynamic("shop.made", "shop.orders", owner=owner)).definition
    creators.check(made)
    assert guarded.app.parts[Audits].creators is creators
    guarded.ok("mine", {"operation": "REVOKE_KEY", "tenant_id": MINE, "key_id": key["key_id"]})
    for definition in (made, mine.definitions.of(mine.load("shop.own")).definition):
        with pytest.raises(Forbidden):
            creators.check(definition)
