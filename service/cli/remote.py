"""A service behind an address, as commands see it: one request, one answer."""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

from service.cli.command import Answer, Request

# Long enough to look at all of a tenant's tables; longer work is a job.
_WAIT_S = 600
PATIENT = (1, 3, 10)
"""Pauses of who runs at night and can wait."""
BRISK = (0.5, 2)


class Unreachable(Exception):
    """Nothing that answers as Firn does; the message says where and why."""


class Door(Protocol):
    """A way to a service."""

    def ask(self, request: Request, key: str | None = None, text: bytes | None = None) -> Answer:
        """The answer, whatever it says. The `text` of a request is sent as it stands, if there is one.

        A request with the same key, in it or beside it, has one effect however often it is sent.
        """

    def job(self, job_id: str) -> Answer:
        """What is known of a job."""

    def cancel(self, job_id: str) -> Answer:
        """What is known of a job that has been called off."""

    def close(self) -> None:
        """Be done with it."""


Send = Callable[[str, str, bytes | None, dict[str, str]], bytes]
"""The body that answers a method, a path, a body and headers; an OSError where none does."""


class Remote:
    """The service at an address. What it says may be sent again, or does not answer, is sent again a few times.

    Each request bears a key, so that one whose answer was lost has one effect.
    """

    def __init__(
        self,
        url: str,
        pause: Callable[[float], None] = time.sleep,
        pauses_s: Sequence[float] = PATIENT,
        send: Send | None = None,
        *,
        login: str | None = None,
        stays: bool = True,
    ) -> None:
        """Unless it `stays`, nothing is asked again of a service that does not answer or ends: there is another one."""
        self.url = url.rstrip("/")
        self.answered = False
        """Whether it ever did."""
        self._pause = pause
        self._pauses_s = pauses_s
        self._send = send or self._by_url
        self._login = login
        self._stays = stays

    def ask(self, request: Request, key: str | None = None, text: bytes | None = None) -> Answer:
        headers = {"Content-Type": "application/json"}
        key = key or key_for(request)
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._again("POST", "/database", text or text_of(request), headers)

    def job(self, job_id: str) -> Answer:
        return self._again("GET", _job(job_id))

    def cancel(self, job_id: str) -> Answer:
        return self._again("DELETE", _job(job_id))

    def close(self) -> None:
        pass

    def _again(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        for pause in self._pauses_s:
            try:
                answer = self._once(method, path, body, headers or {})
                if answer["success"] or not self._is_worth_repeating(answer["error"]):
                    return answer
            except Unreachable:
                if not self._stays:
                    raise
            self._pause(pause)
        return self._once(method, path, body, headers or {})

    def _is_worth_repeating(self, error: dict[str, Any]) -> bool:
        return bool(error.get("retryable")) and (self._stays or error["code"] != "SHUTTING_DOWN")

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        try:
            answer: Any = json.loads(self._send(method, path, body, headers))
        except OSError as e:
            raise Unreachable(f"no service answers at {self.url}: {getattr(e, 'reason', None) or e}") from e
        except (ValueError, RecursionError) as e:
            raise Unreachable(f"what answers at {self.url} is not Firn: its answer is not JSON") from e
        if not _is_answer(answer):
            raise Unreachable(f"what answers at {self.url} is not Firn: {str(answer)[:100]}")
        self.answered = True
        return answer

    def _by_url(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        import http.client
        import urllib.error
        import urllib.request

        asked = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers, method=method)
        if self._login is not None:
            asked.add_unredirected_header("Authorization", self._login)
        try:
            with urllib.request.urlopen(asked, timeout=_WAIT_S) as response:
                said: bytes = response.read()
        except urllib.error.HTTPError as e:  # a refusal has a body like any other answer
            said = e.read()
        except http.client.HTTPException as e:
            raise ConnectionError(str(e) or type(e).__name__) from e
        return said


def _is_answer(said: Any) -> TypeGuard[Answer]:
    """Whether it is told as Firn tells it: a success, or an error with its code."""
    if not isinstance(said, dict) or "success" not in said:
        return False
    error = said.get("error")
    return bool(said["success"]) or (isinstance(error, dict) and "code" in error and "message" in error)


def key_for(request: Request) -> str | None:
    """A key for a request that has none."""
    return f"firn-{secrets.token_hex(16)}" if request.get("idempotency_key") is None else None


def text_of(request: Request) -> bytes:
    return json.dumps(request).encode()


def _job(job_id: str) -> str:
    from urllib.parse import quote

    return f"/jobs/{quote(job_id, safe='')}"
