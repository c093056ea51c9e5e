"""Cursors: where the next page of a list begins. They are opaque to clients, neither secret nor stored.

A cursor holds the place after the last item of a page, not a number of items. So pages neither repeat nor miss an item
while others are added and removed.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from service.errors import InvalidRequest

_VERSION = 1
_CHECK = 6
AGAIN = "send the request without cursor to start again"


def write(request: str, place: Sequence[Any]) -> str:
    """The cursor after `place`, a list of JSON values, for the request with this digest."""
    body = json.dumps([_VERSION, request[:16], *place], separators=(",", ":")).encode()
    return _text(_check(body) + body)


def read(cursor: str, request: str) -> list[Any]:
    """The place in a cursor; InvalidRequest if it is damaged, or belongs to another request."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        check, body = raw[:_CHECK], raw[_CHECK:]
        if check != _check(body) or cursor != _text(raw):
            raise ValueError("it was changed")
        place: list[Any]
        version, of, *place = json.loads(body)
        if version != _VERSION:
            raise ValueError(version)
    except (ValueError, TypeError) as e:
        raise refused() from e
    if of != request[:16]:
        raise InvalidRequest(
            "cursor belongs to another request; continue with the request that returned it, in which only limit may "
            f"change, or {AGAIN}",
            field="cursor",
        )
    return place


def refused() -> InvalidRequest:
    """The error for a cursor that cannot be read."""
    return InvalidRequest(
        f"cursor is damaged, or from another version; send next_cursor as it was returned, or {AGAIN}", field="cursor"
    )


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _check(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:_CHECK]
