"""Send requests to a service over HTTP."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeGuard

from service.cli.command import UNREACHABLE, Request, Response

# Enough to look at all tables of a tenant. Work that takes longer is a job.
_TIMEOUT_S = 600
LONG_PAUSES_S = (1, 3, 10)
"""Pauses between attempts for cron jobs, which can wait."""
SHORT_PAUSES_S = (0.5, 2)
Notify = Callable[[str], None]
Transport = Callable[[str, str, bytes | None, dict[str, str]], bytes]
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
    replaceable: bool = False
    """Whether, if the service ends, the caller looks for another; then nothing is sent to this one again."""

    def send(self, request: Request, key: str | None = None, body: bytes | None = None) -> Response:
        headers = {"Content-Type": "application/json"}
        key = key or key_for(request)
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._retry("POST", "/database", body or encode(request), headers)

    def job(self, job_id: str) -> Response:
        return self._retry("GET", _job_path(job_id))

    def cancel(self, job_id: str) -> Response:
        return self._retry("DELETE", _job_path(job_id))

    def close(self) -> None:
        pass

    def _retry(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
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

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Response:
        try:
            response: Any = json.loads((self.transport or self._send_to_url)(method, path, body, headers))
        except OSError as e:
            raise Unreachable(f"no service responds at {self.url}: {getattr(e, 'reason', None) or e}") from e
        except (ValueError, RecursionError) as e:
            raise Unreachable(f"the server at {self.url} is not Firn: its response is not JSON") from e
        if not _is_response(response):
            raise Unreachable(f"the server at {self.url} is not Firn: {str(response)[:100]}")
        return response

    def _send_to_url(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        import http.client
        import urllib.error
        import urllib.request

        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}", data=body, headers=headers, method=method)
        if self.login is not None:
            request.add_unredirected_header("Authorization", self.login)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                received: bytes = response.read()
        except urllib.error.HTTPError as e:  # an error status; its body is a response like any other
            received = e.read()
        except http.client.HTTPException as e:
            raise ConnectionError(str(e) or type(e).__name__) from e
        return received


def key_for(request: Request) -> str | None:
    """A new idempotency key, unless the request has one."""
    return new_key() if request.get("idempotency_key") is None else None


def new_key() -> str:
    return f"firn-{os.urandom(16).hex()}"


def encode(request: Request) -> bytes:
    return json.dumps(request).encode()


def _is_response(value: Any) -> TypeGuard[Response]:
    """Whether this is a response of Firn: a success, or an error with its code."""
    if not isinstance(value, dict) or "success" not in value:
        return False
    error = value.get("error")
    return bool(value["success"]) or (isinstance(error, dict) and "code" in error and "message" in error)


def _job_path(job_id: str) -> str:
    from urllib.parse import quote

    return f"/jobs/{quote(job_id, safe='')}"
