"""The service that commands share: the first command that needs it starts it, and it stops when it is idle."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from service.cli.connection.remote import Notify, Remote, exchange
from service.host import presence, process_locks
from service.settings import HomeInUse, Settings, SettingsError

# The first start may have to download Spark's jars.
_READY_TIMEOUT_S = 900
_STOP_TIMEOUT_S = 40
_RESPONSE_TIMEOUT_S = 600
_POLL_S = 0.1
_MAX_LOG_BYTES = 8 * 1024 * 1024


class _HomeHttpConnection(http.client.HTTPConnection):
    """HTTP over the Unix socket of a home."""

    def __init__(self, home: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._home, self._timeout_s = home, timeout_s

    def connect(self) -> None:
        self.sock = presence.connect(self._home, self._timeout_s)


def connect(
    home: Path, pauses_s: Sequence[float], timeout_s: float = _RESPONSE_TIMEOUT_S, api_key: str | None = None
) -> Remote:
    """Connect to the service of a home. If it has ended, the first request raises `Unreachable`."""
    send = partial(_send, home, timeout_s=timeout_s)
    return Remote(str(presence.socket_path(home)), pauses_s=pauses_s, transport=send, replaceable=True, api_key=api_key)


def start(settings: Settings, environ: Mapping[str, str], notify: Notify) -> None:
    """Start the service of a home unless it runs, and wait until it is ready.

    Raises `HomeInUse` if a process owns the home and does not listen.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    waiting = "waiting for the service that another command is starting"
    with process_locks.locked(settings.home / "start.lock", notify, waiting):
        if presence.find(settings.home) is None:
            if not process_locks.is_free(settings.home):
                raise HomeInUse(f"FIRN_HOME {settings.home} is in use by another process; see which one holds its lock")
            log = settings.home / "service.log"
            notify(f"starting a service in the background, which takes some seconds; its log is {log}")
            _wait_until_ready(_spawn(settings, environ, log), settings, log)


def stop(settings: Settings, notify: Notify) -> bool:
    """Stop the service of a home, whoever started it, and wait until it has ended; False if none was running."""
    service = _find_owner(settings, notify)
    if service is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(service.pid, signal.SIGTERM)
    if _wait_until(lambda: process_locks.is_free(settings.home), _STOP_TIMEOUT_S):
        return True
    log = service.log or "where it was started"
    raise SettingsError(f"process {service.pid} has not ended in {_STOP_TIMEOUT_S} s; its log is {log}")


def _send(
    home: Path,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None,
    headers: dict[str, str],
    timeout_s: float = _RESPONSE_TIMEOUT_S,
) -> bytes:
    return exchange(_HomeHttpConnection(home, timeout_s), method, path, body, headers)


def _find_owner(settings: Settings, notify: Notify) -> presence.RunningService | None:
    """The service of a home, if there is one; waits for one that is starting or ending."""

    def is_settled() -> bool:
        return presence.find(settings.home) is not None or process_locks.is_free(settings.home)

    if not is_settled():
        notify(f"waiting for another process that uses FIRN_HOME {settings.home} and is starting or stopping")
        if not _wait_until(is_settled, _STOP_TIMEOUT_S):
            owner = process_locks.owner(settings.home)
            process = f"process {owner}" if owner else "another process"
            raise SettingsError(
                f"FIRN_HOME {settings.home} is in use by {process}, which does not listen; end it, then try again"
            )
    return presence.find(settings.home)


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds; False if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return holds


def _spawn(settings: Settings, environ: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    with suppress(FileNotFoundError):
        if log.stat().st_size > _MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
    # The service runs in its home, so that it does not keep the caller's folder busy: relative paths become absolute.
    variables = {**environ, "FIRN_HOME": str(settings.home)}
    variables.pop("FIRN_API_KEY", None)  # it is for the commands that use the service
    if "FIRN_CONFIG" in environ:
        variables["FIRN_CONFIG"] = str(Path(environ["FIRN_CONFIG"]).absolute())
    root = str(Path(__file__).resolve().parents[3])
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environ.get("PYTHONPATH"))))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--background", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=settings.home,
            env=variables,
            start_new_session=True,  # Ctrl-C ends the command, not the service that others use
        )
    finally:
        os.close(output)


def _wait_until_ready(process: "subprocess.Popen[bytes]", settings: Settings, log: Path) -> None:
    def is_ready() -> bool:
        code = process.poll()
        if code is not None:
            reason = _last_line(log)
            if "is in use by" in reason:
                raise HomeInUse(reason.removeprefix("firn: "))
            raise SettingsError(f"the service did not start ({reason or f'exit code {code}'}); its log is {log}")
        try:
            return b'"ready":true' in _send(settings.home, "GET", "/ready", None, {})
        except OSError:
            return False

    if not _wait_until(is_ready, _READY_TIMEOUT_S):
        raise SettingsError(
            f"the service is not ready after {_READY_TIMEOUT_S} s; its log is {log}; `firn stop` ends it"
        )


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""
