"""Locks between the processes of this machine.

One process at a time owns a home, because two would not see each other's order of changes.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from service.settings import HomeInUse

_LOCK = "lock"
# A killed process leaves a JVM, which shares the lock and may be finishing a commit.
_JVM_WAIT_S = 15
_POLL_S = 0.1


@contextmanager
def locked(path: Path, notify: Callable[[str], None], waiting: str) -> Iterator[None]:
    """Hold the lock of a file during a `with` block. While another process holds it, notify once and wait."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            notify(waiting)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def acquire(home: Path) -> IO[str]:
    """Own a home until the returned file is closed; raises `HomeInUse` if another process owns it.

    Child processes that inherit the file, such as the JVM, keep the lock until they end, too.
    """
    lock = (home / _LOCK).open("a+")
    deadline = time.monotonic() + _JVM_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as e:
            process = owner(home)
            if (process.isdigit() and _is_running(int(process))) or time.monotonic() > deadline:
                raise in_use(home) from e
            time.sleep(_POLL_S)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def owner(home: Path) -> str:
    """The process that owns a home, as the lock's file names it; empty if it names none."""
    try:
        return (home / _LOCK).read_text().strip()
    except OSError:
        return ""


def in_use(home: Path) -> HomeInUse:
    """The error for a home that another process owns."""
    process = f"process {owner(home)}" if owner(home) else "another process"
    return HomeInUse(
        f"FIRN_HOME {home} is in use by {process}; stop it (`firn stop`), or set FIRN_HOME to another folder"
    )


def is_free(home: Path) -> bool:
    """Whether no process owns a home, nor a JVM that a killed process left behind."""
    if not home.exists():
        return True
    with (home / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user
        pass
    return True
