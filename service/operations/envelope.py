"""The JSON of every success and every failure."""

from service.errors import FirnError
from service.model import wire
from service.model.failures import error_fields
from service.operations.operation import Result


def success(result: Result, request_id: str, execution_time_ms: int) -> bytes:
    result.metadata.request_id = request_id
    result.metadata.execution_time_ms = execution_time_ms
    fields = wire.fields_of(result)
    metadata = fields.pop("metadata")
    if "next_cursor" in fields:  # people find it after the list
        fields["next_cursor"] = fields.pop("next_cursor")
    return wire.render({"success": True, **fields, "metadata": metadata})


def failure(error: FirnError, request_id: str, *, keyed: bool = False) -> bytes:
    fields = error_fields(error, keyed=keyed)
    return wire.render({"success": False, "error": fields, "metadata": {"request_id": request_id}})
