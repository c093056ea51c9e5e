"""A running Firn as tests see it: the whole service in this process, behind real HTTP."""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from service.api import http
from service.api.events import INVOCATIONS
from service.app import App
from service.host import jars
from service.model import wire
from service.settings import ROOT, Settings


class Firn:
    """A client of one running service. Responses are parsed as Firn parses requests: numbers exact, never floats."""

    def __init__(self, base_url: str, app: App | None = None, home: Path | None = None) -> None:
        self.base_url = base_url
        self._app = app
        self._home = home
        # Without the certificates, which take longer to load than a request takes.
        self.client = httpx.Client(base_url=base_url, timeout=120, verify=False)

    @property
    def app(self) -> App:
        """The service itself, for tests that look at its state."""
        assert self._app is not None, "this service runs in another process"
        return self._app

    @property
    def home(self) -> Path:
        assert self._home is not None
        return self._home

    def post(self, request: Any) -> dict[str, Any]:
        """The body of the response, success or failure."""
        return self.parsed(self.send(request))

    def send(self, request: Any) -> httpx.Response:
        content = request if isinstance(request, str | bytes) else wire.render(request)
        return self.client.post("/database", content=content, headers={"Content-Type": "application/json"})

    def ok(self, request: dict[str, Any]) -> dict[str, Any]:
        """The response to a request that must succeed."""
        response = self.send(request)
        body = self.parsed(response)
        assert (response.status_code, body["success"]) == (202 if "status_url" in body else 200, True), body
        return body

    def fail(self, request: Any, code: str, status: int | None = None) -> dict[str, Any]:
        """The `error` of a request that must be refused with this code."""
        response = self.send(request)
        body = self.parsed(response)
        assert (body["success"], body.get("error", {}).get("code")) == (False, code), body
        assert status is None or response.status_code == status, response.status_code
        error: dict[str, Any] = body["error"]
        return error

    def event(self, event: Any) -> dict[str, Any]:
        """The response to an event: statusCode, headers, body as text."""
        response = self.client.post(INVOCATIONS, content=wire.render(event))
        assert response.status_code == 200, response.text
        return self.parsed(response)

    def rows(self, tenant: str, table: str, **query: Any) -> list[dict[str, Any]]:
        """A QUERY's rows, of all pages unless the query has a limit."""
        request = {"operation": "QUERY", "tenant_id": tenant, "table": table, "limit": 100_000, **query}
        page = self.ok(request)
        data: list[dict[str, Any]] = page["data"]
        while "limit" not in query and "next_cursor" in page:
            page = self.ok({**request, "cursor": page["next_cursor"]})
            data += page["data"]
        return data

    @staticmethod
    def parsed(response: httpx.Response) -> dict[str, Any]:
        value = wire.parse(response.content)
        assert isinstance(value, dict), value
        return value


class Running:
    """Starts a whole service in this process and stops it again; one at a time, as there is one JVM to a process."""

    def __init__(self, settings: Settings) -> None:
        self.app = App(settings, jars.locate(ROOT / "config" / "jars.lock", jars.cache_dir(os.environ)))
        config = uvicorn.Config(http.create(self.app), host=settings.host, port=settings.port, log_level="warning")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not on this thread
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self.firn = Firn(f"http://{settings.host}:{settings.port}", self.app, settings.home)

    def start(self) -> Firn:
        self.app.start()
        self._thread.start()
        wait_until(lambda: self.firn.client.get("/ready").status_code == 200, 180)
        return self.firn

    def stop(self) -> None:
        self.app.stop()
        self._server.should_exit = True
        self._thread.join(10)
        self.firn.client.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_until(condition: Any, seconds: float, every: float = 0.1) -> None:
    """Wait until a condition holds. A condition that cannot connect yet counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (httpx.TransportError, OSError):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not hold within {seconds} s")
        time.sleep(every)
