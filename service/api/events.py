"""Requests in Lambda-style events: of API Gateway v1 and v2, and of schedules."""

import base64
import binascii
from typing import Any

from service.errors import FirnError, InvalidRequest, MethodNotAllowed, NotFound
from service.model import wire
from service.model.call import Call, Credential
from service.model.identity.principal import ANYONE
from service.pipeline.pipeline import Pipeline
from service.pipeline.response import Response
from service.pipeline.waiting import Disconnected

INVOCATIONS = "/2015-03-31/functions/function/invocations"
HEALTHY = {"status": "healthy", "service": "firn"}
_PATHS = {"/database": "POST", "/health": "GET"}


async def respond(
    event: bytes | str, pipeline: Pipeline, call: Call, disconnected: Disconnected | None = None
) -> bytes:
    """The response to an event, as JSON text: `statusCode`, `headers` and `body`."""
    call.room.is_inside_json = True
    try:
        value: Any = await pipeline.value_of(event, call)
        request, key = _request(value), _header(value, "idempotency-key")
        _take_credential(value, call)
    except FirnError as e:
        return _rendered(pipeline.refuse(e, call), call)
    if request is None:
        return _rendered(Response(200, wire.render(HEALTHY)), call)
    return _rendered(await pipeline.respond_to(request, call, key, disconnected), call)


def _request(event: Any) -> Any:
    """The request inside an event; None if it is a health check."""
    if not isinstance(event, dict):
        raise InvalidRequest("the event must be a JSON object")
    if event.get("source") == "aws.events":
        detail = event.get("detail")
        if not isinstance(detail, dict):
            raise InvalidRequest("detail must contain the request as an object", field="detail")
        if not detail:  # as in the event of a rule without an input
            raise InvalidRequest(
                "detail is empty; give the rule's target a constant input with the request in detail", field="detail"
            )
        return detail
    method = event.get("httpMethod") or _at(event, "requestContext", "http", "method")
    path = event.get("path") or event.get("rawPath")
    if not isinstance(method, str) or not isinstance(path, str):
        raise InvalidRequest(
            "the event is neither API Gateway v1 (httpMethod, path, body), nor v2 (rawPath, "
            'requestContext.http.method, body), nor scheduled ("source": "aws.events", detail)'
        )
    expected = _PATHS.get(path.rstrip("/") or "/")
    if expected is None:
        raise NotFound(f"{path[:200]} does not exist; the paths are {', '.join(_PATHS)}", field="path")
    if method.upper() != expected:
        raise MethodNotAllowed(f"{path} takes {expected}, not {method[:20]}")
    return _body(event) if expected == "POST" else None


def _take_credential(event: Any, call: Call) -> None:
    """Use the credential in an event instead of the one that the event was sent with, if it has one."""
    found = [(_header(event, name),) for name in ("authorization", "x-api-key")]
    if found != [(None,), (None,)]:
        call.credential = Credential(*(tuple(filter(None, each)) for each in found))
        call.principal = ANYONE


def _header(event: Any, name: str) -> str | None:
    headers = event.get("headers") if isinstance(event, dict) else None
    for key, value in headers.items() if isinstance(headers, dict) else ():
        if key.lower() == name and isinstance(value, str):
            return value
    return None


def _body(event: dict[str, Any]) -> Any:
    body = event.get("body")
    if body is None or body == "":
        raise InvalidRequest("body is missing; it must contain the request", field="body")
    if not isinstance(body, str) or event.get("isBase64Encoded") is not True:
        return body
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as e:
        raise InvalidRequest("body is not base64 although isBase64Encoded is true", field="body") from e


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _rendered(response: Response, call: Call) -> bytes:
    headers = {"Content-Type": "application/json", **response.headers(call.id)}
    body = response.body.decode().rstrip("\n")
    return wire.render({"statusCode": response.status, "headers": headers, "body": body})
