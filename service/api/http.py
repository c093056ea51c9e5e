"""The HTTP application: its routes, the responses to requests that fail, and serving it until the service stops."""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from service import VERSION
from service.api import bulk, database, guard, ingest, invocations, monitoring
from service.api.connections import bounded
from service.api.database import REF
from service.api.docs_page import content_security_policy, guides, page
from service.api.events import INVOCATIONS
from service.api.exchange import ApiState, HttpService, NoResponse, api_of, call_of, response_of
from service.api.resources import dynamic, jobs
from service.api.server import IdleStop, Server
from service.errors import FirnError, InvalidRequest, MethodNotAllowed, NotFound, nearest
from service.metrics.catalogue import BULK, NONE
from service.operations.operation import Operation
from service.settings import Settings

Mode = Literal["validation", "serialization"]
log = logging.getLogger("firn.http")
_SWITCH_S = 0.001
ROUTES = {
    database.DATABASE: "POST",
    INVOCATIONS: "POST",
    bulk.RECORDS: "POST",
    ingest.PATH: "POST",
    jobs.JOB: "GET and DELETE",
    dynamic.TABLES: "GET and POST",
    dynamic.TABLE: "GET, PATCH and DELETE",
    dynamic.REFRESH: "POST",
    dynamic.AUDIT: "POST",
    dynamic.HISTORY: "GET",
    "/health": "GET",
    "/ready": "GET",
    "/metrics": "GET",
    "/docs": "GET",
    "/docs/{folder}/{guide}": "GET",
    "/openapi.json": "GET",
}


