"""A running service, as the commands that talk to one see it: one request, one answer."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from service import wire
from service.errors import InvalidRequest

# A compaction answers when it is done.
_WAIT_S = 6 * 3600
_PAUSES_S = (1, 3, 10)


class Unreachable(Exception):
    """Nothing that answers as Firn does; the message says where and why."""


class Remote:
    """The service at an address. What it says may be sent again is sent again a few times."""

    def __init__(self, url: str, pause: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._pause = pause

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer's body, whatever it says."""
        answer = self._once(request)
        for pause in _PAUSES_S:
            if answer["success"] or not answer["error"].get("retryable"):
                break
            self._pause(pause)
            answer = self._once(request)
        return answer

    def _once(self, request: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.url}/database", data=wire.render(request), headers=headers)
        try:
            try:
                with urllib.request.urlopen(asked, timeout=_WAIT_S) as response:
                    body = response.read()
            except urllib.error.HTTPError as e:  # a refusal has a body like any other answer
                body = e.read()
            answer = wire.parse(body)
        except (OSError, HTTPException) as e:
            raise Unreachable(f"no service answers at {self.url}: {getattr(e, 'reason', None) or e}") from e
        except InvalidRequest as e:
            raise Unreachable(f"what answers at {self.url} is not Firn: its answer is not JSON") from e
        if not isinstance(answer, dict) or "success" not in answer:
            raise Unreachable(f"what answers at {self.url} is not Firn: {str(answer)[:100]}")
        return answer
