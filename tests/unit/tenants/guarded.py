"""A service with authentication on, whose Spark was never started, and clients with different credentials."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from service.api import http
from service.app import App
from service.identity.api_keys import ApiKeys
from service.model import wire
from service.model.identity.principal import LOCAL, Grant
from service.settings import load

MINE, OTHER = "mine", "other"
# Each with the tenant whose key it is.
ROLES = {
    "mine": (MINE, "admin:mine"),
    "reader": (MINE, "reader:mine"),
    "writer": (MINE, "writer:mine"),
    "shop": (MINE, "writer:mine/shop"),
    "other": (OTHER, "admin:other"),
    "root": ("ops", "admin:*"),
    "metrics": ("ops", "reader:*"),
}


class Guarded:
    """The service, its keys by name, and requests to it by HTTP."""

    def __init__(self, home: Path, **environ: str) -> None:
        # Without Spark, what has begun and needs it will not end.
        given = {"FIRN_HOME": str(home), "FIRN_AUTH__REQUIRED": "true", "FIRN_LIMITS__STOP_TIMEOUT_S": "1", **environ}
        self.app = App(load(given), [])
        self.http = http.create(self.app)
        keys = self.app.parts[ApiKeys]
        self.keys = {
            name: keys.create(LOCAL, tenant, name, [Grant.parse(role, "roles")]).text
            for name, (tenant, role) in ROLES.items()
        }

    def send(
        self,
        method: str,
        path: str,
        key: str | None = None,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """The response to a request with the key of that name, or with none."""
        shown = {} if key is None else {"Authorization": f"Bearer {self.keys[key]}"}
        content = body if isinstance(body, bytes | str | None) else wire.render(body)

        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(self.http, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://firn", timeout=60) as client:
                return await client.request(method, path, content=content, headers={**shown, **(headers or {})})

        return asyncio.run(run())

    def ask(self, key: str | None, request: Mapping[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
        response = self.send("POST", "/database", key, body=dict(request), headers=headers)
        return response.status_code, wire.parse(response.content)

    def ok(self, key: str, request: Mapping[str, Any]) -> dict[str, Any]:
        status, body = self.ask(key, request)
        assert status < 300, body
        return body

    def refused(self, key: str | None, request: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """The error of a request, without what differs each time."""
        status, body = self.ask(key, request, **headers)
        assert not body["success"], (request, body)
        return {"status": status, **body["error"]}


def create_table(tenant: str, namespace: str, table: str) -> dict[str, Any]:
    fields = {"id": {"type": "long", "required": True}, "name": {"type": "string"}}
    address = {"tenant_id": tenant, "namespace": namespace, "table": table}
    return {"operation": "CREATE_TABLE", **address, "schema": {"fields": fields}}
