"""Send requests to a service over HTTP."""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from service.cli.command import UNREACHABLE, Request, Response

if TYPE_CHECKING:
    from http.client import HTTPConnection

# Enough to look at all tables of a tenant. Work that takes longer is a job.
_TIMEOUT_S = 600
LONG_PAUSES_S = (1, 3, 10)
"""Pauses between attempts for cron jobs, which can wait."""
SHORT_PAUSES_S = (0.5, 2)
Notify = Callable[[str], None]
Chunks = Callable[[], Iterable[bytes]]
"""Returns a body in pieces, from its beginning."""
Transport = Callable[[str, str, bytes | Iterable[bytes] | None, dict[str, str]], bytes]
"""Sends method, path, body and headers, and returns the body of the response; raises `OSError` if there is none."""


class Unreachable(Exception):
    """No Firn service responds; the message says where and why."""

    exit_code = UNREACHABLE


class Connection(Protocol):
    """A way to send requests to a service."""

    def send(self, request: Request, key: str | None = None, body: bytes | None = None) -> Response:
        """Send a request and return the response, also if it is an error. A `body` is sent instead of the request.

        Requests with the same idempotency key, in the request or as `key`, have one effect however often they are sent.
        """

    def fetch(self, request: Request, media_type: str) -> bytes | Response:
        """Send a request and return the body of the response in this media type; if it is an error, the response."""

    def upload(self, path: str, media_type: str, chunks: Chunks, key: str) -> Response:
        """Send a body of any size to a path, in pieces. With the same key it has one effect."""

    def job(self, job_id: str) -> Response:
        """Describe a job."""

    def cancel(self, job_id: str) -> Response:
        """Cancel a job and describe it."""

    def close(self) -> None:
        """Release what the connection holds."""


@dataclass(frozen=True)
class Remote:
    """The service at an address. A request that gets no response, or a retryable error, is sent again a few times.

    Each request has an idempotency key, so that it has one effect if only its response was lost.
    """

    url: str
    sleep: Callable[[float], None] = time.sleep
    pauses_s: Sequence[float] = LONG_PAUSES_S
    transport: Transport | None = None
    """Used instead of HTTP to the URL."""
    login: str | None = None
    """The login in the address, for a proxy before the service."""
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = _TIMEOUT_S
    replaceable: bool = False
    """Whether, if the service ends, the caller looks for another; then nothing is sent to this one again."""

    def send(self, request: Request, key: str | None = None, body: bytes | None = None) -> Response:
        headers = {"Content-Type": "application/json"}
        key = key or key_for(request)
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._retry("POST", "/database", body or encode(request), headers)

    def fetch(self, request: Request, media_type: str) -> bytes | Response:
        headers = {"Content-Type": "application/json", "Accept": media_type}
        try:
            received = self._transport("POST", "/database", encode(request), headers)
        except OSError as e:
            raise self._unreachable(e) from e
        return self._response(received) if received.startswith(b"{") else received

    def upload(self, path: str, media_type: str, chunks: Chunks, key: str) -> Response:
        return self._retry("POST", path, chunks, {"Content-Type": media_type, "Idempotency-Key": key})

    def job(self, job_id: str) -> Response:
        return self._retry("GET", _job_path(job_id))

    def cancel(self, job_id: str) -> Response:
        return self._retry("DELETE", _job_path(job_id))

    def close(self) -> None:
        pass

    def _credentials(self) -> dict[str, str]:
        """Beside a login for a proxy, which is in Authorization, a key has a header of its own."""
        login = {} if self.login is None else {"Authorization": self.login}
        return login | ({} if self.api_key is None else {"X-Api-Key": self.api_key})

    def _transport(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: dict[str, str]
    ) -> bytes:
        if self.transport is None:
            return self._send_to_url(method, path, body, headers)
        return self.transport(method, path, body, headers | self._credentials())

    def _retry(
        self, method: str, path: str, body: bytes | Chunks | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        attempt = partial(self._once, method, path, body, headers or {})
        for pause in self.pauses_s:
            try:
                response = attempt()
                if response["success"] or not self._is_retryable(response["error"]):
                    return response
            except Unreachable:
                if self.replaceable:
                    raise
            self.sleep(pause)
        return attempt()

    def _is_retryable(self, error: dict[str, Any]) -> bool:
        return bool(error.get("retryable")) and not (self.replaceable and error["code"] == "SHUTTING_DOWN")

    def _once(self, method: str, path: str, body: bytes | Chunks | None, headers: dict[str, str]) -> Response:
        try:
            sent = body() if callable(body) else body
            received = self._transport(method, path, sent, headers)
        except OSError as e:
            raise self._unreachable(e) from e
        return self._response(received)

    def _unreachable(self, error: OSError) -> Unreachable:
        from ssl import SSLCertVerificationError

        reason = getattr(error, "reason", None) or error
        if isinstance(reason, SSLCertVerificationError):
            return Unreachable(
                f"the certificate of {self.url} is not trusted: {reason.verify_message}; set SSL_CERT_FILE to "
                "its file, or to that of its issuer"
            )
        return Unreachable(f"no service responds at {self.url}: {reason}")

    def _response(self, received: bytes) -> Response:
        try:
            response: Any = json.loads(received)
        except (ValueError, RecursionError) as e:
            raise Unreachable(f"the server at {self.url} is not Firn: its response is not JSON") from e
        if not _is_response(response):
            raise Unreachable(f"the server at {self.url} is not Firn: {str(response)[:100]}")
        return response

    def _send_to_url(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: dict[str, str]
    ) -> bytes:
        import http.client
        import urllib.error
        import urllib.request

        from service.cli.connection.uploads import opener

        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}", data=body, headers=headers, method=method)
        for name, value in self._credentials().items():
            request.add_unredirected_header(name, value)
        try:
            with opener().open(request, timeout=self.timeout_s) as response:
                received: bytes = response.read()
        except urllib.error.HTTPError as e:  # an error status; its body is a response like any other
            received = e.read()
        except http.client.HTTPException as e:
            raise ConnectionError(str(e) or type(e).__name__) from e
        return received


