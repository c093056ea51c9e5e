"""POST /database: one request runs one operation."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from service.api.exchange import api_of, call_of, closing, disconnected, read_body, response_of
from service.api.failures import failures
from service.api.stream import StreamResponse
from service.operations.operation import Operation
from service.queries.streaming.accept import MEDIA_TYPES

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
            **failures(400, 404, 409, 413, 422, 429, 500, 503, 504),
        },
        openapi_extra=_models(operations),
    )
    return routes


async def database(request: Request) -> Response:
    # FastAPI would read the numbers of the body as floats, and render the response again.
    api, call = api_of(request), call_of(request)
    with api.budget.hold() as held:
        body = await read_body(request, held)
        key = request.headers.get("idempotency-key")
        response = await api.pipeline.respond_to(body, call, key, partial(disconnected, request.receive))
        if response.stream is not None:
            return closing(request, StreamResponse(response.stream, call, api.limits.stream_idle_timeout_s))
        return response_of(request, response)


def _models(operations: list[Operation]) -> dict[str, Any]:
    """The union of all requests, told apart by `operation`, and that of all results."""
    requests = {o.name: _ref(o.request) for o in operations}
    mapping = {name: ref["$ref"] for name, ref in requests.items()}
    request = {
        "oneOf": list(requests.values()),
        "discriminator": {"propertyName": "operation", "mapping": mapping},
    }
    result = {"oneOf": [_ref(o.result) for o in operations]}
    return {
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
            for name, text in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {"200": {"content": {"application/json": {"schema": result}}}},
    }


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF + model.__name__}
