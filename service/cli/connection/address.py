"""The address of a service as it is given: where that is, and the login of a proxy in front of it."""

from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

from service.cli.command import Misused


@dataclass(frozen=True)
class Address:
    """Where requests go. Only the URL is shown to anybody."""

    url: str
    login: str | None = None
    """What a request says in its header Authorization."""


def address_of(text: str) -> Address:
    """The address that a URL is; Misused where it is none."""
    try:
        parts = urlsplit(text)
        whole = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        raise _no_address(text) from None  # which may quote a login
    # What stands after the host is most likely a login that is not written as a URL has it.
    beyond = "@" in parts.path or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not whole or beyond:
        raise _no_address(text)
    login, at, host = parts.netloc.rpartition("@")
    return Address(f"{parts.scheme}://{host}{parts.path.rstrip('/')}", _basic(login) if at else None)


def _basic(login: str) -> str:
    name, _, password = login.partition(":")
    return f"Basic {b64encode(unquote_to_bytes(name) + b':' + unquote_to_bytes(password)).decode()}"


def _no_address(text: str) -> Misused:
    login, _, shown = text.rpartition("@")
    way_out = "; in a login / ? # @ are written %2F %3F %23 %40" if login else ""
    return Misused(f"{shown!r} is no address of a service; write it as http://localhost:8080{way_out}")
