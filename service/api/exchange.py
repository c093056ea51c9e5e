"""What the routes share: the service behind them, the call of a request, its body, and the response to it."""

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, Protocol, cast

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from service.api.docs_page import error_classes
from service.errors import BodyTooLarge, Cancelled, FirnError, InvalidRequest, RequestTimeout, TooManyRequests
from service.fairness.shares import SERVICE, Shares
from service.guard.policies import Policies, sees_all
from service.model import wire
from service.model.call import Call, Credential
from service.model.names import TableName, check_name
from service.operations.operation import Parts
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response as PipelineResponse
from service.settings import LimitSettings, Settings

log = logging.getLogger("firn.http")
_DRAIN_S = 5.0
# So many of its first bytes take a second: a client on the same machine would keep the event loop busy with them.
_DRAIN_SLOWLY = 64 << 20
# A response is sent in parts of this size, each once its client has read most of those before.
_PART = 64 * 1024
_CLIENT_GONE = 499  # as proxies call it
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# Parsed JSON takes about this many times its size.
_MEMORY_PER_BYTE = 8
# More, if it has many small values.
_MEMORY_PER_VALUE = 60
_MEMORY_PER_REQUEST = 8 * 1024
RETRY_AFTER = {"Retry-After": {"description": "seconds to wait before trying again", "schema": {"type": "integer"}}}


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
    def query_process(self) -> Literal["up", "starting"] | None: ...
    @property
    def busy(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class HeldMemory:
    """The memory that one request holds."""

    def __init__(self, budget: "MemoryBudget", sender: str) -> None:
        self._budget = budget
        self._sender = sender
        self.bytes = 0

    def add(self, size: int) -> None:
        """Take memory for more bytes of JSON; TooManyRequests if there is not enough."""
        self.take(size * _MEMORY_PER_BYTE)

    def add_values(self, body: bytes) -> None:
        """Take memory for a body whose bytes were added, if it has more values than its size shows."""
        self.take(max(0, wire.values_in(body) * _MEMORY_PER_VALUE - len(body) * _MEMORY_PER_BYTE))

    def take(self, size: int) -> None:
        self._budget.take(self._sender, size, self.bytes)
        self.bytes += size

    def release(self) -> None:
        self._budget.leave(self._sender, self.bytes)
        self.bytes = 0


class MemoryBudget:
    """Bounds the memory of all requests in progress, and of each sender's. A thousand small ones take less than a large
    one."""

    def __init__(self, memory_mb: int, body_mb: int, percent: int = 100) -> None:
        """It has room for the two largest bodies at least. One sender may use that much of it, in percent."""
        size = max(memory_mb, 2 * body_mb * _MEMORY_PER_BYTE) * 1024 * 1024
        self._shares = Shares(size, percent)

    @contextmanager
    def hold(self, sender: str = SERVICE) -> Iterator[HeldMemory]:
        """Memory for one request, given back at the end of the block."""
        held = HeldMemory(self, sender)
        try:
            held.take(_MEMORY_PER_REQUEST)
            yield held
        finally:
            held.release()

    @property
    def taken(self) -> int:
        return self._shares.taken

    def take(self, sender: str, size: int, held: int) -> None:
        """Take memory for a request that holds some already."""
        reached = self._shares.take(sender, size)
        if reached is None:
            return
        limit = self._shares.places if reached == "service" else self._shares.at_most
        if held + size > limit:
            raise BodyTooLarge(
                f"the body would take more memory than there is for one sender's requests ({limit >> 20} MiB, "
                "FIRN_LIMITS__MEMORY_MB, FIRN_LIMITS__TENANT_SHARE); send it in several requests"
            )
        whose = "the requests in progress" if reached == "service" else "your requests in progress"
        part = "all of the memory for requests" if reached == "service" else "their share of the memory"
        raise TooManyRequests(f"{whose} use {part} ({limit >> 20} MiB, FIRN_LIMITS__MEMORY_MB); try again in a second")

    @contextmanager
    def sending(self, sender: str, size: int) -> Iterator[None]:
        """Count a response while it is sent. It is not refused, but new requests may be."""
        self._shares.use(sender, size)
        try:
            yield
        finally:
            self._shares.leave(sender, size)

    def leave(self, sender: str, size: int) -> None:
        self._shares.leave(sender, size)


class ApiState:
    """The state of the application, found by its requests."""

    def __init__(self, service: HttpService) -> None:
        self.service = service
        self.pipeline = service.pipeline
        self.limits = limits = service.settings.limits
        self.budget = MemoryBudget(limits.memory_mb, limits.body_mb, limits.tenant_share)
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
        shown = Credential(*(tuple(request.headers.getlist(name)) for name in ("authorization", "x-api-key")))
        client = request.client.host if request.client else ""
        streams = request.scope["http_version"] != "1.0"
        call = Call(request_id, accept=accept, streams=streams, credential=shown, client=client)
        call.route = f"{request.method} {request.scope['path']}"
        request.state.call = call
    return call


async def authorised(request: Request, tenant: str, namespace: str, table: str) -> TableName:
    """The table that the path of a change names; Forbidden before its body is read if its sender may not change it."""
    name = TableName(check_name(tenant, "tenant_id"), check_name(namespace, "namespace"), check_name(table, "table"))
    call = call_of(request)
    await api_of(request).pipeline.authenticate(call)
    try:
        call.authorise(name, "writer")
        if not sees_all(call.principal, name):
            await asyncio.to_thread(api_of(request).service.parts[Policies].check_whole, call.principal, name)
    except FirnError:
        await drain(request)
        raise
    return name


def response_of(request: Request, response: PipelineResponse) -> Response:
    headers = response.headers(call_of(request).id)
    if response.status == RequestTimeout.status:
        headers["Connection"] = "close"
    return closing(request, JsonResponse(response.body, response.status, headers))


def closing(request: Request, response: Response) -> Response:
    """The response. If the service is stopping, it tells the client to send its next request on a new connection."""
    if api_of(request).service.state == "stopping":
        response.headers["Connection"] = "close"
    return response


class JsonResponse(Response):
    """A rendered response. If it is large, it is sent at its client's pace, but not for ever."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= _PART:
            return await super().__call__(scope, receive, send)
        request = Request(scope)
        api, call = api_of(request), call_of(request)
        with api.budget.sending(call.sender, len(self.body)):
            try:
                await self._send_parts(send, api.limits)
            except TimeoutError:  # returning without a last message makes the server break the connection
                log.warning("%s: its client read the response too slowly; the connection is closed", call.id)

    async def _send_parts(self, send: Send, limits: LimitSettings) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        latest = asyncio.get_running_loop().time() + limits.client_timeout_s
        for sent in range(0, len(self.body), _PART):
            part, more = bytes(self.body[sent : sent + _PART]), sent + _PART < len(self.body)
            # The server waits here until the client has read most of what was sent before.
            async with asyncio.timeout_at(latest + sent / limits.client_bytes_per_s):
                await send({"type": "http.response.body", "body": part, "more_body": more})


class NoResponse(Response):
    """Sends nothing: the client has hung up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        call = call_of(request)
        api_of(request).pipeline.audit_log.add(call, call.route, Cancelled.code, _CLIENT_GONE)


def check_flag(name: str, text: str) -> None:
    """Raise InvalidRequest if a query parameter is neither `true` nor `false`."""
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} is {text[:80]!r}; send true or false", field=name)


