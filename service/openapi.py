"""The OpenAPI description, from the operations' own models and examples."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service import VERSION, envelope
from service.events import INVOCATIONS
from service.openapi_bulk import bulk_paths
from service.operation import Operation
from service.streams.accept import MEDIA_TYPES

Mode = Literal["validation", "serialization"]
Refs = Mapping[Any, dict[str, Any]]
_REF = "#/components/schemas/{model}"
_ERROR = envelope.schema(
    False,
    error={
        "type": "object",
        "required": ["code", "message", "retryable"],
        "properties": {
            "code": {"type": "string"},
            "message": {"type": "string"},
            "field": {"type": "string"},
            "suggestion": {"type": "string"},
            "retryable": {"type": "boolean"},
            "details": {"type": "object"},
        },
    },
)
_STATUS = {"200": "yes", "503": "not yet, or not any more"}
_STREAM = {
    "schema": {
        "type": "string",
        "contentEncoding": "binary",
        "description": "a QUERY's rows, streamed, where Accept asks for them so; all other answers are JSON",
    }
}
_METRICS = {
    "description": "Prometheus' text format, or OpenMetrics where Accept asks for it",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_EVENT = {
    "type": "object",
    "description": "an API Gateway event (v1 or v2) whose body is a request, or a scheduled event with it in detail",
}


def document(operations: list[Operation]) -> dict[str, Any]:
    """The whole document; every example in it is one that tests run."""
    requests: list[tuple[type[BaseModel], Mode]] = [(o.request, "validation") for o in operations]
    results: list[tuple[type[BaseModel], Mode]] = [(o.result, "serialization") for o in operations]
    refs, defs = models_json_schema([*requests, *results], ref_template=_REF)
    schemas = {**defs.get("$defs", {}), "Failure": _ERROR}
    for ref in (refs[(o.result, "serialization")]["$ref"] for o in operations):
        _add_success(schemas[ref.rpartition("/")[2]])
    summary = "\n".join(f"- **{o.name}**: {o.summary}" for o in operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Firn", "version": VERSION, "description": "JSON requests over Apache Iceberg tables"},
        "paths": {
            "/database": {
                "post": {
                    "summary": "Run one operation",
                    "operationId": "database",
                    "description": summary,
                    "requestBody": _request_body(operations, refs),
                    "responses": _answers(operations, refs),
                }
            },
            INVOCATIONS: {
                "post": {
                    "summary": "Run one operation from a Lambda-style event",
                    "operationId": "invocations",
                    "requestBody": {"required": True, "content": {"application/json": {"schema": _EVENT}}},
                    "responses": {"200": {"description": '{"statusCode", "headers", "body": "<json>"}'}},
                }
            },
            **bulk_paths(_written(operations, refs), {"$ref": _REF.format(model="Failure")}),
            "/health": _get("health", "Whether the process lives", ("200",)),
            "/ready": _get("ready", "Whether requests are served at full speed", ("200", "503")),
            "/metrics": {
                "get": {
                    "summary": "What happened and how things stand, for Prometheus",
                    "operationId": "metrics",
                    "responses": {"200": _METRICS},
                }
            },
        },
        "components": {"schemas": schemas},
    }


def _request_body(operations: list[Operation], refs: Refs) -> dict[str, Any]:
    return {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [refs[(o.request, "validation")] for o in operations],
                    "discriminator": {
                        "propertyName": "operation",
                        "mapping": {o.name: refs[(o.request, "validation")]["$ref"] for o in operations},
                    },
                },
                "examples": {
                    f"{o.name}_{i}": {"summary": f"{o.name}: {e.title}", "value": e.request}
                    for o in operations
                    for i, e in enumerate(o.examples, 1)
                },
            }
        },
    }


def _answers(operations: list[Operation], refs: Refs) -> dict[str, Any]:
    return {
        "200": {
            "description": "success: the operation's own fields, flat",
            "content": {
                "application/json": {
                    "schema": {"oneOf": [refs[(o.result, "serialization")] for o in operations]},
                    "examples": {
                        f"{o.name}_{i}": {"summary": f"{o.name}: {e.title}", "value": e.answer}
                        for o in operations
                        for i, e in enumerate(o.examples, 1)
                    },
                },
                **{media: _STREAM for form, media in MEDIA_TYPES.items() if form != "json"},
            },
        },
        "default": {
            "description": "a failure; its HTTP status fits its code",
            "content": {"application/json": {"schema": {"$ref": _REF.format(model="Failure")}}},
        },
    }


def _written(operations: list[Operation], refs: Refs) -> dict[str, Any]:
    """The schema of a WRITE's answer, which a bulk load's is too; anything where there is no WRITE."""
    return next((refs[(o.result, "serialization")] for o in operations if o.name == "WRITE"), {})


def _add_success(result: dict[str, Any]) -> None:
    # The envelope adds it to every result; no model carries it.
    result["properties"] = {"success": {"const": True}, **result["properties"]}
    result["required"] = ["success", *result.get("required", [])]


def _get(name: str, summary: str, statuses: tuple[str, ...]) -> dict[str, Any]:
    return {
        "get": {
            "summary": summary,
            "operationId": name,
            "responses": {s: {"description": _STATUS[s]} for s in statuses},
        }
    }
