"""The OpenAPI description of bulk loads and of jobs."""

from typing import Any, get_args

from service import envelope
from service.bulk.decode import DECODERS
from service.jobs.job import State
from service.loads import JOB, RECORDS

_BODIES = {
    "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
    "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"name": "Ann", "age": 31}\n{"name": "Bo"}\n'},
    "text/csv": {"schema": {"type": "string"}, "example": "name,age\nAnn,31\nBo,\n"},
}
_ACCEPTED = envelope.schema(True, job_id={"type": "string"}, status_url={"type": "string"})
_JOB = envelope.schema(
    True,
    job={
        "type": "object",
        "required": ["id", "kind", "table", "state", "progress", "created_at"],
        "properties": {
            "id": {"type": "string"},
            "kind": {"type": "string", "description": "BULK, or the operation"},
            "table": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("tenant_id", "namespace", "table")},
            },
            "state": {"enum": list(get_args(State))},
            "cancelling": {"const": True, "description": "while it was called off and has not ended yet"},
            "progress": {
                "type": "object",
                "description": "how far it is; of a bulk load these, of other kinds their own",
                "properties": {
                    "phase": {"type": "string", "description": "staged, writing, committing, done"},
                    "records": {"type": "integer"},
                    "bytes": {"type": "integer", "description": "of the body"},
                },
            },
            "created_at": {"type": "string", "format": "date-time"},
            "ended_at": {"type": "string", "format": "date-time"},
            "result": {"type": "object", "description": "once done: the answer, as without async"},
            "error": {"type": "object", "description": "once failed, cancelled or interrupted: as in a failure"},
        },
    },
)


def bulk_paths(written: dict[str, Any], failure: dict[str, Any]) -> dict[str, Any]:
    """The paths; `written` is the schema of a WRITE's answer."""
    failed = {"description": "a failure; its HTTP status fits its code", "content": _json(failure)}
    names = [_parameter(name, "path") for name in ("tenant", "namespace", "table")]
    in_background = _parameter("async", "query", {"type": "boolean", "default": False}, "answer with a job's id")
    mode = _parameter("mode", "query", {"enum": ["append"], "default": "append"}, "the only one there is")
    key = _parameter("Idempotency-Key", "header", {"type": "string", "maxLength": 200}, "as a WRITE's idempotency_key")
    return {
        RECORDS: {
            "post": {
                "summary": "Append a body of any size to a table, in one commit",
                "operationId": "bulk",
                "parameters": [*names, in_background, mode, key],
                "requestBody": {"required": True, "content": {kind: _BODIES[kind] for kind in DECODERS}},
                "responses": {
                    "200": {"description": "it is in the table", "content": _json(written)},
                    "202": {"description": "with async=true: received and checked", "content": _json(_ACCEPTED)},
                    "default": failed,
                },
            }
        },
        JOB: {
            "get": {
                "summary": "How far a job is, and what came of it",
                "operationId": "job",
                "parameters": [_parameter("id", "path")],
                "responses": {"200": {"description": "the job", "content": _json(_JOB)}, "default": failed},
            },
            "delete": {
                "summary": "Cancel a job; one that has ended stays as it is",
                "operationId": "cancel_job",
                "parameters": [_parameter("id", "path")],
                "responses": {
                    "200": {"description": "the job; it ends as cancelled a moment later", "content": _json(_JOB)},
                    "default": failed,
                },
            },
        },
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _parameter(name: str, place: str, schema: dict[str, Any] | None = None, description: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema or {"type": "string"},
        **({"description": description} if description else {}),
    }
