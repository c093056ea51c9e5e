"""What the routes share: the service behind them, the call of a request, its body, and the response to it."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, cast

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from service.api.memory_budget import HeldMemory, MemoryBudget
from service.errors import BodyTooLarge
from service.model.call import Call
from service.operations.operation import Parts
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response as PipelineResponse
from service.settings import Settings

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class HttpService(Protocol):
    """What the routes need of the service behind them."""

    settings: Settings
    parts: Parts
    pipeline: Pipeline

    @property
    def ready(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def busy(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class ApiState:
    """The state of the application, found by its requests."""

    def __init__(self, service: HttpService) -> None:
        self.service = service
        self.pipeline = service.pipeline
        self.limits = limits = service.settings.limits
        self.budget = MemoryBudget(limits.memory_mb, limits.body_mb)
        # An exposition takes long if there are many tables: one is written at a time, beside the event loop.
        self.scrapes = ThreadPoolExecutor(1, thread_name_prefix="firn-metrics")
        service.pipeline.metrics.read("firn_request_memory_bytes", lambda: self.budget.taken)


def api_of(request: Request) -> ApiState:
    return cast(ApiState, request.app.state.api)


def call_of(request: Request) -> Call:
    """The call of a request, the same each time. It has the id that the client sent, if that is well-formed."""
    call: Call | None = getattr(request.state, "call", None)
    if call is None:
        given = request.headers.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        accept = ", ".join(request.headers.getlist("accept"))
        # In HTTP/1.0 a response ends with its connection, so that a stream that broke off would look complete.
        call = Call(request_id, accept=accept, streams=request.scope["http_version"] != "1.0")
        request.state.call = call
    return call


def response_of(request: Request, response: PipelineResponse) -> Response:
    headers = response.headers(call_of(request).id)
    return closing(request, Response(response.body, response.status, headers, media_type="application/json"))


def closing(request: Request, response: Response) -> Response:
    """The response. If the service is stopping, it tells the client to send its next request on a new connection."""
    if api_of(request).service.state == "stopping":
        response.headers["Connection"] = "close"
    return response


class NoResponse(Response):
    """Sends nothing: the client has hung up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass


async def read_body(request: Request, held: HeldMemory) -> bytes:
    """The body of a request; BodyTooLarge beyond the limit, and TooManyRequests if there is no memory for it."""
    limit = api_of(request).limits.body_mb << 20
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


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone. The whole body must have been received."""
    while (await receive())["type"] != "http.disconnect":
        pass
