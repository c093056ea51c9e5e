"""No route is served without a credential, and none with one that does not reach so far."""

import asyncio
import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.api.events import INVOCATIONS
from service.api.http import ROUTES
from service.catalog.tables import Catalog
from service.identity.api_keys import ApiKeys
from service.jobs.job import BulkProgress
from service.jobs.jobs import Jobs
from service.ledger.audit import AuditFilter
from service.model import wire
from service.model.identity.principal import LOCAL
from service.model.names import TableName
from tests.unit.identity.test_tokens import AUDIENCE, ISSUER, forged, key_set, token
from tests.unit.tenants.guarded import MINE, OTHER, Guarded, create_table

LIST = {"operation": "LIST_TABLES", "tenant_id": MINE}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("home"))
    for tenant in (MINE, OTHER):
        guarded.ok("root", create_table(tenant, "shop", "orders"))
    yield guarded
    guarded.app.stop()


def paths() -> Iterator[tuple[str, str]]:
    filled = {
        "{tenant}": MINE,
        "{namespace}": "shop",
        "{table}": "orders",
        "{id}": "x",
        "{name}": "orders",
        "{folder}": "how-to",
    }
    for path, methods in {**ROUTES, "/docs/{folder}/{guide}": "GET", "/nothing": "GET"}.items():
        for name, value in {**filled, "{name}": "orders", "{guide}": "upsert.md"}.items():
            path = path.replace(name, value)
        for method in methods.split(" and "):
            yield method, path


OPEN = {"/health", "/ready"}
CLOSED = [(method, path) for method, path in paths() if path not in OPEN]


@pytest.mark.parametrize(("method", "path"), CLOSED)
@pytest.mark.parametrize("shown", [None, "firn_4fW9kQ0aBz_" + "0" * 49, "eyJhbGciOiJub25lIn0.e30."])
def test_every_other_route_needs_a_valid_credential(
    method: str, path: str, shown: str | None, guarded: Guarded
) -> None:
    headers = {} if shown is None else {"X-Api-Key": shown}
    body = wire.render({"source": "aws.events", "detail": LIST}) if path == INVOCATIONS else b""
    response = guarded.send(method, path, body=body, headers=headers)
    answer = wire.parse(response.content)
    if path == INVOCATIONS and shown is None:  # the answer to the event
        assert answer["statusCode"] == 401
        answer = json.loads(answer["body"])
    else:
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer["error"]["code"] == "UNAUTHENTICATED"
    assert shown is None or shown not in response.text


@pytest.mark.parametrize("path", sorted(OPEN))
def test_health_and_readiness_are_for_everybody(path: str, guarded: Guarded) -> None:
    assert guarded.send("GET", path).status_code in (200, 503)


@pytest.mark.parametrize(
    "path", ["/HEALTH", "/health/", "//health", "/health/../metrics", "/ready/x", "/metrics/", "//metrics", "/docs/"]
)
def test_a_path_that_resembles_an_open_one_is_not(path: str, guarded: Guarded) -> None:
    assert guarded.send("GET", path).status_code == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "POST"])
def test_no_method_gets_around_it(method: str, guarded: Guarded) -> None:
    for path in ("/database", "/metrics", "/jobs/x", "/docs"):
        assert guarded.send(method, path).status_code == 401


def test_the_credential_may_be_in_either_header_and_in_the_event(guarded: Guarded) -> None:
    key = guarded.keys["reader"]
    for headers in ({"Authorization": f"Bearer {key}"}, {"X-Api-Key": key}, {"authorization": f"bearer {key}"}):
        assert guarded.send("POST", "/database", body=LIST, headers=headers).status_code == 200
        event = {"httpMethod": "POST", "path": "/database", "body": json.dumps(LIST), "headers": headers}
        answer = wire.parse(guarded.send("POST", INVOCATIONS, body=event).content)
        assert (answer["statusCode"], json.loads(answer["body"])["success"]) == (200, True)
        rule = {"source": "aws.events", "detail": LIST}
        assert wire.parse(guarded.send("POST", INVOCATIONS, body=rule, headers=headers).content)["statusCode"] == 200


