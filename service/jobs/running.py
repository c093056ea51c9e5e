"""Work that can be called off while it is done: those who do it look here, those who call it off say so here."""

import logging
import threading
from collections.abc import Callable

from service.errors import Cancelled

log = logging.getLogger("firn.jobs")


class Running:
    """One piece of long work. All of it may be used from any thread."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        self._lock = threading.Lock()
        self._cancelled = False
        self._sealed = False
        self._told: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        """Whether it was called off, in time."""
        return self._cancelled

    def check(self) -> None:
        """Raise Cancelled where it was called off."""
        if self._cancelled:
            raise Cancelled

    def on_cancel(self, tell: Callable[[], object]) -> None:
        """Call `tell` when it is called off, at once if it was; on the thread of whoever does that, so it is quick."""
        with self._lock:
            if not self._cancelled:
                self._told.append(tell)
                return
        _call(tell)

    def cancel(self) -> bool:
        """Call it off; false where it is too late for that."""
        with self._lock:
            if self._sealed:
                return False
            self._cancelled = True
            told, self._told = self._told, []
        for tell in told:
            _call(tell)
        return True

    def seal(self) -> None:
        """From here on it is too late to call it off; Cancelled where it was before."""
        with self._lock:
            if not self._cancelled:
                self._sealed = True
                self._told = []
        self.check()


def _call(tell: Callable[[], object]) -> None:
    try:
        tell()
    except Exception:
        log.exception("something that was to be told of a cancel failed")
