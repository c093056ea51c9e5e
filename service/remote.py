"""A running service, as the commands that talk to one see it: one request, one answer."""

import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from service import wire
from service.errors import InvalidRequest

# Long enough to look at all of a tenant's tables; longer work is a job.
_WAIT_S = 600
_JOB_S = 6 * 3600
_PAUSES_S = (1, 3, 10)
_LOOK_EVERY_S = 10


class Unreachable(Exception):
    """Nothing that answers as Firn does; the message says where and why."""


class Remote:
    """The service at an address. What it says may be sent again, or does not answer, is sent again a few times."""

    def __init__(self, url: str, pause: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self.answered = False
        """Whether it ever did."""
        self._pause = pause

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer's body, whatever it says."""
        return self._again("/database", wire.render(request))

    def have_done(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer's body, once what is asked for is done; no connection is kept open for that."""
        # Should the answer be lost, the same request does not begin another job.
        begun = self.ask({**request, "async": True, "idempotency_key": f"firn-{uuid.uuid4().hex}"})
        if not begun["success"]:
            return begun
        pause, waited = 0.5, 0.0
        while True:
            answer = self._again(f"/jobs/{begun['job_id']}")
            if not answer["success"]:
                return answer
            job = answer["job"]
            if "result" in job:
                result: dict[str, Any] = job["result"]
                return result
            if "error" in job:
                return {"success": False, "error": job["error"]}
            if waited >= _JOB_S:
                told = {"code": "TIMEOUT", "message": f"job {job['id']} has not ended in {_JOB_S // 3600} hours"}
                return {"success": False, "error": told}
            self._pause(pause)
            waited, pause = waited + pause, min(2 * pause, _LOOK_EVERY_S)

    def _again(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        for pause in _PAUSES_S:
            with suppress(Unreachable):
                answer = self._once(path, body)
                if answer["success"] or not answer["error"].get("retryable"):
                    return answer
            self._pause(pause)
        return self._once(path, body)

    def _once(self, path: str, body: bytes | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers)
        try:
            try:
                with urllib.request.urlopen(asked, timeout=_WAIT_S) as response:
                    said = response.read()
            except urllib.error.HTTPError as e:  # a refusal has a body like any other answer
                said = e.read()
            answer = wire.parse(said)
        except (OSError, HTTPException) as e:
            raise Unreachable(f"no service answers at {self.url}: {getattr(e, 'reason', None) or e}") from e
        except InvalidRequest as e:
            raise Unreachable(f"what answers at {self.url} is not Firn: its answer is not JSON") from e
        if not isinstance(answer, dict) or "success" not in answer:
            raise Unreachable(f"what answers at {self.url} is not Firn: {str(answer)[:100]}")
        self.answered = True
        return answer