class _App(FastAPI):
    """FastAPI behind the guard of all routes.

    Requests for operations bypass FastAPI's layers, which would cost a third of what Python does for one of many
    WRITEs, and make their batches smaller (docs/decisions/0020-many-small-writes.md).
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not hasattr(self.state, "api"):
            return await super().__call__(scope, receive, send)
        scope["app"] = self
        request = Request(scope, receive, send)
        if refusal := await guard.refusal(request):
            return await (await _refused(request, refusal))(scope, receive, send)
        if scope["path"] != database.DATABASE or scope["method"] != "POST":
            return await super().__call__(scope, receive, guard.audited(request, send))
        try:
            response = await database.database(request)
        except ClientDisconnect as e:
            response = await _hung_up(request, e)
        except Exception as e:
            response = await _refused(request, e)
        await response(scope, receive, send)


def create(service: HttpService) -> FastAPI:
    """The ASGI application of a service."""
    app = declare(service.pipeline.operations)
    app.state.api = ApiState(service)
    return app


def declare(operations: list[Operation]) -> FastAPI:
    """The application with its routes for these operations, and no service behind it yet."""
    app = _App(
        title="Firn",
        version=VERSION,
        description="JSON requests over Apache Iceberg tables",
        docs_url=None,
        redoc_url=None,
    )
    routers = (invocations.router, bulk.router, ingest.router, jobs.router, dynamic.router, monitoring.router)
    for router in (database.router(operations), *routers):
        app.include_router(router)
    app.add_api_route("/docs", partial(_docs, cache(partial(page, operations))), include_in_schema=False)
    app.add_api_route("/docs/{folder}/{guide}", _guide, include_in_schema=False)
    # FastAPI's hook for the document at /openapi.json.
    app.openapi = cache(partial(document, app, operations))  # type: ignore[method-assign]
    app.add_exception_handler(ClientDisconnect, _hung_up)
    for failure in (FirnError, HTTPException, Exception):
        app.add_exception_handler(failure, _refused)
    return app


def _docs(rendered: Callable[[], str]) -> HTMLResponse:
    return HTMLResponse(rendered(), headers={"Content-Security-Policy": content_security_policy()})


def _guide(folder: str, guide: str) -> Response:
    """A page of the documentation as text."""
    path = guides().get(f"{folder}/{guide}")
    if path is None:
        raise NotFound(f"there is no guide {folder[:80]}/{guide[:80]}; GET /docs lists them", suggestion="/docs")
    return Response(path.read_text(encoding="utf-8"), media_type="text/plain; charset=utf-8")


async def _hung_up(request: Request, error: Exception) -> Response:
    return NoResponse()


async def _refused(request: Request, error: Exception) -> Response:
    """The response to a request that failed outside the pipeline."""
    if isinstance(error, HTTPException):
        error = _no_route(request, error)
    operation = BULK if request.url.path.startswith("/tables/") else NONE
    return response_of(request, api_of(request).pipeline.refuse(error, call_of(request), operation))


def _no_route(request: Request, error: HTTPException) -> FirnError:
    path = request.url.path
    if error.status_code == 405:
        methods = ROUTES.get(path) or ROUTES[request.scope["route"].path]
        return MethodNotAllowed(f"{path} takes {methods}, not {request.method}")
    if error.status_code == 404:
        near = nearest(path, ROUTES)
        hint = f"did you mean {near}?" if near else f"the paths are {', '.join(ROUTES)}"
        return NotFound(f"{path[:200]} does not exist; {hint}", suggestion=near)
    return InvalidRequest(f"the HTTP request cannot be read: {error.detail}")


def serve(service: HttpService, local: socket.socket | None, idle_timeout_s: float | None = None) -> int:
    """Start the service in the background, listen at once, and return the exit code when it has stopped.

    `local` is the socket of the home. With `idle_timeout_s` the service listens only there, and stops after that
    time without a request.
    """
    settings = service.settings
    app: ASGIApp = create(service)
    if idle_timeout_s is not None:
        app = idle = IdleStop(app)
        idle.stop_after(idle_timeout_s, lambda: service.busy, lambda: os.kill(os.getpid(), signal.SIGTERM))
    config: Any = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        **tls(settings),
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        http=bounded(settings.limits),
        ws="none",
    )
    server = Server(config, service.stop, local)
    service.start()
    scheme = "http" if settings.tls.certificate is None else "https"
    address = f"{scheme}://{settings.host}:{settings.port}" if idle_timeout_s is None else "a socket"
    log.info("listening on %s, data under %s", address, settings.home)
    with suppress(FirnError):  # the ledger may not respond yet
        if service.pipeline.identities.lack_keys:
            log.warning("requests need a key, and there is none: `firn key create NAME --role 'admin:*' --offline`")
    # Threads that compute hand over to the event loop sooner than Python's 5 ms.
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # garbage collection is much cheaper if it does not scan what was imported
    try:
        server.run(sockets=None if idle_timeout_s is None else [])
    finally:
        service.stop()
    return 0 if server.started else 1


def tls(settings: Settings) -> dict[str, Any]:
    """The server's options for TLS; none if the service speaks plain HTTP."""
    files = {"ssl_certfile": settings.tls.certificate, "ssl_keyfile": settings.tls.key}
    return {} if settings.tls.certificate is None else files


def document(app: FastAPI, operations: list[Operation]) -> dict[str, Any]:
    """The whole document; every example in it is one that tests run."""
    described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    # The route of the operations parses its body itself, so that FastAPI does not know their models.
    requests: list[tuple[type[BaseModel], Mode]] = [(o.request, "validation") for o in operations]
    results: list[tuple[type[BaseModel], Mode]] = [
        (model, "serialization") for model in dict.fromkeys(m for o in operations for m in (o.result, *o.also))
    ]
    _, models = models_json_schema([*requests, *results], ref_template=REF + "{model}")
    described["components"]["schemas"] |= models["$defs"]
    guard.declare(described)
    # Nor are these declared with the route: FastAPI leaves out every null in it.
    post = described["paths"][database.DATABASE]["post"]
    examples = [(f"{o.name}_{i}", f"{o.name}: {e.title}", e) for o in operations for i, e in enumerate(o.examples, 1)]
    post["requestBody"]["content"]["application/json"]["examples"] = {
        name: {"summary": summary, "value": example.request} for name, summary, example in examples
    }
    for status in (200, 202):
        post["responses"][str(status)]["content"]["application/json"]["examples"] = {
            name: {"summary": summary, "value": example.answer}
            for name, summary, example in examples
            if example.status == status
        }
    return described
