"""The one shape of success and the one shape of failure."""

from typing import Any

from service import wire
from service.errors import FirnError
from service.operation import Result


def success(result: Result, request_id: str, execution_time_ms: int) -> bytes:
    result.metadata.request_id = request_id
    result.metadata.execution_time_ms = execution_time_ms
    fields = wire.fields_of(result)
    metadata = fields.pop("metadata")
    return wire.render({"success": True, **fields, "metadata": metadata})


def failure(error: FirnError, request_id: str) -> bytes:
    said: dict[str, Any] = {"code": error.code, "message": error.message}
    for name in ("field", "suggestion"):
        if getattr(error, name) is not None:
            said[name] = getattr(error, name)
    said["retryable"] = error.retryable
    if error.details:
        said["details"] = error.details
    try:
        return wire.render({"success": False, "error": said, "metadata": {"request_id": request_id}})
    except TypeError:
        # A message may quote text that no JSON can carry, such as half of a surrogate pair.
        return wire.render(
            {"success": False, "error": wire.replace_surrogates(said), "metadata": {"request_id": request_id}}
        )
