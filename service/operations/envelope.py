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


def status_of(body: bytes) -> int:
    """The HTTP status of a stored success: 202 if the work goes on as a job."""
    if b'"status_url"' not in body:
        return 200
    fields = wire.parse(body)
    return 202 if isinstance(fields.get("status_url"), str) and isinstance(fields.get("job_id"), str) else 200


def failure(error: FirnError, request_id: str, *, keyed: bool = False) -> bytes:
    fields = error_fields(error, keyed=keyed)
    return wire.render({"success": False, "error": fields, "metadata": {"request_id": request_id}})