async def read_body(request: Request, held: HeldMemory) -> bytes:
    """The body of a request; BodyTooLarge beyond the limit, and TooManyRequests if there is no memory for it."""
    chunks: list[bytes] = []
    try:
        async for chunk in _within_limit(request):
            held.add(len(chunk))
            chunks.append(chunk)
        body = b"".join(chunks)
        held.add_values(body)
        return body
    except (BodyTooLarge, TooManyRequests):
        chunks.clear()
        held.release()
        await drain(request)
        raise


async def _within_limit(request: Request) -> AsyncIterator[bytes]:
    limit = api_of(request).limits.body_mb << 20
    error = BodyTooLarge(
        f"the body is larger than {limit >> 20} MiB; send many records to "
        "POST /tables/{tenant}/{namespace}/{table}/records, or in several requests, or raise FIRN_LIMITS__BODY_MB"
    )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise error
    size = 0
    async for chunk in received(request):
        size += len(chunk)
        if size > limit:
            raise error
        yield chunk


async def received(request: Request) -> AsyncIterator[bytes]:
    """The body of a request as it arrives; RequestTimeout if its client sends it too slowly."""
    limits, chunks = api_of(request).limits, aiter(request.stream())
    loop = asyncio.get_running_loop()
    size, waited = 0, 0.0
    while True:
        # Only the waits for the client count, not those of a reader that is busy with what came before.
        began, left = loop.time(), limits.client_timeout_s + size / limits.client_bytes_per_s - waited
        try:
            async with asyncio.timeout(max(0.0, left)):
                chunk = await anext(chunks, None)
        except TimeoutError as e:
            raise RequestTimeout(
                f"only {size} bytes of the body were received in {waited + loop.time() - began:.0f} s; send it faster"
            ) from e
        if chunk is None:
            return
        waited += loop.time() - began
        size += len(chunk)
        yield chunk


