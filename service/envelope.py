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


def schema(success: bool, **fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of either shape with these fields between `success` and `metadata`."""
    metadata = {"type": "object", "properties": {"request_id": {"type": "string"}}}
    return {
        "type": "object",
        "required": ["success", *fields, "metadata"],
        "properties": {"success": {"const": success}, **fields, "metadata": metadata},
    }


def _one_line(text: str, longest: int) -> str:
    """A text that may quote what a caller sent, without its line breaks and not at any length."""
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 3 :]}"
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


def failure(error: FirnError, request_id: str) -> bytes:
    said: dict[str, Any] = {"code": error.code, "message": _one_line(error.message, 600)}
    for name in ("field", "suggestion"):
        if getattr(error, name) is not None:
            said[name] = _one_line(getattr(error, name), 300)
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
