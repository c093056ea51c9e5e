"""What a failure says of itself, wherever it is told: in an answer, or in a job that has ended."""

import logging
import uuid
from typing import Any

from service import wire
from service.errors import FirnError, InternalError


def said(error: FirnError) -> dict[str, Any]:
    """The `error` object of a failure; any JSON can carry it."""
    told: dict[str, Any] = {"code": error.code, "message": _one_line(error.message, 600)}
    for name in ("field", "suggestion"):
        if getattr(error, name) is not None:
            told[name] = _one_line(getattr(error, name), 300)
    told["retryable"] = error.retryable
    if error.details:
        told["details"] = error.details
    try:
        wire.render(told)
    except TypeError:
        # A message may quote text that no JSON can carry, such as half of a surrogate pair.
        return dict(wire.replace_surrogates(told))
    return told


def unforeseen(log: logging.Logger, asked: str, failure: BaseException | None = None) -> InternalError:
    """What is told of an unforeseen failure: an id for the log, and nothing of the inside."""
    error_id = uuid.uuid4().hex[:12]
    log.error("%s failed unexpectedly; error id %s", asked, error_id, exc_info=failure or True)
    message = f"something went wrong inside the service; the log has it under error id {error_id}"
    return InternalError(message, details={"error_id": error_id})


def _one_line(text: str, longest: int) -> str:
    """A text that may quote what a caller sent, without its line breaks and not at any length."""
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 3 :]}"
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)
