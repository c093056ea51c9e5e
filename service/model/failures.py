"""Describe a failure for a response, or for a job that has ended."""

import logging
import uuid
from typing import Any

from service.errors import FirnError, InternalError, OutcomeUnknown
from service.model import wire
from service.model.identity.principal import Principal


def error_fields(error: FirnError, *, keyed: bool = False) -> dict[str, Any]:
    """The `error` object of a failure, which can always be rendered as JSON. `keyed`: its request had an idempotency
    key."""
    fields: dict[str, Any] = {"code": error.code, "message": _one_line(error.message, 600)}
    for name in ("field", "suggestion"):
        if getattr(error, name) is not None:
            fields[name] = _one_line(getattr(error, name), 300)
    fields["retryable"] = is_retryable(error, keyed)
    if error.details:
        fields["details"] = error.details
    try:
        wire.render(fields)
    except TypeError:
        # A message may quote text that JSON cannot represent, such as half of a surrogate pair.
        return dict(wire.replace_surrogates(fields))
    return fields


def visible(error: FirnError, principal: Principal, tenant: str) -> FirnError:
    """The error without the names of namespaces that a principal may not read."""
    if error.without_names is None or principal.may("reader", tenant):
        return error
    return type(error)(error.without_names, field=error.field)


def is_retryable(error: FirnError, keyed: bool) -> bool:
    """Whether the same request may succeed if it is sent again, and has one effect then."""
    return error.retryable or (keyed and isinstance(error, OutcomeUnknown))


def internal_error(log: logging.Logger, what: str, failure: BaseException | None = None) -> InternalError:
    """Log an unexpected failure, and return the error for the caller, which only has the id for the log."""
    error_id = uuid.uuid4().hex[:12]
    log.error("%s failed unexpectedly; error id %s", what, error_id, exc_info=failure or True)
    message = f"something went wrong inside the service; the log has it under error id {error_id}"
    return InternalError(message, details={"error_id": error_id})


def _one_line(text: str, longest: int) -> str:
    """A text that may quote a request, shortened and with its control characters escaped."""
    if len(text) > longest:
        text = f"{text[: longest // 2]} … {text[-longest // 3 :]}"
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)