def test_the_credential_of_an_event_is_the_one_that_counts(guarded: Guarded) -> None:
    event = {"httpMethod": "POST", "path": "/database", "body": json.dumps(LIST)}
    foreign = {**event, "headers": {"X-Api-Key": guarded.keys["other"]}}
    wrong = {**event, "headers": {"Authorization": "Bearer nonsense"}}
    statuses = [
        wire.parse(guarded.send("POST", INVOCATIONS, "mine", body=each).content)["statusCode"]
        for each in (event, foreign, wrong)
    ]
    assert statuses == [200, 403, 401]


@pytest.mark.parametrize(
    ("key", "status"), [("mine", 403), ("other", 403), ("shop", 403), ("root", 200), ("metrics", 200)]
)
def test_metrics_name_all_tenants_so_they_need_a_role_in_all(key: str, status: int, guarded: Guarded) -> None:
    assert guarded.send("GET", "/metrics", key).status_code == status


def test_a_browser_that_opens_the_documentation_learns_which_setting_shows_it(guarded: Guarded) -> None:
    for path, named in {"/docs": True, "/openapi.json": True, "/metrics": False}.items():
        response = guarded.send("GET", path)
        assert (response.status_code, "FIRN_AUTH__PUBLIC_DOCS=true" in response.text) == (401, named)


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/docs/how-to/upsert.md"])
def test_the_documentation_is_for_everybody_with_a_credential(path: str, guarded: Guarded) -> None:
    assert guarded.send("GET", path, "shop").status_code == 200


def test_the_documentation_can_be_opened_to_everybody(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, FIRN_AUTH__PUBLIC_DOCS="true")
    try:
        for path in ("/docs", "/openapi.json", "/docs/how-to/upsert.md"):
            assert guarded.send("GET", path).status_code == 200
        assert guarded.send("GET", "/metrics").status_code == 401
        assert guarded.send("POST", "/database", body=LIST).status_code == 401
    finally:
        guarded.app.stop()


@pytest.mark.parametrize("what", ["records", "ingest?date=2024-01-31"])
@pytest.mark.parametrize("table", ["orders", "missing"])
@pytest.mark.parametrize("key", ["other", "reader", "shop"])
def test_a_file_for_a_table_that_is_not_ones_own_is_refused_before_it_is_received(
    what: str, table: str, key: str, guarded: Guarded
) -> None:
    namespace = "lab" if key == "shop" else "shop"
    path = f"/tables/{MINE}/{namespace}/{table}/{what}"
    response = guarded.send("POST", path, key, body=b'{"id": 1}', headers={"Content-Type": "application/x-ndjson"})
    error = wire.parse(response.content)["error"]
    assert (response.status_code, error["code"]) == (403, "FORBIDDEN")
    assert table not in error["message"]


class TestJobs:
    @pytest.fixture
    def job(self, guarded: Guarded) -> Iterator[str]:
        jobs, catalog = guarded.app.parts[Jobs], guarded.app.parts[Catalog]
        job = jobs.accept("COMPACT", catalog.load(TableName(MINE, "shop", "orders")), BulkProgress())
        yield job.id
        jobs.cancelled(job, b"{}")

    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_of_another_tenant_are_answered_as_if_there_were_none(
        self, method: str, job: str, guarded: Guarded
    ) -> None:
        found = [guarded.send(method, f"/jobs/{id}", "other") for id in (job, "0" * 32)]
        answers = [wire.parse(each.content)["error"] for each in found]
        assert [each.status_code for each in found] == [404, 404]
        assert answers[0]["message"].replace(job, "") == answers[1]["message"].replace("0" * 32, "")
        assert guarded.send("GET", f"/jobs/{job}", "mine").json()["job"]["state"] == "running"
        assert "cancelling" not in guarded.send("GET", f"/jobs/{job}", "mine").json()["job"]

    def test_of_another_namespace_are_not_seen_either(self, guarded: Guarded, job: str) -> None:
        assert guarded.send("GET", f"/jobs/{job}", "shop").status_code == 200
        guarded.ok("root", create_table(MINE, "lab", "rats"))
        jobs, catalog = guarded.app.parts[Jobs], guarded.app.parts[Catalog]
        hidden = jobs.accept("COMPACT", catalog.load(TableName(MINE, "lab", "rats")), BulkProgress())
        assert guarded.send("GET", f"/jobs/{hidden.id}", "shop").status_code == 404
        jobs.cancelled(hidden, b"{}")

    def test_are_cancelled_by_those_who_may_write(self, job: str, guarded: Guarded) -> None:
        assert guarded.send("DELETE", f"/jobs/{job}", "reader").status_code == 403
        assert guarded.send("DELETE", f"/jobs/{job}", "shop").status_code == 200


