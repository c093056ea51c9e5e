"""Events ↔ requests: each form is understood, and whatever is not is answered, never thrown."""

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from service import app as composition
from service.api import events
from service.app import App, lambda_handler
from service.model import wire
from service.model.call import Call
from service.operations.operation import ChangeRequest, Request, Result, operation
from service.pipeline.pipeline import Pipeline
from service.settings import load


class Ask(Request):
    operation: Literal["ECHO"]
    value: Any = None


class Said(Result):
    read: str
    value: Any


@operation(Ask, Said, pool="queries")
def echo(request: Ask) -> Said:
    """Say it back."""
    wide = isinstance(request.value, int) and request.value.bit_length() > 63
    return Said(read=repr(request.value), value=None if wide else request.value)


class Add(ChangeRequest):
    operation: Literal["ADD"]


@operation(Add, Said, pool="edits")
def add(request: Add, call: Call) -> Said:
    """Say which key it came with."""
    return Said(read=call.key.text if call.key else "", value=call.id)


class Service:
    """A service that only echoes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def answer(self, event: Any, request_id: str) -> bytes:
        text = event if isinstance(event, bytes | str) else json.dumps(event)
        return asyncio.run(events.respond(text, self.pipeline, Call(request_id)))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    app = App(load({"FIRN_HOME": str(tmp_path_factory.mktemp("home"))}), [])
    pipeline = Pipeline([echo, add], app.parts, app.settings.limits)
    yield Service(pipeline)
    pipeline.close()
    app.stop()


def result(event: Any, service: Service) -> tuple[int, Any, dict[str, Any]]:
    answer = wire.parse(service.answer(event, "r1"))
    assert set(answer) == {"statusCode", "headers", "body"}
    return answer["statusCode"], wire.parse(answer["body"]), answer["headers"]


REQUEST = {"operation": "ECHO", "tenant_id": "a", "value": [1, "é😀"]}
TEXT = json.dumps(REQUEST, ensure_ascii=False)
CODED = base64.b64encode(TEXT.encode()).decode()
V1 = {"httpMethod": "POST", "path": "/database"}
V2 = {"version": "2.0", "rawPath": "/database", "requestContext": {"http": {"method": "POST", "path": "/database"}}}
FORMS: dict[str, dict[str, Any]] = {
    "v1 text": {**V1, "body": TEXT},
    "v1 text, said not to be base64": {**V1, "body": TEXT, "isBase64Encoded": False},
    "v1 base64": {**V1, "body": CODED, "isBase64Encoded": True},
    "v1 object": {**V1, "body": REQUEST},
    "v2 text": {**V2, "body": TEXT},
    "v2 base64": {**V2, "body": CODED, "isBase64Encoded": True},
    "v2 object": {**V2, "body": REQUEST},
    "a closing slash": {**V1, "path": "/database/", "body": TEXT},
    "a method in small letters": {**V1, "httpMethod": "post", "body": TEXT},
    "nulls where v1 has them": {**V1, "queryStringParameters": None, "headers": None, "body": TEXT},
    "scheduled": {"source": "aws.events", "detail-type": "Scheduled Event", "detail": REQUEST},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_event_carries_the_same_request(form: str, service: Service) -> None:
    status, message, headers = result(FORMS[form], service)
    assert (status, message["success"], message["value"]) == (200, True, [1, "é😀"])
    assert headers == {"Content-Type": "application/json", "X-Request-Id": "r1"}


@pytest.mark.parametrize("form", ["v1 text", "scheduled"])
def test_an_event_may_come_as_text_or_bytes(form: str, service: Service) -> None:
    text = json.dumps(FORMS[form])
    assert result(text, service)[0] == result(text.encode(), service)[0] == 200


@pytest.mark.parametrize("event", [{"httpMethod": "GET", "path": "/health"}, {"httpMethod": "GET", "path": "/health/"}])
def test_health_is_answered_without_a_request(event: dict[str, Any], service: Service) -> None:
    status, message, _ = result(event, service)
    assert (status, message) == (200, events.HEALTHY)


@pytest.mark.parametrize(
    ("event", "status", "code", "field"),
    [
        ({**V1, "path": "/databse", "body": TEXT}, 404, "NOT_FOUND", "path"),
        ({**V1, "path": "/", "body": TEXT}, 404, "NOT_FOUND", "path"),
        ({**V1, "path": "/ready"}, 404, "NOT_FOUND", "path"),
        ({**V1, "httpMethod": "GET"}, 405, "METHOD_NOT_ALLOWED", None),
        ({"httpMethod": "POST", "path": "/health"}, 405, "METHOD_NOT_ALLOWED", None),
        (V1, 400, "INVALID_REQUEST", "body"),
        ({**V1, "body": None}, 400, "INVALID_REQUEST", "body"),
        ({**V1, "body": ""}, 400, "INVALID_REQUEST", "body"),
        ({**V1, "body": "{"}, 400, "INVALID_REQUEST", None),
        ({**V1, "body": "[]"}, 400, "INVALID_REQUEST", None),
        ({**V1, "body": 5}, 400, "INVALID_REQUEST", None),
        ({**V1, "body": False}, 400, "INVALID_REQUEST", None),
        ({**V1, "body": "é?", "isBase64Encoded": True}, 400, "INVALID_REQUEST", "body"),
        ({**V1, "body": "/w==", "isBase64Encoded": True}, 400, "INVALID_REQUEST", None),
        ({**V1, "body": '{"operation": "EHCO", "tenant_id": "a"}'}, 400, "UNKNOWN_OPERATION", "operation"),
        ({"source": "aws.events"}, 400, "INVALID_REQUEST", "detail"),
        ({"source": "aws.events", "detail": "LIST"}, 400, "INVALID_REQUEST", "detail"),
        ({"source": "aws.events", "detail": {}}, 400, "INVALID_REQUEST", "detail"),
        ({"source": "aws.s3", "detail": REQUEST}, 400, "INVALID_REQUEST", None),
        ({"httpMethod": 5, "path": ["/database"]}, 400, "INVALID_REQUEST", None),
        ({"rawPath": "/database", "requestContext": "http"}, 400, "INVALID_REQUEST", None),
        ({"rawPath": "/database", "requestContext": {"http": None}}, 400, "INVALID_REQUEST", None),
        (REQUEST, 400, "INVALID_REQUEST", None),
        ({}, 400, "INVALID_REQUEST", None),
        (b"{", 400, "INVALID_REQUEST", None),
        (b"[]", 400, "INVALID_REQUEST", None),
        (b"\xff", 400, "INVALID_REQUEST", None),
    ],
)
def test_a_wrong_event_is_answered_with_a_fitting_status(
    event: Any, status: int, code: str, field: str | None, service: Service
) -> None:
    got, message, _ = result(event, service)
    assert (got, message["success"], message["error"]["code"]) == (status, False, code)
    assert message["error"].get("field") == field
    assert message["metadata"] == {"request_id": "r1"}


@pytest.mark.parametrize("door", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_an_events_header_is_the_key_of_its_request(door: dict[str, Any], name: str, service: Service) -> None:
    body = json.dumps({"operation": "ADD", "tenant_id": "a", "table": f"{name}-{len(door)}"})
    event = {**door, "headers": {"X-Other": "o", name: "k1"}, "body": body}
    first = service.answer(event, "r1")
    message = wire.parse(wire.parse(first)["body"])
    assert (message["read"], message["value"]) == ("k1", "r1")
    again = wire.parse(service.answer(event, "r2"))
    assert again["body"] == wire.parse(first)["body"]
    assert again["headers"]["X-Request-Id"] == "r2"


@pytest.mark.parametrize("headers", [None, [], "k1", {}, {"Idempotency-Key": 5}, {"Idempotency-Key": None}])
def test_headers_that_hold_no_key_are_none(headers: Any, service: Service) -> None:
    body = {"operation": "ADD", "tenant_id": "a", "table": "t"}
    status, message, _ = result({**V1, "headers": headers, "body": body}, service)
    assert (status, message["read"]) == (200, "")


def test_a_header_and_a_field_that_differ_are_refused(service: Service) -> None:
    body = {"operation": "ADD", "tenant_id": "a", "table": "t", "idempotency_key": "k2"}
    status, message, _ = result({**V1, "headers": {"Idempotency-Key": "k1"}, "body": body}, service)
    assert (status, message["error"]["field"]) == (400, "idempotency_key")


def test_a_header_is_of_no_use_to_what_changes_nothing(service: Service) -> None:
    assert result({**V1, "headers": {"Idempotency-Key": "k1"}, "body": TEXT}, service)[0] == 200


class Runtime:
    """What a function runtime hands over beside the event."""

    aws_request_id = "from-the-runtime"


def test_a_function_runtime_gets_the_answer_as_an_object(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "_for_events", service)
    answer = lambda_handler({**V1, "body": TEXT}, Runtime())
    assert answer["statusCode"] == 200
    assert wire.parse(answer["body"])["metadata"]["request_id"] == "from-the-runtime"
    assert lambda_handler({**V1, "body": TEXT}, None)["headers"]["X-Request-Id"]


@pytest.mark.parametrize(
    ("value", "read"),
    [(19.9, "Decimal('19.9')"), (2**63 - 1, str(2**63 - 1)), (10**37, str(10**37)), ("19.9", "'19.9'"), (1, "1")],
)
def test_a_value_that_a_runtime_has_parsed_already_is_read_as_it_was_sent(
    value: Any, read: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "_for_events", service)
    answer = lambda_handler({**V1, "body": {**REQUEST, "value": value}}, Runtime())
    assert wire.parse(answer["body"])["read"] == read


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_a_value_that_json_does_not_have_is_refused_by_a_function_too(
    value: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "_for_events", service)
    answer = lambda_handler({**V1, "body": {**REQUEST, "value": value}}, Runtime())
    assert (answer["statusCode"], wire.parse(answer["body"])["error"]["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(("size", "elsewhere"), [(10, False), (1 << 20, True)])
def test_a_large_event_is_parsed_beside_the_event_loop(
    service: Service, monkeypatch: pytest.MonkeyPatch, size: int, elsewhere: bool
) -> None:
    parsed_on: list[bool] = []
    parse = wire.parse

    def noted(text: bytes | str) -> Any:
        parsed_on.append(threading.current_thread() is not threading.main_thread())
        return parse(text)

    monkeypatch.setattr(wire, "parse", noted)
    request = {"operation": "ECHO", "tenant_id": "a", "value": "x" * size}
    answer = parse(service.answer({"source": "aws.events", "detail": request}, "r"))
    assert answer["statusCode"] == 200
    assert set(parsed_on) == {elsewhere}
