"""A client that knows only the OpenAPI document can build a request of every operation."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from handlers import discover
from service.api.http import declare
from service.operations.dynamic.declaration import DeclarationRequest
from service.operations.ingest_requests import ConfigRequest
from service.operations.operation import Operation
from tests.contract.openapi import problems, resolve

OPERATIONS = discover()
# Table files and dataset files have rules of their own.
FILES = {"config": {"name": "t"}, "dataset": {"columns": [{"name": "c", "type": "DATE"}]}}
DECLARED = {"table": "t", "query": "SELECT a FROM b", "target_lag": "1 day"}
STATEMENT = "CREATE DYNAMIC TABLE t TARGET_LAG = '1 day' AS SELECT a FROM b"
TEXTS = ("t", "1", "01:00-05:30 UTC")
DOCUMENT: dict[str, Any] = declare(OPERATIONS).openapi()
REQUEST = DOCUMENT["paths"]["/database"]["post"]["requestBody"]["content"]["application/json"]["schema"]


def built(schema: Any) -> Any:
    """A value that fits a schema; an object has its required fields only."""
    if schema is True or not schema.keys() & {"$ref", "const", "enum", "anyOf", "type"}:
        return {}
    if "$ref" in schema:
        return built(resolve(schema["$ref"], DOCUMENT))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return built(schema["anyOf"][0])
    if schema["type"] == "object":
        return {name: built(schema["properties"][name]) for name in schema.get("required", ())}
    if schema["type"] == "array":
        return [built(schema.get("items", True))] * schema.get("minItems", 1)
    text = next(text for text in TEXTS if re.search(schema.get("pattern", ""), text))
    plain: dict[str, Any] = {"string": text, "integer": schema.get("minimum", 1), "boolean": True, "number": 1}
    return plain[schema["type"]]


def _named(operation: Operation) -> dict[str, Any]:
    """What says which table a request is about, if that may be said in several ways."""
    if issubclass(operation.request, DeclarationRequest):
        return DECLARED
    if not issubclass(operation.request, ConfigRequest):
        return {}
    needs_file = operation.request.model_fields["config"].is_required()
    return {"table": "t", **({"config": FILES["config"]} if needs_file else {})}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_the_required_fields_of_the_document_are_those_that_the_service_requires(operation: Operation) -> None:
    schema = resolve(REQUEST["discriminator"]["mapping"][operation.name], DOCUMENT)
    request = built(schema) | _named(operation)
    assert problems(request, REQUEST, DOCUMENT) == []
    operation.request.model_validate(request)
    for name in schema["required"]:
        with pytest.raises(ValidationError, match=f"(?m)^{name}$"):
            operation.request.model_validate({key: value for key, value in request.items() if key != name})


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_every_field_of_the_document_is_known_with_its_type(operation: Operation) -> None:
    schema = resolve(REQUEST["discriminator"]["mapping"][operation.name], DOCUMENT)
    request = built(schema) | _named(operation)
    for name, field in schema["properties"].items():
        if name == "sql" and issubclass(operation.request, DeclarationRequest):
            said = {key: value for key, value in request.items() if key not in DECLARED}
            operation.request.model_validate({**said, "sql": STATEMENT})
        else:
            operation.request.model_validate({**request, name: FILES.get(name) or DECLARED.get(name) or built(field)})
