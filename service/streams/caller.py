"""Who waits for an answer: what they can read, and whether they still wait."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Caller:
    """One request's caller, as the door knows them that the request came through."""

    def __init__(self, accept: str = "", *, streams: bool = False) -> None:
        """`streams` says that a part of an answer cannot be taken for the whole on the way to this caller."""
        self.accept = accept
        self.streams = streams
        self.gone = False
        self._lock = threading.Lock()
        self._told: list[Callable[[], None]] = []

    @property
    def may_stream(self) -> bool:
        """Whether an answer to them may be a stream; false for most, at once."""
        return self.accept not in ("", "*/*", "application/json")

    def hang_up(self) -> None:
        """The caller is gone: whatever works for them is told, once."""
        with self._lock:
            told, self._told = self._told, []
            self.gone = True
        for tell in told:
            tell()

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` if the caller goes during the block, or has gone before it."""
        with self._lock:
            gone = self.gone
            if not gone:
                self._told.append(tell)
        if gone:
            tell()
        try:
            yield
        finally:
            with self._lock:
                if tell in self._told:
                    self._told.remove(tell)
