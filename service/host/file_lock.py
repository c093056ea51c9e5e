"""A lock that processes of this machine share."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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
