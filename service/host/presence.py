"""Where the service of a home is found: a socket in FIRN_HOME that its user alone can open, and a note of who listens.

Only the owner of the home's lock makes them, so a socket that answers is the owner's, and so is the note beside it.
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
# The system takes 108 bytes of a socket's path, macOS 104.
_LONGEST_PATH = 100
_CONNECT_S = 5
# Other data than the caller means.
_DATA = ("catalog.", "ledger.", "environment")
# What a caller cannot notice.
_ASIDE = ("host", "port", "log_level", "home", "background.")


@dataclass(frozen=True)
class Presence:
    """Who serves a home."""

    pid: int
    background: bool
    """Whether a command started it, and it ends by itself."""
    log: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """A hash of each setting."""


def announce(settings: Settings, *, background: bool, log: str | None = None) -> socket.socket:
    """A socket to listen on, where commands about this home will look for it; the caller owns the home."""
    withdraw(settings.home)
    note = Presence(os.getpid(), background, log, hashes(settings))
    _write(settings.home / _NOTE, json.dumps(asdict(note)))
    path = socket_path(settings.home)
    listening = socket.socket(socket.AF_UNIX)
    made = path.with_suffix(f".{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            made.unlink()
        listening.bind(str(made))
        made.chmod(0o600)
        listening.listen(128)
        made.rename(path)  # nobody sees it before it is theirs alone
    except OSError as e:
        listening.close()
        raise SettingsError(f"no socket can be made at {path} ({e.strerror or e})") from e
    return listening


def withdraw(home: Path) -> None:
    """Be found no more."""
    for path in (socket_path(home), home / _NOTE):
        with suppress(OSError):
            path.unlink()


def find(home: Path) -> Presence | None:
    """Who serves a home, if somebody listens."""
    try:
        connect(home).close()
        return Presence(**json.loads((home / _NOTE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def connect(home: Path, timeout_s: float = _CONNECT_S) -> socket.socket:
    """A connection to the service of a home; an OSError where there is none."""
    path = socket_path(home)
    if stat.S_IMODE(path.stat().st_mode) & 0o077 or path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} is not this user's alone")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def socket_path(home: Path) -> Path:
    """In the home, unless its path is too long for a socket's: then in a folder of the user's own."""
    path = home / _SOCKET
    # Room for the process's number, which it bears while it is made.
    if len(os.fsencode(path)) <= _LONGEST_PATH - 12:
        return path
    folder = Path(tempfile.gettempdir()) / f"firn-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    made = folder.lstat()
    if made.st_uid != os.getuid() or stat.S_IMODE(made.st_mode) & 0o077 or not stat.S_ISDIR(made.st_mode):
        raise SettingsError(f"{folder} is not this user's alone, which a socket needs; remove it, or set TMPDIR")
    return folder / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:24]}.sock"


def hashes(settings: Settings) -> dict[str, str]:
    """A hash of each setting that a caller may notice, so that the note tells which differ and no password."""
    return {
        name: hashlib.sha256(f"{settings.home}\n{name}\n{value!r}".encode()).hexdigest()[:16]
        for name, value in _leaves(settings, "")
        if not name.startswith(_ASIDE)
    }


def differing(found: Presence, settings: Settings) -> list[str]:
    """The settings that a service was started with otherwise, in order."""
    mine = hashes(settings)
    return sorted(name for name in mine.keys() | found.settings.keys() if mine.get(name) != found.settings.get(name))


def is_about_data(name: str) -> bool:
    """Whether a setting says which data there are, not how they are treated."""
    return name.startswith(_DATA)


def _leaves(model: BaseModel, prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        found += _leaves(value, f"{prefix}{name}.") if isinstance(value, BaseModel) else [(f"{prefix}{name}", value)]
    return found


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".service-", delete=False) as file:  # 0600
        file.write(text)
    Path(file.name).rename(path)
