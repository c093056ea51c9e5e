"""The HTTP edge: routes, request ids, the body limit, and a stop that loses nothing."""

import asyncio
import logging
import os
import re
import signal
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, Protocol, TypeVar

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from service import envelope, events, http_bulk, http_stream
from service.budget import Budget, Held
from service.docs_page import page
from service.errors import BodyTooLarge, FirnError, InternalError, InvalidRequest, MethodNotAllowed, NotFound, nearest
from service.http_idle import Idle
from service.http_server import Server
from service.loads import JOB, RECORDS
from service.metrics.catalogue import BULK, NONE
from service.openapi import document
from service.router import Answer, Router
from service.settings import Settings

log = logging.getLogger("firn.http")
ROUTES = ("/database", events.INVOCATIONS, RECORDS, JOB, "/health", "/ready", "/metrics", "/docs", "/openapi.json")
_LARGE_BODY = 256 * 1024
P = ParamSpec("P")
T = TypeVar("T")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Service(Protocol):
    """What this edge needs of the service behind it."""

    settings: Settings
    router: Router

    @property
    def ready(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def busy(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


def create(service: Service) -> ASGIApp:
    """The ASGI application. It holds no state of its own."""
    app = FastAPI(title="Firn", docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    limits = service.settings.limits
    limit = limits.body_mb * 1024 * 1024
    budget = Budget(limits.memory_mb, limits.body_mb)
    metrics = service.router.context.metrics
    metrics.read("firn_request_memory_bytes", lambda: budget.taken)
    # Long where there are many tables: one is written at a time, beside the loop.
    scrapes = ThreadPoolExecutor(1, thread_name_prefix="firn-metrics")

    def closing(response: Response) -> Response:
        # A stop closes connections; a client that was told so does not send its next request into one.
        if service.state == "stopping":
            response.headers["Connection"] = "close"
        return response

    @app.post("/database", include_in_schema=False)
    async def database(request: Request) -> Response:
        request_id = _request_id(request)
        key = request.headers.get("idempotency-key")
        caller = http_stream.caller_of(request)
        with budget.hold() as held:
            body = await _body(request, limit, held)
            answer = _aside(len(body), service.router.submit, body, request_id, key, caller)
            del body
            told = await http_stream.heard(request, caller, asyncio.wrap_future(await answer))
            if told.stream is not None:
                return closing(http_stream.Streamed(told.stream, request_id, caller, limits.stream_stall_s))
            return closing(_response(told, request_id))

    @app.post(events.INVOCATIONS, include_in_schema=False)
    async def invocations(request: Request) -> Response:
        request_id = _request_id(request)
        headers = {"X-Request-Id": request_id}
        with budget.hold() as held:
            body = await _body(request, limit, held)
            answer = _aside(len(body), events.submit, body, service, request_id)
            del body
            told = await asyncio.wrap_future(await answer)
        return closing(Response(told, media_type="application/json", headers=headers))

    http_bulk.register(app, service.router, _request_id, _response)

    @app.get("/health", include_in_schema=False)
    async def health() -> JSONResponse:
        return JSONResponse(events.HEALTHY)

    @app.get("/ready", include_in_schema=False)
    async def ready() -> JSONResponse:
        headers = {} if service.ready else {"Retry-After": "1"}
        return JSONResponse(
            {"ready": service.ready, "state": service.state}, 200 if service.ready else 503, headers=headers
        )

    @app.get("/metrics", include_in_schema=False)
    async def scrape(request: Request) -> Response:
        accept = request.headers.get("accept")
        text, content_type = await asyncio.wrap_future(scrapes.submit(metrics.exposition, accept))
        return closing(Response(text, media_type=content_type))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(service.router.operations))

    # FastAPI's hook for the document behind /openapi.json.
    app.openapi = lambda: document(service.router.operations)  # type: ignore[method-assign]

    @app.exception_handler(FirnError)
    async def refused(request: Request, error: FirnError) -> Response:
        request_id = _request_id(request)
        metrics.request(BULK if request.url.path.startswith("/tables/") else NONE, error.code)
        wait = 1 if error.status == 429 else None
        return _response(Answer(error.status, envelope.failure(error, request_id), wait), request_id)

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        return await refused(request, _no_route(request, error))

    @app.exception_handler(Exception)
    async def defect(request: Request, _: Exception) -> Response:
        request_id = _request_id(request)
        metrics.request(NONE, InternalError.code)
        return _response(service.router.defect(request_id), request_id)

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        # Requests for operations go straight in: the layers around the other routes cost more than most WRITEs do here.
        if scope["type"] != "http" or scope["path"] != "/database" or scope["method"] != "POST":
            return await app(scope, receive, send)
        request = Request(scope, receive, send)
        try:
            response = await database(request)
        except FirnError as e:
            response = await refused(request, e)
        except ClientDisconnect:
            return None
        except Exception as e:
            response = await defect(request, e)
        await response(scope, receive, send)

    return door


async def _aside(size: int, submit: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read a large body on another thread, so that the loop goes on answering."""
    if size > _LARGE_BODY:
        return await asyncio.to_thread(submit, *args, **kwargs)
    return submit(*args, **kwargs)


def _no_route(request: Request, error: HTTPException) -> FirnError:
    path = request.url.path
    if error.status_code == 405:
        right = "POST" if path in ("/database", events.INVOCATIONS) or path.startswith("/tables/") else "GET"
        right = "GET and DELETE" if path.startswith("/jobs/") else right
        return MethodNotAllowed(f"{path} takes {right}, not {request.method}")
    if error.status_code == 404:
        near = nearest(path, ROUTES)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(ROUTES)}"
        return NotFound(f"there is no {path[:200]} here; {hint}", suggestion=near)
    return InvalidRequest(f"the HTTP request cannot be read: {error.detail}")


def _request_id(request: Request) -> str:
    """The caller's own id where it is a sane one, else a new one; the same for the whole request."""
    given: str | None = getattr(request.state, "request_id", None) or request.headers.get("x-request-id")
    request.state.request_id = given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
    return str(request.state.request_id)


async def _body(request: Request, limit: int, held: Held) -> bytes:
    declared = request.headers.get("content-length", "")
    chunks, size = [], int(declared) if declared.isdigit() else 0
    if size <= limit:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                break
            held.add(len(chunk))
            chunks.append(chunk)
    if size > limit:
        raise BodyTooLarge(
            f"the body is larger than {limit >> 20} MiB; send the records in several requests, "
            "or raise FIRN_LIMITS__BODY_MB"
        )
    return b"".join(chunks)


def _response(answer: Answer, request_id: str) -> Response:
    headers = {"X-Request-Id": request_id}
    if answer.retry_after_s is not None:
        headers["Retry-After"] = str(answer.retry_after_s)
    return Response(answer.body, answer.status, headers, media_type="application/json")


def serve(service: Service, local: socket.socket | None, idle_s: float | None = None) -> int:
    """Listen at once, start the service in the background, return when it has stopped.

    `local` is the socket of the home. With `idle_s` it is the only one, and nobody's asking for so long is the end.
    """
    settings = service.settings
    door = create(service)
    alone = idle_s is not None
    if idle_s is not None:
        door = idle = Idle(door)
        idle.end_after(idle_s, lambda: service.busy, lambda: os.kill(os.getpid(), signal.SIGTERM))
    config: Any = uvicorn.Config(
        door,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
    )
    server = Server(config, service.stop, local)
    service.start()
    where = "a socket" if alone else f"http://{settings.host}:{settings.port}"
    log.info("listening on %s, data under %s", where, settings.home)
    try:
        server.run(sockets=[] if alone else None)
    finally:
        service.stop()
    return 0 if server.started else 1