async def drain(request: Request) -> None:
    """Read the rest of a refused body for a while and throw it away, so that its client then reads the refusal."""
    if "expect" in request.headers:
        return  # the client has not begun to send the body
    # A RuntimeError means that the body was read to its end.
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError):
        loop = asyncio.get_running_loop()
        began, size = loop.time(), 0
        async with asyncio.timeout(_DRAIN_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size < _DRAIN_SLOWLY:
                    await asyncio.sleep(began + size / _DRAIN_SLOWLY - loop.time())


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone. The whole body must have been received."""
    while (await receive())["type"] != "http.disconnect":
        pass


_FAILURE: Any = {
    "success": False,
    "error": {
        "code": "INVALID_QUERY",
        "message": "filter: column 'wieght' does not exist in shop/parcels; did you mean 'weight'?",
        "field": "filter",
        "suggestion": "weight",
        "retryable": False,
    },
    "metadata": {"request_id": "7d9f3a520c4e4d0b9a525f0c1f7f8d11"},
}


class ErrorFields(BaseModel):
    """What went wrong."""

    code: str = Field(description="the kind of error, for programs")
    message: str = Field(description="what is wrong, where, and how to fix it, for people")
    field: str | SkipJsonSchema[None] = Field(default=None, description="the field of the request that is wrong")
    suggestion: str | SkipJsonSchema[None] = Field(
        default=None, description="the known name closest to a wrong one, or what to write instead"
    )
    retryable: bool = Field(description="whether the same request may succeed later")
    details: dict[str, Any] | SkipJsonSchema[None] = None


class FailureMetadata(BaseModel):
    request_id: str


class Failure(BaseModel):
    """The body of every error."""

    model_config = ConfigDict(json_schema_extra={"examples": [_FAILURE]})

    success: Literal[False]
    error: ErrorFields
    metadata: FailureMetadata


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route: those with these statuses, and any other."""
    declared: dict[int | str, dict[str, Any]] = {
        "default": {"model": Failure, "description": "a failure; its HTTP status fits its code"}
    }
    for status in statuses:
        codes = ", ".join(kind.code for kind in error_classes() if kind.status == status)
        declared[status] = {"model": Failure, "description": codes}
        if status in (429, 503):
            declared[status]["headers"] = RETRY_AFTER
    return declared
