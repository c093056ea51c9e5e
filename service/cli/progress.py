"""How far a job is, on one line of a terminal that is written over and over."""

import time
from collections.abc import Callable
from typing import Any, TextIO

from service.cli.cells import clean, cut

_BAR, _NAME = 20, 34


class Progress:
    """The line of one job; without a terminal nothing is shown."""

    def __init__(self, out: TextIO, what: str, width: int | None, now: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._what = what
        self._width = width
        self._now = now
        self._since = now()
        self._shown = False

    def __call__(self, job: dict[str, Any]) -> None:
        if self._width is None:
            return
        line = cut(clean(_line(self._what, job, self._now() - self._since)), self._width - 1, "~")
        self._out.write(f"\r{line}\033[K")
        self._out.flush()
        self._shown = True

    def end(self) -> None:
        """Leave a clean line behind."""
        if self._shown:
            self._out.write("\r\033[K")
            self._out.flush()


def _line(what: str, job: dict[str, Any], elapsed_s: float) -> str:
    progress = job.get("progress") or {}
    phase = progress.get("phase") or job["state"]
    phase = job["state"] if job["state"] != "running" else phase
    done, total = progress.get("bytes_done"), progress.get("bytes_total")
    seconds = f"{elapsed_s:.0f} s"
    what = cut(what, _NAME, "~", middle=True)
    if not total:
        return f"{what}: {phase} {seconds}"
    share = min(1.0, done / total)
    bar = ("#" * round(share * _BAR)).ljust(_BAR, "-")
    files = f"{progress.get('files_done', 0):,}/{progress.get('files_total', 0):,} files"
    return f"{what} [{bar}] {share:4.0%} {seconds}, {files}"
