"""The one shape of success and the one shape of failure."""

from typing import Any

from service import wire
from service.errors import FirnError
from service.failures import said
from service.operation import Result


def success(result: Result, request_id: str, execution_time_ms: int) -> bytes:
    result.metadata.request_id = request_id
    result.metadata.execution_time_ms = execution_time_ms
    fields = wire.fields_of(result)
    metadata = fields.pop("metadata")
    return wire.render({"success": True, **fields, "metadata": metadata})


def schema(success: bool, **fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of either shape with these fields between `success` and `metadata`."""
    metadata = {"type": "object", "properties": {"request_id": {"type": "string"}}}
    return {
        "type": "object",
        "required": ["success", *fields, "metadata"],
        "properties": {"success": {"const": success}, **fields, "metadata": metadata},
    }


def failure(error: FirnError, request_id: str) -> bytes:
    return wire.render({"success": False, "error": said(error), "metadata": {"request_id": request_id}})
