"""The ways a request can come in: each takes a request, and gives the status and the body of its answer."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from service.api import events
from service.model import wire
from service.model.call import Call
from tests.harness import Firn

StatusAndBody = tuple[int, dict[str, Any]]
EntryPoint = Callable[[Firn, dict[str, Any]], StatusAndBody]

_V1 = {"resource": "/database", "path": "/database", "httpMethod": "POST", "headers": None, "isBase64Encoded": False}
_V2 = {
    "version": "2.0",
    "routeKey": "POST /database",
    "rawPath": "/database",
    "rawQueryString": "",
    "requestContext": {"http": {"method": "POST", "path": "/database"}, "stage": "$default"},
}


def http(firn: Firn, request: dict[str, Any]) -> StatusAndBody:
    response = firn.send(_text(request))
    return response.status_code, firn.parsed(response)


def v1_text(firn: Firn, request: dict[str, Any]) -> StatusAndBody:
    return status_and_body(firn.event({**_V1, "body": _text(request)}), request)


def v2_base64(firn: Firn, request: dict[str, Any]) -> StatusAndBody:
    coded = base64.b64encode(_text(request).encode()).decode()
    return status_and_body(firn.event({**_V2, "body": coded, "isBase64Encoded": True}), request)


def v2_object(firn: Firn, request: dict[str, Any]) -> StatusAndBody:
    return status_and_body(firn.event({**_V2, "body": request}), request)


def scheduled(firn: Firn, request: dict[str, Any]) -> StatusAndBody:
    event = {"version": "0", "detail-type": "Scheduled Event", "source": "aws.events", "detail": request}
    return status_and_body(firn.event(event), request)


def function(firn: Firn, request: dict[str, Any]) -> StatusAndBody:
    """The way a function runtime goes: in the process, the answer an object."""
    event = json.dumps({**_V1, "body": _text(request)})
    return status_and_body(
        wire.parse(asyncio.run(events.respond(event, firn.app.pipeline, Call("in-process")))), request
    )


ENTRY_POINTS: dict[str, EntryPoint] = {
    "http": http,
    "v1 text": v1_text,
    "v2 base64": v2_base64,
    "v2 object": v2_object,
    "scheduled": scheduled,
    "function": function,
}


def status_and_body(answer: dict[str, Any], request: Mapping[str, Any] = MappingProxyType({})) -> StatusAndBody:
    """The status and the body inside a function's answer."""
    assert set(answer) == {"statusCode", "headers", "body"}, answer
    assert answer["headers"]["Content-Type"] == "application/json"
    body = wire.parse(answer["body"])
    assert isinstance(body, dict)
    # A request that is sent again under its key is answered as it was the first time, with the id that it had then.
    assert "idempotency_key" in request or answer["headers"]["X-Request-Id"] == body["metadata"]["request_id"]
    return answer["statusCode"], body


def _text(request: dict[str, Any]) -> str:
    return json.dumps(request)
