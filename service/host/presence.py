"""How commands find the service of a home: by a socket in FIRN_HOME that only its user can open, and a note beside it.

Only the process that holds the home's lock creates them, so if the socket accepts connections, the note is valid.
"""

import hashlib
import json
import os
import socket
import stat
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from service.settings import Settings, SettingsError

_SOCKET, _NOTE = "service.sock", "service.json"
# Linux allows 108 bytes for the path of a socket, macOS 104.
_LONGEST_PATH = 100
_CONNECT_S = 5
# Settings that decide which data there are.
_DATA_SETTINGS = ("catalog.", "ledger.", "environment")
# Settings that make no difference to a caller.
_IGNORED_SETTINGS = ("host", "port", "log_level", "home", "background.", "tls.", "audit.")


@dataclass(frozen=True)
class RunningService:
    """The process that serves a home."""

    pid: int
    background: bool
    """Whether a command started it, so that it stops when it is idle."""
    log: str | None = None
    address: str | None = None
    """The host and the port that it listens on, if it does."""
    settings: dict[str, str] = field(default_factory=dict)
    """A hash of each setting."""


def announce(settings: Settings, *, background: bool, log: str | None = None) -> socket.socket:
    """Open the socket of a home and write the note; returns the socket to listen on. The caller owns the home."""
    withdraw(settings.home)
    address = None if background else address_of(settings.host, settings.port)
    note = RunningService(os.getpid(), background, log, address, hashes(settings))
    with tempfile.NamedTemporaryFile("w", dir=settings.home, prefix=".service-", delete=False) as file:  # 0600
        file.write(json.dumps(asdict(note)))
    Path(file.name).rename(settings.home / _NOTE)
    path = socket_path(settings.home)
    listening = socket.socket(socket.AF_UNIX)
    made = path.with_suffix(f".{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            made.unlink()
        listening.bind(str(made))
        made.chmod(0o600)
        listening.listen(128)
        made.rename(path)  # it appears with the right permissions
    except OSError as e:
        listening.close()
        raise SettingsError(f"cannot create a socket at {path} ({e.strerror or e})") from e
    return listening


def address_of(host: str, port: int) -> str:
    return f"{host}:{port}"


def withdraw(home: Path) -> None:
    """Remove socket and note, so that no command finds this service."""
    for path in (socket_path(home), home / _NOTE):
        with suppress(OSError):
            path.unlink()


def find(home: Path) -> RunningService | None:
    """The process that serves a home, or None if none listens."""
    try:
        connect(home).close()
        return RunningService(**json.loads((home / _NOTE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def connect(home: Path, timeout_s: float = _CONNECT_S) -> socket.socket:
    """Connect to the service of a home; raises `OSError` if there is none."""
    path = socket_path(home)
    if stat.S_IMODE(path.stat().st_mode) & 0o077 or path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} is accessible to other users")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def socket_path(home: Path) -> Path:
    """The socket in the home or, if that path is too long for a socket, in a temporary folder of the user."""
    path = home / _SOCKET
    # Leave room for the process id, which is part of the name at first.
    if len(os.fsencode(path)) <= _LONGEST_PATH - 12:
        return path
    folder = Path(tempfile.gettempdir()) / f"firn-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    made = folder.lstat()
    if made.st_uid != os.getuid() or stat.S_IMODE(made.st_mode) & 0o077 or not stat.S_ISDIR(made.st_mode):
        raise SettingsError(f"{folder} is accessible to other users; remove it, or set TMPDIR")
    return folder / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:24]}.sock"


def hashes(settings: Settings) -> dict[str, str]:
    """A hash of each setting that makes a difference to callers: shows which differ, and no password."""
    return {
        name: hashlib.sha256(f"{settings.home}\n{name}\n{value!r}".encode()).hexdigest()[:16]
        for name, value in _leaves(settings, "")
        if not name.startswith(_IGNORED_SETTINGS)
    }


def differing(found: RunningService, settings: Settings) -> list[str]:
    """The names of the settings in which a service differs from these."""
    mine = hashes(settings)
    return sorted(name for name in mine.keys() | found.settings.keys() if mine.get(name) != found.settings.get(name))


def is_about_data(name: str) -> bool:
    """Whether a setting decides which data there are, and not how they are treated."""
    return name.startswith(_DATA_SETTINGS)


def _leaves(model: BaseModel, prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        found += _leaves(value, f"{prefix}{name}.") if isinstance(value, BaseModel) else [(f"{prefix}{name}", value)]
    return found
