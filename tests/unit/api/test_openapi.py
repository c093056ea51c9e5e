"""The published description: whole, and true of every example."""

import json
from collections.abc import Iterator
from typing import Any, cast

import openapi_spec_validator
import pytest

from handlers import discover
from service.api import events
from service.api.docs_page import error_classes
from service.api.http import ROUTES, declare
from service.app import openapi
from service.operations.operation import Example, Operation
from tests.contract.openapi import problems, resolve

OPERATIONS = discover()
DOCUMENT: dict[str, Any] = declare(OPERATIONS).openapi()
POST = DOCUMENT["paths"]["/database"]["post"]
REQUEST = POST["requestBody"]["content"]["application/json"]
ANSWERS = {status: POST["responses"][str(status)]["content"]["application/json"] for status in (200, 202)}
JOB = {
    "id": "j1",
    "kind": "BULK",
    "table": {"tenant_id": "a", "namespace": "b", "table": "t"},
    "state": "running",
    "progress": {"phase": "staged", "records": 1, "bytes": 2},
    "created_at": "2026-01-01T00:00:00Z",
}
METADATA = {"request_id": "r", "execution_time_ms": 1}
EXAMPLES = [pytest.param(o, e, id=f"{o.name}: {e.title}") for o in OPERATIONS for e in o.examples]


def every(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (item for name, item in value.items() if name == key)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from every(item, key)


def _options(answer: dict[str, Any]) -> list[dict[str, Any]]:
    schema = answer["schema"]
    options: list[dict[str, Any]] = schema.get("oneOf") or schema["anyOf"]
    return options


def test_every_operation_is_described() -> None:
    assert set(REQUEST["schema"]["discriminator"]["mapping"]) == {o.name for o in OPERATIONS}
    assert len(REQUEST["schema"]["oneOf"]) == len(OPERATIONS)
    results = {schema["$ref"].rpartition("/")[2] for answer in ANSWERS.values() for schema in _options(answer)}
    assert results == {model.__name__ for o in OPERATIONS for model in (o.result, *o.also)}
    assert all(f"**{o.name}**: {o.summary}" in POST["description"] for o in OPERATIONS)


def test_every_route_is_described() -> None:
    assert set(DOCUMENT["paths"]) == {path for path in ROUTES if not path.startswith("/docs")} - {"/openapi.json"}
    assert events.INVOCATIONS in DOCUMENT["paths"]


def test_every_reference_leads_somewhere() -> None:
    references = [*every(DOCUMENT, "$ref"), *REQUEST["schema"]["discriminator"]["mapping"].values()]
    assert references
    assert all(isinstance(resolve(ref, DOCUMENT), dict) for ref in references)


def test_a_validator_of_the_specification_accepts_it() -> None:
    openapi_spec_validator.validate(cast(Any, DOCUMENT))


def test_the_document_is_json() -> None:
    assert json.loads(openapi()) == json.loads(json.dumps(DOCUMENT))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_a_request_takes_no_field_that_is_not_described(operation: Operation) -> None:
    schema = resolve(REQUEST["schema"]["discriminator"]["mapping"][operation.name], DOCUMENT)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["operation"]["const"] == operation.name
    assert {"operation", "tenant_id"} <= set(schema["required"])
    assert "schema_" not in schema["properties"]


@pytest.mark.parametrize(("operation", "example"), EXAMPLES)
def test_an_examples_request_fits_its_operation_and_no_other(operation: Operation, example: Example) -> None:
    own = resolve(REQUEST["schema"]["discriminator"]["mapping"][operation.name], DOCUMENT)
    assert problems(example.request, own, DOCUMENT) == []
    for request in (example.request, *example.given):
        assert problems(request, REQUEST["schema"], DOCUMENT) == []


@pytest.mark.parametrize(("operation", "example"), EXAMPLES)
def test_an_examples_answer_fits_one_result(operation: Operation, example: Example) -> None:
    own = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in (operation.result, *operation.also)]
    assert problems(example.answer, {"oneOf": own}, DOCUMENT) == []
    assert problems(example.answer, ANSWERS[example.status]["schema"], DOCUMENT) == []


@pytest.mark.parametrize(("operation", "example"), EXAMPLES)
def test_a_generated_client_finds_the_class_of_a_response(operation: Operation, example: Example) -> None:
    """It takes the first one whose required fields are there, and those of its plan: responses do not name their
    operation."""
    if example.status == 202:
        return  # long work responds in one way, whatever the operation
    names = [option["$ref"].rpartition("/")[2] for option in _options(ANSWERS[200])]
    schemas = DOCUMENT["components"]["schemas"]

    def fits(schema: dict[str, Any], answer: dict[str, Any]) -> bool:
        plan = schema["properties"].get("plan", {}).get("$ref")
        inner = plan is None or fits(resolve(plan, DOCUMENT), answer.get("plan", {}))
        return set(schema.get("required", ())) <= answer.keys() and inner

    first = next(name for name in names if fits(schemas[name], example.answer))
    assert first in {model.__name__ for model in (operation.result, *operation.also)}