def test_a_stored_response_is_not_read_with_another_principals_key(guarded: Guarded) -> None:
    request = {"operation": "CREATE_NAMESPACE", "tenant_id": MINE, "namespace": "keyed", "idempotency_key": "k"}
    first = guarded.ok("mine", request)
    assert guarded.ok("mine", request) == first
    assert guarded.refused("root", request)["code"] == "NAMESPACE_EXISTS"
    assert guarded.refused("other", request)["code"] == "FORBIDDEN"
    assert guarded.refused("reader", request)["code"] == "FORBIDDEN"


def test_a_key_that_is_revoked_ends_during_the_life_of_the_service(guarded: Guarded) -> None:
    admin = {"tenant_id": MINE}
    made = guarded.ok("mine", {"operation": "CREATE_KEY", **admin, "principal": "guest", "roles": ["reader"]})
    headers = {"X-Api-Key": made["api_key"]}
    assert guarded.send("POST", "/database", body=LIST, headers=headers).status_code == 200
    guarded.ok("mine", {"operation": "REVOKE_KEY", **admin, "key_id": made["key_id"]})
    assert guarded.send("POST", "/database", body=LIST, headers=headers).status_code == 401


def test_what_was_done_with_a_credential_is_in_the_audit_log(guarded: Guarded) -> None:
    guarded.send("POST", "/database", "reader", body=LIST, headers={"X-Request-Id": "audited-1"})
    guarded.send("POST", "/database", "other", body=LIST, headers={"X-Request-Id": "audited-2"})
    guarded.send("POST", "/database", body=LIST, headers={"X-Request-Id": "audited-3"})
    guarded.send("GET", "/metrics", "root", headers={"X-Request-Id": "audited-4"})
    guarded.send("GET", "/jobs/none", "mine", headers={"X-Request-Id": "audited-5"})
    guarded.send("POST", "/tables/mine/shop/orders/records", "other", headers={"X-Request-Id": "audited-6"})
    audit = guarded.app.pipeline.audit_log
    found = {each.request_id: each for each in audit.find(AuditFilter(), 1000)}
    shown = [found[f"audited-{i}"] for i in range(1, 7)]
    assert [(each.principal, each.outcome, each.status) for each in shown] == [
        ("mine/reader", "ok", 200),
        ("other/other", "FORBIDDEN", 403),
        ("", "UNAUTHENTICATED", 401),
        ("ops/root", "ok", 200),
        ("mine/mine", "NOT_FOUND", 404),
        ("other/other", "FORBIDDEN", 403),
    ]
    assert [(each.tenant, each.tables) for each in shown[:2]] == [(MINE, ("default/*",))] * 2
    assert shown[5].tables == ("shop/orders",)
    assert [each.operation for each in shown[2:5]] == ["POST /database", "GET /metrics", "GET /jobs/none"]
    assert len({each.id for each in audit.find(AuditFilter(), 1000)}) == len(audit.find(AuditFilter(), 1000))


def test_a_client_that_hangs_up_is_in_the_audit_log_too(guarded: Guarded) -> None:
    async def hang_up() -> None:
        async def receive() -> Any:
            return next(body, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            raise AssertionError("nobody is there")

        for path in ("/database", f"/tables/{MINE}/shop/orders/ingest"):
            headers = [(b"x-api-key", guarded.keys["mine"].encode()), (b"x-request-id", b"gone")]
            scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "headers": headers}
            query = b"" if path == "/database" else b"date=2024-01-31"
            body = iter([{"type": "http.request", "body": b"{", "more_body": True}])
            await guarded.http({**scope, "query_string": query, "raw_path": path.encode()}, receive, send)

    asyncio.run(hang_up())
    found = guarded.app.pipeline.audit_log.find(AuditFilter(outcome="CANCELLED"), 10)
    assert [(each.request_id, each.principal, each.status) for each in found] == [("gone", "mine/mine", 499)] * 2


