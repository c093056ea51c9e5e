"""Lambda-style events ↔ requests: API Gateway v1 and v2, and scheduled events."""

import base64
import binascii
import json
import os
import threading
from concurrent.futures import Future
from typing import Any, Protocol, cast

from service import envelope, wire
from service.errors import FirnError, InvalidRequest, MethodNotAllowed, NotFound
from service.metrics.catalogue import NONE
from service.router import Answer, Router

INVOCATIONS = "/2015-03-31/functions/function/invocations"
HEALTHY = {"status": "healthy", "service": "firn"}
_PATHS = {"/database": "POST", "/health": "GET"}


class Service(Protocol):
    """What an event needs of the service behind it."""

    router: Router


def submit(event: bytes | str | dict[str, Any], service: Service, request_id: str) -> "Future[bytes]":
    """Start an event's request; the future ends in the event's answer as JSON text, never in an exception."""
    try:
        value: Any = wire.parse(event) if isinstance(event, bytes | str) else event
        request, key = _request(value), _header(value, "idempotency-key")
    except FirnError as e:
        service.router.context.metrics.request(NONE, e.code)
        return _settled(_answered(Answer(e.status, envelope.failure(e, request_id)), request_id))
    if request is None:
        return _settled(_answered(Answer(200, wire.render(HEALTHY)), request_id))
    answer: Future[bytes] = Future()
    answer.set_running_or_notify_cancel()  # as the router's
    asked = service.router.submit(request, request_id, key)
    asked.add_done_callback(lambda done: answer.set_result(_answered(done.result(), request_id)))
    return answer


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """The entry point for a function runtime; Spark starts with the first event and stays for the next."""
    request_id = str(getattr(context, "aws_request_id", "") or os.urandom(16).hex())
    # A runtime has parsed an object body with floats already; their shortest text is what was sent.
    answer = submit(json.dumps(event, default=str), _service(), request_id).result()
    return cast(dict[str, Any], wire.parse(answer))


def _request(event: Any) -> Any:
    """The request inside an event; None where the event only asks whether the service lives."""
    if not isinstance(event, dict):
        raise InvalidRequest("the event must be a JSON object")
    if event.get("source") == "aws.events":
        detail = event.get("detail")
        if not isinstance(detail, dict):
            raise InvalidRequest("detail must hold the request as an object", field="detail")
        if not detail:  # as a rule's own event has it
            raise InvalidRequest(
                "detail is empty; give the rule's target a constant input with the request in detail", field="detail"
            )
        return detail
    http = _at(event, "requestContext", "http")
    method = event.get("httpMethod") or (http.get("method") if isinstance(http, dict) else None)
    path = event.get("path") or event.get("rawPath")
    if not isinstance(method, str) or not isinstance(path, str):
        raise InvalidRequest(
            "the event is neither API Gateway v1 (httpMethod, path, body), nor v2 (rawPath, "
            'requestContext.http.method, body), nor scheduled ("source": "aws.events", detail)'
        )
    expected = _PATHS.get(path.rstrip("/") or "/")
    if expected is None:
        raise NotFound(f"there is no {path[:200]} here; there are {', '.join(_PATHS)}", field="path")
    if method.upper() != expected:
        raise MethodNotAllowed(f"{path} takes {expected}, not {method[:20]}")
    return _body(event) if expected == "POST" else None


def _header(event: Any, name: str) -> str | None:
    headers = event.get("headers") if isinstance(event, dict) else None
    for key, value in headers.items() if isinstance(headers, dict) else ():
        if key.lower() == name and isinstance(value, str):
            return value
    return None


def _body(event: dict[str, Any]) -> Any:
    body = event.get("body")
    if body is None or body == "":
        raise InvalidRequest("body is missing; it must hold the request", field="body")
    if not isinstance(body, str):
        return body
    if event.get("isBase64Encoded") is not True:
        return body
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as e:
        raise InvalidRequest("body is not base64 although isBase64Encoded is true", field="body") from e


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _answered(answer: Answer, request_id: str) -> bytes:
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
    if answer.retry_after_s is not None:
        headers["Retry-After"] = str(answer.retry_after_s)
    body = answer.body.decode().rstrip("\n")
    return wire.render({"statusCode": answer.status, "headers": headers, "body": body})


def _settled(answer: bytes) -> "Future[bytes]":
    future: Future[bytes] = Future()
    future.set_result(answer)
    return future


_starting = threading.Lock()
_running: Service | None = None


def _service() -> Service:
    global _running
    with _starting:
        if _running is None:
            from service import app  # the one arrow upward: a function runtime enters the house here

            started = app.build()
            started.start()
            _running = started
        return _running