def test_every_body_that_a_route_takes_has_an_example() -> None:
    taken = [
        m["requestBody"]["content"] for path in DOCUMENT["paths"].values() for m in path.values() if "requestBody" in m
    ]
    assert len(taken) == 7
    for content in taken:
        for media_type, body in content.items():
            assert {"example", "examples"} & body.keys() or media_type.endswith(
                ("arrow.stream", "parquet", "octet-stream")
            ), media_type


def test_a_failure_is_described_as_it_is() -> None:
    message = {
        "success": False,
        "error": {"code": "A", "message": "b", "field": "c", "suggestion": "d", "retryable": False, "details": {}},
        "metadata": {"request_id": "r"},
    }
    schema = POST["responses"]["default"]["content"]["application/json"]["schema"]
    for example in (message, *resolve(schema["$ref"], DOCUMENT)["examples"]):
        assert problems(example, schema, DOCUMENT) == []
    assert problems({**message, "success": True}, schema, DOCUMENT)
    assert problems({"success": False}, schema, DOCUMENT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "LIST_TABLES"},
        {"operation": "LIST_TABLES", "tenant_id": 5},
        {"operation": "LIST_TABLES", "tenant_id": "a", "tabel": "b"},
        {"operation": "LIST_TABELS", "tenant_id": "a"},
        {"operation": "QUERY", "tenant_id": "a", "table": "b", "limit": 0},
        {"operation": "WRITE", "tenant_id": "a", "table": "b", "records": [], "mode": "apend"},
    ],
)
def test_what_the_service_refuses_does_not_fit_the_description_either(wrong: dict[str, Any]) -> None:
    assert problems(wrong, REQUEST["schema"], DOCUMENT)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_examples_are_published_as_they_are(operation: Operation) -> None:
    def published(content: dict[str, Any]) -> list[Any]:
        title = f"{operation.name}: "
        return [v["value"] for v in content["examples"].values() if v["summary"].startswith(title)]

    assert published(REQUEST) == [example.request for example in operation.examples]
    for status, content in ANSWERS.items():
        assert published(content) == [e.answer for e in operation.examples if e.status == status]


def test_every_error_status_is_described_with_its_codes() -> None:
    codes = {status: response["description"] for status, response in POST["responses"].items() if status.isdigit()}
    for kind in error_classes():
        assert kind.status == 405 or kind.code in codes[str(kind.status)]
    assert codes["504"] == "DEADLINE_EXCEEDED"


def test_every_429_and_503_says_when_to_try_again() -> None:
    responses = [
        r for path in DOCUMENT["paths"].values() for method in path.values() for r in method["responses"].items()
    ]
    busy = [response for status, response in responses if status in ("429", "503")]
    assert len(busy) > 5
    assert all("Retry-After" in response["headers"] for response in busy)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/health", events.HEALTHY),
        ("/ready", {"ready": True, "state": "ready"}),
        ("/jobs/{id}", {"success": True, "job": JOB, "metadata": METADATA}),
        ("/jobs/{id}", {"success": True, "job": {**JOB, "cancelling": True}, "metadata": METADATA}),
        ("/jobs/{id}", {"success": True, "job": {**JOB, "error": {"code": "A"}}, "metadata": METADATA}),
    ],
)
def test_what_the_other_routes_respond_fits_its_description(path: str, body: dict[str, Any]) -> None:
    schema = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert problems(body, schema, DOCUMENT) == []
    assert problems(dict.fromkeys(body, 1), schema, DOCUMENT)


def test_the_document_says_which_credentials_the_routes_take() -> None:
    document = declare(discover()).openapi()
    schemes = document["components"]["securitySchemes"]
    assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "bearer")
    assert (schemes["apiKey"]["in"], schemes["apiKey"]["name"]) == ("header", "X-Api-Key")
    assert document["security"] == [{"bearer": []}, {"apiKey": []}, {}]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if path in ("/health", "/ready"):
                assert operation["security"] == []
            else:
                assert "security" not in operation
                assert "401" in operation["responses"], path
    for status, code in (("401", "UNAUTHENTICATED"), ("403", "FORBIDDEN")):
        assert document["paths"]["/database"]["post"]["responses"][status]["description"] == code
