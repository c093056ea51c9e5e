"""Authentication on a service with a running Spark: what SQL, joins, files and jobs reach with a credential."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from handlers import discover
from service.api import http
from service.dynamic.definitions import Definitions
from service.dynamic.rights import Creators
from service.errors import Forbidden
from service.identity.api_keys import ApiKeys
from service.identity.audit_log import AuditLog
from service.identity.identities import ChecksTokens, Identities
from service.ledger.audit import AuditFilter, AuditRecords
from service.ledger.ledger import Ledger
from service.metrics.metrics import Metrics
from service.model import wire
from service.model.identity.principal import LOCAL, Grant
from service.model.names import TableName
from service.operations.operation import Parts
from service.pipeline.pipeline import Pipeline
from service.settings import Settings
from service.settings.security import AuditSettings
from tests.harness import Firn, free_port, wait_until


class Guarded:
    """The running service behind a second door that asks for credentials."""

    ready, state, busy = True, "ready", False

    def __init__(self, firn: Firn, tokens: ChecksTokens | None = None) -> None:
        app = firn.app
        self.keys = app.parts[ApiKeys]
        self.audit = AuditLog(AuditSettings(), AuditRecords(app.parts[Ledger]), on=True)
        own = {Identities: Identities(True, self.keys, tokens), AuditLog: self.audit, Metrics: Metrics()}
        self.parts: Parts = app.parts.replaced(own)
        self.settings: Settings = app.settings
        self.pipeline = Pipeline(discover(), self.parts, app.settings.limits)
        port = free_port()
        config = uvicorn.Config(http.create(self), host="127.0.0.1", port=port, log_level="warning")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not on this thread
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, 30, every=0.01)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)

    def start(self) -> None: ...

    def stop(self) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(10)
        self.pipeline.close()

    def key(self, tenant: str, principal: str, *roles: str) -> dict[str, str]:
        """The header with a new key."""
        grants = [Grant.parse(role, "roles", tenant) for role in roles]
        return {"X-Api-Key": self.keys.create(LOCAL, tenant, principal, grants).text}

    def ask(self, key: dict[str, str], request: dict[str, Any], **headers: str) -> httpx.Response:
        return self.client.post("/database", content=wire.render(request), headers={**key, **headers})


@pytest.fixture(scope="module")
def guarded(firn: Firn) -> Iterator[Guarded]:
    made = Guarded(firn)
    yield made
    made.stop()


def test_a_credential_reaches_its_own_rows_and_no_others_by_whatever_name(
    guarded: Guarded, firn: Firn, tenant: str
) -> None:
    other = f"{tenant}-other"
    for owner in (tenant, other):
        for namespace, table in (("shop", "orders"), ("lab", "rats")):
            address = {"tenant_id": owner, "namespace": namespace, "table": table}
            fields = {"id": {"type": "long"}, "note": {"type": "string"}}
            firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": fields}})
            firn.ok({"operation": "WRITE", **address, "records": [{"id": 1, "note": f"secret of {owner} {namespace}"}]})
    shop = guarded.key(tenant, "shop", f"writer:{tenant}/shop")
    admin, stranger = guarded.key(tenant, "admin", "admin"), guarded.key(other, "admin", "admin")
    query = {"operation": "QUERY", "tenant_id": tenant, "namespace": "shop"}

    def rows(key: dict[str, str], **more: Any) -> Any:
        response = guarded.ask(key, {**query, **more})
        assert response.status_code == 200, response.text
        return response.json()["data"]

    assert rows(shop, table="orders") == rows(shop, sql="SELECT * FROM orders") == rows(shop, sql="FROM shop.orders")
    assert rows(admin, sql="SELECT count(*) AS n FROM shop.orders JOIN lab.rats USING (id)") == [{"n": 1}]

    # What the key for one namespace may not read, and what is in no namespace of the tenant.
    for sql in (
        *("SELECT * FROM lab.rats", "SELECT * FROM lab.missing", "SELECT * FROM nowhere.rats"),
        *("SELECT * FROM `lab`.`rats`", "SELECT * FROM LAB.rats", "WITH x AS (SELECT * FROM lab.rats) SELECT * FROM x"),
        "SELECT (SELECT max(note) FROM lab.rats) FROM orders",
        "SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM lab.rats)",
        "SELECT * FROM orders UNION ALL SELECT * FROM lab.rats",
    ):
        response = guarded.ask(shop, {**query, "sql": sql})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "FORBIDDEN"), sql
        assert "secret" not in response.text
    for sql in (
        *(f"SELECT * FROM `{other}`.orders", f"SELECT * FROM `{other}__shop`.orders"),
        *(f"SELECT * FROM firn.`{other}__shop`.orders", f"SELECT * FROM `{other}`.shop.orders"),
    ):
        for key in (shop, admin):
            response = guarded.ask(key, {**query, "sql": sql})
            assert response.status_code in (400, 403, 404), sql
            assert "secret" not in response.text
    foreign = [guarded.ask(stranger, {**query, **more}) for more in ({"table": "orders"}, {"sql": "FROM shop.orders"})]
    foreign += [guarded.ask(stranger, {**query, "table": "orders"}, Accept="text/csv")]
    assert [each.status_code for each in foreign] == [403] * 3

    # Files and jobs.
    path, ndjson = f"/tables/{tenant}/shop/orders/records", {"Content-Type": "application/x-ndjson"}
    body = b'{"id": 2, "note": "loaded"}\n'
    refused = guarded.client.post(path, content=body, headers={**stranger, **ndjson})
    assert refused.status_code == 403
    loaded = guarded.client.post(f"{path}?async=true", content=body, headers={**shop, **ndjson})
    job = loaded.json()["status_url"]
    assert guarded.client.get(job, headers=stranger).status_code == 404
    assert guarded.client.delete(job, headers=stranger).status_code == 404
    wait_until(lambda: guarded.client.get(job, headers=shop).json()["job"]["state"] == "done", 60)
    assert len(rows(shop, table="orders")) == 2

    # All of it is in the audit log, with the tables that SQL names.
    entries = guarded.audit.find(AuditFilter(tenant, principal=f"{tenant}/admin"), 10)
    joined = next(each for each in entries if each.outcome == "ok")
    assert set(joined.tables) >= {"shop/orders", "lab/rats"}
    assert guarded.audit.find(AuditFilter(tenant, principal=f"{other}/admin", outcome="FORBIDDEN"), 10)
    assert json.loads(loaded.content)["success"]


def test_dynamic_tables_read_what_their_creators_may_read(guarded: Guarded, firn: Firn, tenant: str) -> None:
    for namespace, table in (("shop", "orders"), ("lab", "rats")):
        address = {"tenant_id": tenant, "namespace": namespace, "table": table}
        firn.ok({"operation": "CREATE_TABLE", **address, "schema": {"fields": {"id": {"type": "long"}}}})
        firn.ok({"operation": "WRITE", **address, "records": [{"id": 1}]})
    shop, admin = guarded.key(tenant, "shop", f"writer:{tenant}/shop"), guarded.key(tenant, "admin", "admin")
    stranger = guarded.key(f"{tenant}-other", "admin", "admin")
    of_shop = {"tenant_id": tenant, "namespace": "shop"}

    def ask(key: dict[str, str], status: int, operation: str, **fields: Any) -> Any:
        response = guarded.ask(key, {"operation": operation, **of_shop, **fields})
        assert response.status_code == status, response.text
        return response.json()

    lag = {"target_lag": "1 hour"}
    ask(shop, 200, "CREATE_DYNAMIC_TABLE", table="own", query="SELECT id, count(*) AS n FROM orders GROUP BY id", **lag)
    both = "SELECT o.id FROM orders o JOIN lab.rats r ON o.id = r.id"
    refused = ask(shop, 403, "CREATE_DYNAMIC_TABLE", table="both", query=both, **lag)
    assert refused == {**refused, "error": {**refused["error"], "code": "FORBIDDEN"}}
    ask(shop, 404, "DESCRIBE_DYNAMIC_TABLE", table="both")
    ask(shop, 403, "EXPLAIN_DYNAMIC_TABLE", query=both)
    ask(stranger, 403, "EXPLAIN_DYNAMIC_TABLE", query="SELECT * FROM orders")
    made = ask(admin, 200, "CREATE_DYNAMIC_TABLE", table="both", query=both, **lag)
    assert [one["table"] for one in made["sources"]] == ["orders", "rats"]

    # Its rows are for readers of `shop`; the names of what it reads are not.
    firn.ok({"operation": "WRITE", **of_shop, "table": "orders", "records": [{"id": 1}]})
    read = ask(shop, 200, "QUERY", table="both")
    assert read["data"] == [{"id": 1}]
    for answer in (
        read["metadata"]["dynamic_tables"],
        ask(shop, 200, "DESCRIBE_DYNAMIC_TABLE", table="both")["dynamic_table"],
        ask(shop, 200, "REFRESH_HISTORY", table="both")["refreshes"],
        ask(shop, 200, "REFRESH_DYNAMIC_TABLE", table="both")["tables"],
        ask(shop, 200, "AUDIT_DYNAMIC_TABLE", table="both")["sources"],
    ):
        assert "rats" not in json.dumps(answer)
    ask(shop, 403, "EXPLAIN_DYNAMIC_TABLE", table="both")
    assert len(ask(admin, 200, "QUERY", table="both")["metadata"]["dynamic_tables"][0]["sources"]) == 2

    # Whoever replaces the query is its creator from then on.
    definitions = guarded.parts[Definitions]

    def owner_of() -> str:
        return definitions.load(TableName(tenant, "shop", "own"))[1].definition.owner or ""

    assert f'"{tenant}/shop"' in owner_of()
    again = {"table": "own", "query": "SELECT id, count(*) AS n FROM orders GROUP BY id", "replace": True, **lag}
    assert ask(admin, 200, "CREATE_DYNAMIC_TABLE", **again)["change"] == "nothing"
    assert f'"{tenant}/admin"' in owner_of()

    # Once the creator has lost the rights, nothing is refreshed with them.
    creators = Creators(guarded.parts[Identities].of_owner)
    definition = definitions.load(TableName(tenant, "shop", "both"))[1].definition
    creators.check(definition)
    [key] = [one for one in ask(admin, 200, "LIST_KEYS")["keys"] if one["principal"].endswith("admin")]
    guarded.keys.revoke(LOCAL, tenant, key["key_id"])
    with pytest.raises(Forbidden, match="its creator"):
        creators.check(definition)
