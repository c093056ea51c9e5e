"""What goes back to the caller, over HTTP, in an event, or in process."""

import logging
from concurrent.futures import Future
from dataclasses import dataclass

from service.errors import FirnError, InvalidRequest, Unauthenticated
from service.metrics.catalogue import OK
from service.model.call import Call
from service.model.failures import internal_error, is_retryable, visible
from service.operations import envelope
from service.queries.streaming.streams import Stream

log = logging.getLogger("firn.requests")


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    code: str = OK
    """`ok`, or the code of the error."""
    retry_after_s: int | None = None
    stream: Stream | None = None
    """What to send instead of the body; its receiver must close it."""
    pending: "Future[bytes] | None" = None
    """The work, if it goes on beyond this response. It ends in the body of a success, or an error."""

    def headers(self, request_id: str) -> dict[str, str]:
        headers = {"X-Request-Id": request_id}
        if self.status == Unauthenticated.status:
            headers["WWW-Authenticate"] = 'Bearer realm="firn"'
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        return headers


def response_of(work: "Future[bytes]", call: Call) -> Response:
    """The response that ended work means."""
    error = work.exception()
    return Response(200, work.result()) if error is None else failure(error, call)


def failure(error: BaseException, call: Call) -> Response:
    """The response to a request that failed. Only this renders errors.

    An unforeseen failure is logged whole and answered with an id to find it by.
    """
    if isinstance(error, RecursionError):
        error = InvalidRequest("the request is nested too deeply; flatten it")
    if not isinstance(error, FirnError):
        error = internal_error(log, call.id, error)
    if call.tables:
        error = visible(error, call.principal, call.tables[0].tenant)
    keyed = call.key is not None
    wait = 1 if error.status in (429, 503) and is_retryable(error, keyed) else None
    return Response(error.status, envelope.failure(error, call.id, keyed=keyed), error.code, wait)
