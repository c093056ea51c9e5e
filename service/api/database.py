"""POST /database: one request runs one operation."""

import asyncio
import logging
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from service.api.exchange import api_of, call_of, closing, disconnected, failures, read_body, response_of
from service.model.call import Call
from service.operations.operation import AcceptedResult, Operation, Result
from service.pipeline.waiting import watching
from service.queries.streaming.accept import MEDIA_TYPES
from service.queries.streaming.streams import Stream

log = logging.getLogger("firn.http")
DATABASE = "/database"
REF = "#/components/schemas/"
_STREAM = {
    "schema": {
        "type": "string",
        "contentEncoding": "binary",
        "description": "the rows of a QUERY as a stream, if Accept asks for it; all other responses are JSON",
    }
}
_HEADERS = {
    "Idempotency-Key": "the same as `idempotency_key` in the body",
    "X-Request-Id": "an id of your own for this request: 1 to 128 letters, digits or any of `._:-`",
}


def router(operations: list[Operation]) -> APIRouter:
    """The route, described by the models of these operations."""
    routes = APIRouter()
    routes.add_api_route(
        DATABASE,
        database,
        methods=["POST"],
        operation_id="database",
        summary="Run one operation",
        description="\n".join(f"- **{o.name}**: {o.summary}" for o in operations),
        response_description="success: the operation's own fields, flat",
        responses={
            200: {"content": {media: _STREAM for form, media in MEDIA_TYPES.items() if form != "json"}},
            202: {"description": "the work goes on as a job"},
            **failures(400, 401, 403, 404, 408, 409, 413, 422, 429, 431, 500, 503, 504),
        },
        openapi_extra=_models(operations),
    )
    return routes


async def database(request: Request) -> Response:
    # FastAPI would read the numbers of the body as floats, and render the response again.
    api, call = api_of(request), call_of(request)
    with api.budget.hold(call.sender) as held:
        body = await read_body(request, held)
        key = request.headers.get("idempotency-key")
        response = await api.pipeline.respond_to(body, call, key, partial(disconnected, request.receive))
        if response.stream is not None:
            return closing(request, StreamResponse(response.stream, call, api.limits.stream_idle_timeout_s))
        return response_of(request, response)


def _models(operations: list[Operation]) -> dict[str, Any]:
    """The union of all requests, told apart by `operation`, and that of all results, the most specific first."""
    requests = {o.name: _ref(o.request) for o in operations}
    mapping = {name: ref["$ref"] for name, ref in requests.items()}
    request = {"oneOf": list(requests.values()), "discriminator": {"propertyName": "operation", "mapping": mapping}}
    others = [model for o in operations for model in o.also]
    accepted = list(dict.fromkeys(model for model in others if issubclass(model, AcceptedResult)))
    results = dict.fromkeys([*(o.result for o in operations), *others])
    # Not `oneOf`: a generated client that checks it would refuse what fits two results in its loose reading.
    found = _most_specific_first([model for model in results if model not in accepted])
    result = {"anyOf": [_ref(model) for model in found]}
    return {
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
            for name, text in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {"content": {"application/json": {"schema": result}}},
            "202": {"content": {"application/json": {"schema": {"anyOf": [_ref(model) for model in accepted]}}}},
        },
    }


def _fields(schema: dict[str, Any], which: str) -> set[str]:
    """The names of a result's fields, or of its required ones, and of those of its plan."""
    own, plan = set(schema[which]), schema["properties"].get("plan", {}).get("$ref")
    return own if plan is None else own | {f"plan.{name}" for name in schema["$defs"][plan.rpartition("/")[2]][which]}


def _most_specific_first(results: list[type[Result]]) -> list[type[Result]]:
    """The order in which the first result whose required fields a response has is the right one.

    Responses do not name their operation, so this is how generated clients find the class.
    """
    schemas = {result: result.model_json_schema(mode="serialization") for result in results}

    def fitting(result: type[Result]) -> int:
        """How many results a response might be taken for."""
        own = _fields(schemas[result], "properties")
        return sum(own >= _fields(schema, "required") for schema in schemas.values())

    return sorted(results, key=fitting, reverse=True)


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF + model.__name__}


class StreamResponse(StreamingResponse):
    """Sends a stream at the client's pace.

    If it breaks off, the connection does too, so that the client does not take a part for the whole.
    """

    def __init__(self, stream: Stream, call: Call, idle_timeout_s: float) -> None:
        """`idle_timeout_s` is how long the client may read nothing."""
        headers = {"X-Request-Id": call.id}
        if stream.snapshot_id is not None:
            headers["X-Firn-Snapshot-Id"] = str(stream.snapshot_id)
        super().__init__((), headers=headers, media_type=stream.media_type)
        self._stream = stream
        self._call = call
        self._idle_timeout_s = idle_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Returning without a last message makes the server break the connection."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            # Only until the last message: after that, the server reports every client as gone.
            async with watching(self._call, partial(disconnected, receive)):
                await self._send_chunks(send)
            if not self._call.cancelled:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            log.warning(
                "%s: its client read nothing for %g s; the stream is aborted", self._call.id, self._idle_timeout_s
            )
        except Exception as e:
            log.info("%s: its stream failed, and its connection is broken: %s", self._call.id, e)
        finally:
            self._stream.close()

    async def _send_chunks(self, send: Send) -> None:
        while chunk := await asyncio.wrap_future(self._stream.advance()):
            if self._call.cancelled:
                return
            # A stream whose client reads nothing would hold snapshots and disk.
            async with asyncio.timeout(self._idle_timeout_s):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