def exchange(
    connection: "HTTPConnection", method: str, path: str, body: bytes | Iterable[bytes] | None, headers: dict[str, str]
) -> bytes:
    """Send a request and return the body of the response; raises `OSError` if there is none."""
    import http.client

    try:
        try:
            connection.request(method, path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            if not is_streamed(body):
                raise
            # The rest of the body was refused; the response says why.
        return connection.getresponse().read()
    except http.client.HTTPException as e:
        raise ConnectionError(str(e) or type(e).__name__) from e
    finally:
        connection.close()  # on Ctrl-C, too: the service then cancels the request


def is_streamed(body: bytes | Iterable[bytes] | None) -> bool:
    """Whether a body is sent in pieces, so that a service can refuse it before its end."""
    return body is not None and not isinstance(body, bytes)


def key_for(request: Request) -> str | None:
    """A new idempotency key, unless the request has one."""
    return new_key() if request.get("idempotency_key") is None else None


def new_key() -> str:
    return f"firn-{os.urandom(16).hex()}"


def encode(request: Request) -> bytes:
    """The request as JSON, in which a `Decimal` is a number with all of its digits."""
    mark = os.urandom(16).hex()  # no text of the request contains it
    text = json.dumps(request, default=lambda value: f"{mark}{value}")
    return re.sub(f'"{mark}([^"]*)"', r"\1", text).encode()


def _is_response(value: Any) -> TypeGuard[Response]:
    """Whether this is a response of Firn: a success, or an error with its code."""
    if not isinstance(value, dict) or "success" not in value:
        return False
    error = value.get("error")
    return bool(value["success"]) or (isinstance(error, dict) and "code" in error and "message" in error)


def _job_path(job_id: str) -> str:
    from urllib.parse import quote

    return f"/jobs/{quote(job_id, safe='')}"