def test_a_token_of_the_issuer_is_as_good_as_a_key(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_bytes(key_set("rsa"))
    jwt = {"ISSUER": ISSUER, "AUDIENCE": AUDIENCE, "JWKS_FILE": str(tmp_path / "jwks.json")}
    guarded = Guarded(tmp_path / "home", **{f"FIRN_AUTH__JWT__{name}": value for name, value in jwt.items()})
    try:
        listing = {"operation": "LIST_TABLES", "tenant_id": MINE, "namespace": "shop"}
        guarded.ok("root", create_table(MINE, "shop", "orders"))
        statuses = [
            guarded.send("POST", "/database", body={**listing, **more}, headers={"Authorization": f"Bearer {text}"})
            for text, more in (
                (token(roles=["reader:mine"]), {}),
                (token(roles=["reader"], tenants=["mine"]), {}),
                (token(roles=["reader:mine"]), {"tenant_id": OTHER}),
                (token(roles=[]), {}),
                (token(exp=1), {}),
                (forged({"alg": "none"}), {}),
            )
        ]
        assert [each.status_code for each in statuses] == [200, 200, 403, 403, 401, 401]
        guarded.ok("root", {**listing, "operation": "LIST_TABLES"})
    finally:
        guarded.app.stop()


def test_an_administrator_sees_the_audit_log_of_its_tenant_and_no_other(guarded: Guarded) -> None:
    guarded.ask("other", {"operation": "LIST_TABLES", "tenant_id": OTHER})
    log = {"operation": "AUDIT_LOG", "tenant_id": MINE}
    entries = guarded.ok("mine", log)["entries"]
    assert {entry["tenant_id"] for entry in entries} == {MINE}
    assert guarded.refused("mine", {**log, "tenant_id": OTHER})["code"] == "FORBIDDEN"
    assert guarded.refused("mine", {**log, "scope": "service"})["code"] == "FORBIDDEN"
    assert guarded.refused("writer", log)["code"] == "FORBIDDEN"
    assert guarded.refused("mine", {**log, "principal": "a\0"})["code"] == "INVALID_REQUEST"
    every = guarded.ok("root", {**log, "scope": "service", "limit": 1000})["entries"]
    assert {OTHER, MINE} <= {entry.get("tenant_id") for entry in every}


def test_no_secret_is_in_a_log_an_error_a_metric_or_a_response(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guarded.ok("mine", {"operation": "LIST_KEYS", "tenant_id": MINE, "include_ended": True})
    texts = [
        guarded.send("GET", "/metrics", "root").text,
        guarded.send("POST", "/database", "mine", body={"operation": "LIST_KEYS", "tenant_id": MINE}).text,
        guarded.send("POST", "/database", "root", body=b"{").text,
        guarded.send("POST", "/database", headers={"X-Api-Key": guarded.keys["root"][:-1]}).text,
        guarded.send("GET", "/nothing", "root").text,
        caplog.text,
    ]
    secret = re.compile(r"firn_[0-9A-Za-z]{10}_[0-9A-Za-z]{20}")
    assert [text for text in texts if secret.search(text)] == []
    for key in guarded.keys.values():
        assert key[16:40] not in "".join(texts)


def test_many_requests_at_once_have_each_their_own_sender(guarded: Guarded) -> None:
    wrong: list[Any] = []

    def many(key: str, tenant: str, status: int) -> None:
        for _ in range(20):
            found = guarded.send("POST", "/database", key, body={"operation": "LIST_TABLES", "tenant_id": tenant})
            if found.status_code != status:
                wrong.append((key, tenant, found.text))

    cases = [("mine", MINE, 200), ("mine", OTHER, 403), ("other", OTHER, 200), ("other", MINE, 403)]
    threads = [threading.Thread(target=many, args=case) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_local_command_needs_no_credential_because_it_can_open_the_ledger(guarded: Guarded) -> None:
    from service.cli.connection.in_process import InProcess

    assert InProcess(guarded.app).send(LIST)["success"]
    keys = guarded.app.parts[ApiKeys]
    assert [record.principal for record in keys.managed_by(LOCAL, OTHER)] == ["other"]
