"""Choose where requests go: to a URL, to the service of this home, or to an application in this process."""

import logging
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from service.cli.command import Request, Response, UsageError
from service.cli.connection.remote import SHORT_PAUSES_S, Chunks, Connection, Notify, Remote, Unreachable, key_for

if TYPE_CHECKING:
    from service.host.presence import RunningService
    from service.settings import Settings

R = TypeVar("R", bound=bytes | Response)
_HOME_TIMEOUT_S = 120
_ATTEMPTS = 3
_PAUSE_S = 0.2


@dataclass(frozen=True)
class ConnectionOptions:
    """What a command needs of a service."""

    url: str | None
    needs_spark: bool
    background: bool = True
    """Whether a service may be started in the background."""
    pauses_s: tuple[float, ...] = SHORT_PAUSES_S
    uploads: bool = False
    """Whether it sends files, which only a service takes."""
    api_key: str | None = field(default=None, repr=False)


def open_connection(options: ConnectionOptions, environ: Mapping[str, str], notify: Notify) -> Connection:
    """Connect to a service; raises `Unreachable` or `SettingsError` if there is none."""
    if options.url:
        url, login = parse_address(options.url)
        return Remote(url, pauses_s=options.pauses_s, login=login, api_key=options.api_key)
    from service.settings import load

    settings = load(environ)
    return HomeConnection(lambda: _connect_to_home(settings, options, environ, notify))


def running_service(
    url: str | None, environ: Mapping[str, str], timeout_s: float, api_key: str | None = None
) -> Connection:
    """Connect to the service at an address, or to that of the home if it runs; raises an error if not.

    Each request gets one attempt, which may take `timeout_s`.
    """
    if url:
        shown, login = parse_address(url)
        return Remote(shown, pauses_s=(), login=login, timeout_s=timeout_s, api_key=api_key)
    from service.cli.connection import background
    from service.host import presence
    from service.settings import load

    settings = load(environ)
    found = presence.find(settings.home)
    if found is None:
        raise Unreachable(f"no service of FIRN_HOME {settings.home} is running")
    _check_settings(found, settings, lambda text: None)
    return background.connect(settings.home, (), timeout_s, api_key)


def api_key_of(of_profile: str | None, environ: Mapping[str, str]) -> str | None:
    """The API key of the profile or of the environment. It is never an argument, which other users could see."""
    key = (of_profile or environ.get("FIRN_API_KEY", "")).strip()
    if not key.isascii() or not key.isprintable():
        raise UsageError("the API key has characters that no key has; copy it again")
    return key or None


def parse_address(text: str) -> tuple[str, str | None]:
    """Split an address into a URL, which messages may show, and the value of the header Authorization, if it has one.

    Raises `UsageError` if it is not the URL of a service.
    """
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
    name, _, password = (unquote_to_bytes(part) for part in login.partition(":"))
    authorization = f"Basic {b64encode(name + b':' + password).decode()}" if at else None
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", authorization


def _not_an_address(text: str) -> UsageError:
    login, _, shown = text.rpartition("@")
    advice = "; in a login, write / ? # @ as %2F %3F %23 %40" if login else ""
    return UsageError(f"{shown!r} is not the address of a service; write it as http://localhost:8080{advice}")


class HomeConnection:
    """A connection to the service of a home. If the service ends before it responds, the next one gets the request."""

    def __init__(self, find: Callable[[], Connection]) -> None:
        self._find = find
        self._connection = find()

    def send(self, request: Request, key: str | None = None, body: bytes | None = None) -> Response:
        key = key or key_for(request)  # one key for all attempts
        return self._retry(lambda connection: connection.send(request, key, body))

    def fetch(self, request: Request, media_type: str) -> bytes | Response:
        return self._retry(lambda connection: connection.fetch(request, media_type))

    def upload(self, path: str, media_type: str, chunks: Chunks, key: str) -> Response:
        return self._retry(lambda connection: connection.upload(path, media_type, chunks, key))

    def job(self, job_id: str) -> Response:
        return self._retry(lambda connection: connection.job(job_id))

    def cancel(self, job_id: str) -> Response:
        return self._retry(lambda connection: connection.cancel(job_id))

    def close(self) -> None:
        self._connection.close()

    def _retry(self, call: Callable[[Connection], R]) -> R:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = call(self._connection)
            except Unreachable:
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE_S)  # a killed process needs a moment to disappear
            else:
                if attempt == _ATTEMPTS or not _is_ending(response):
                    return response
            self._connection.close()
            self._connection = self._find()
        raise AssertionError("unreachable")


def _is_ending(response: bytes | Response) -> bool:
    """Whether a service refused a request because it stops."""
    if isinstance(response, bytes) or response["success"]:
        return False
    return bool(response["error"].get("code") == "SHUTTING_DOWN")


def _connect_to_home(
    settings: "Settings", options: ConnectionOptions, environ: Mapping[str, str], notify: Notify
) -> Connection:
    from service.cli.connection import background
    from service.host import presence
    from service.settings import HomeInUse, SettingsError

    deadline, notified, starts = time.monotonic() + _HOME_TIMEOUT_S, False, 0
    while True:
        found = presence.find(settings.home)
        if found is not None:
            _check_settings(found, settings, notify)
            return background.connect(settings.home, options.pauses_s, api_key=options.api_key)
        if options.uploads and not options.background:
            raise UsageError(
                "only a service loads files, and none is running; start one with `firn serve`, or leave "
                "--no-background out"
            )
        try:
            if not (options.needs_spark and options.background):
                from service.cli.connection.in_process import InProcess

                logging.basicConfig(level=logging.CRITICAL, force=True)  # the response says what went wrong
                return InProcess.open(settings, notify, needs_spark=options.needs_spark)
            if starts == _ATTEMPTS:
                raise SettingsError(f"the service stops as soon as it has started; see {settings.home}/service.log")
            background.start(settings, environ, notify)
            starts += 1
        except HomeInUse as e:
            # The owner is starting or ending, or it is a command like this one.
            if time.monotonic() > deadline:
                raise
            if not notified:
                notify(f"waiting: {str(e).partition(';')[0]}")
                notified = True
            time.sleep(_PAUSE_S)


def _check_settings(found: "RunningService", settings: "Settings", notify: Notify) -> None:
    """Refuse a service that has other data; notify about other settings that differ from this command's."""
    from service.host import presence
    from service.settings import SettingsError

    differing = presence.differing(found, settings)
    if not differing:
        return
    names = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
    advice = "`firn stop` ends it" if found.background else f"its process is {found.pid}"
    if any(map(presence.is_about_data, differing)):
        raise SettingsError(
            f"the service of FIRN_HOME {settings.home} was started with other settings ({names}), "
            f"so it has other data; {advice}, or use the same settings"
        )
    notify(f"the service of this home was started with other settings ({names}) and keeps them; {advice}")
