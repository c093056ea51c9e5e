"""Read the address of a service, and the login for a proxy in front of it."""

from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

from service.cli.command import UsageError


@dataclass(frozen=True)
class Address:
    """Where requests go. Messages may show the URL, never the login."""

    url: str
    login: str | None = None
    """The value of the header Authorization."""


def parse_address(text: str) -> Address:
    """Split a URL into an address and a login; raises `UsageError` if it is not the URL of a service."""
    try:
        parts = urlsplit(text)
        has_host = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        raise _not_an_address(text) from None  # the cause may quote a login
    # A login with unescaped characters is split in the wrong place: parts of it look like a path or a query.
    has_more = "@" in parts.path or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not has_host or has_more:
        raise _not_an_address(text)
    login, at, host = parts.netloc.rpartition("@")
    return Address(f"{parts.scheme}://{host}{parts.path.rstrip('/')}", _basic(login) if at else None)


def _basic(login: str) -> str:
    name, _, password = login.partition(":")
    return f"Basic {b64encode(unquote_to_bytes(name) + b':' + unquote_to_bytes(password)).decode()}"


def _not_an_address(text: str) -> UsageError:
    login, _, shown = text.rpartition("@")
    advice = "; in a login, write / ? # @ as %2F %3F %23 %40" if login else ""
    return UsageError(f"{shown!r} is no address of a service; write it as http://localhost:8080{advice}")
