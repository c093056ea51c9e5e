"""The service that commands share: started by the first that needs it, ended when nobody does."""

import fcntl
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from service import presence
from service.cli.remote import Remote, Send
from service.settings import HomeInUse, Settings, SettingsError

# The first start may have to fetch Spark's jars.
_READY_S = 900
_TELL_AFTER_S = 1.0
_LOOK_EVERY_S = 0.1
_STOP_S = 40
_ANSWER_S = 600
_LARGE_LOG = 8 * 1024 * 1024
Say = Callable[[str], None]


class _Connection(http.client.HTTPConnection):
    """HTTP over the socket of a home."""

    def __init__(self, home: Path) -> None:
        super().__init__("localhost", timeout=_ANSWER_S)
        self._home = home

    def connect(self) -> None:
        self.sock = presence.connect(self._home, _ANSWER_S)


def door(home: Path, pauses_s: Sequence[float]) -> Remote:
    """The service of a home; Unreachable, at the first request, if it has ended meanwhile."""
    return Remote(str(presence.socket_path(home)), pauses_s=pauses_s, send=_by_socket(home), stays=False)


def _by_socket(home: Path) -> Send:
    def send(method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
        connection = _Connection(home)
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse().read()
        except http.client.HTTPException as e:
            raise ConnectionError(str(e) or type(e).__name__) from e
        finally:
            connection.close()

    return send


def start(settings: Settings, environ: Mapping[str, str], say: Say) -> None:
    """Have a service of this home, ready; HomeInUse where another process owns the home and listens to nobody."""
    settings.home.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(settings.home, say):
        if presence.find(settings.home) is None:
            if not _is_free(settings.home):
                raise HomeInUse(f"FIRN_HOME {settings.home} is in use by another process; see which has its lock open")
            log = settings.home / "service.log"
            say(f"starting a service in the background, which takes some seconds; its log is {log}")
            _wait(_spawn(settings, environ, log), settings, log)


def stop(settings: Settings, *, by_hand_too: bool, say: Say) -> bool:
    """End the service of a home and wait until it has; false where there was none."""
    found = _owner(settings, say)
    if found is None:
        return False
    if not found.background and not by_hand_too:
        raise SettingsError(
            f"process {found.pid} serves FIRN_HOME {settings.home}, and no command started it; "
            "end it where it was started, or give --force"
        )
    with suppress(ProcessLookupError):
        os.kill(found.pid, signal.SIGTERM)
    until = time.monotonic() + _STOP_S
    while time.monotonic() < until:
        if _is_free(settings.home):
            return True
        time.sleep(_LOOK_EVERY_S)
    raise SettingsError(f"process {found.pid} has not ended in {_STOP_S} s; its log is {found.log or 'where it began'}")


def _owner(settings: Settings, say: Say) -> presence.Presence | None:
    """The service of a home, or none; one that is starting or ending is waited for."""
    until = time.monotonic() + _STOP_S
    waits = False
    while (found := presence.find(settings.home)) is None and not _is_free(settings.home):
        if not waits:
            say(f"waiting for another process that has FIRN_HOME {settings.home} and is starting or ending")
            waits = True
        if time.monotonic() > until:
            raise SettingsError(
                f"another process has FIRN_HOME {settings.home} and listens to nobody; see which has its lock open"
            )
        time.sleep(_LOOK_EVERY_S)
    return found


@contextmanager
def _one_at_a_time(home: Path, say: Say) -> Iterator[None]:
    with (home / "start.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for the service that another command is starting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _spawn(settings: Settings, environ: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    with suppress(FileNotFoundError):
        if log.stat().st_size > _LARGE_LOG:
            log.replace(log.with_suffix(".log.1"))
    command = [sys.executable, "-m", "service", "serve", "--background", str(log)]
    # Relative paths are the caller's; the folder that it happens to be in must not be kept busy.
    told = {**environ, "FIRN_HOME": str(settings.home)}
    if "FIRN_CONFIG" in environ:
        told["FIRN_CONFIG"] = str(Path(environ["FIRN_CONFIG"]).absolute())
    root = str(Path(__file__).resolve().parents[2])
    told["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environ.get("PYTHONPATH"))))
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            cwd=settings.home,
            env=told,
            start_new_session=True,  # Ctrl-C ends the command, not what others use
        )
    finally:
        os.close(written)


def _wait(process: "subprocess.Popen[bytes]", settings: Settings, log: Path) -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            last = _last_line(log)
            if "is in use by" in last:
                raise HomeInUse(last.removeprefix("firn: "))
            raise SettingsError(f"the service did not start ({last or f'exit code {code}'}); its log is {log}")
        if presence.find(settings.home) is not None and _is_ready(settings.home):
            return
        time.sleep(_LOOK_EVERY_S)
    raise SettingsError(f"the service is not ready after {_READY_S} s; its log is {log}, and `firn stop` ends it")


def _is_ready(home: Path) -> bool:
    try:
        return b'"ready":true' in _by_socket(home)("GET", "/ready", None, {})
    except OSError:
        return False


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else ""


def _is_free(home: Path) -> bool:
    """Whether nobody owns the home any more, its JVM neither."""
    if not home.exists():
        return True
    with (home / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
