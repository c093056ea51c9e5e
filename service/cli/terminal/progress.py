"""Show the progress of a job on one line of a terminal."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from service.cli.terminal.cells import escape, shorten
from service.cli.terminal.format import format_duration, format_size

_BAR_WIDTH, _NAME_WIDTH = 20, 34
OnProgress = Callable[[dict[str, Any]], None]
"""Called with a job whenever its state was read."""
Figures = Mapping[str, Any]
"""The `progress` of a job: what is done, and of how much if that is known."""


@contextmanager
def progress_line(out: TextIO, what: str, clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """Keep a line with a job's progress up to date, and remove it at the end. Not for a pipe or a file."""
    from rich.console import Console  # 50 ms, paid only if somebody watches
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(file=out)
    with Progress(
        TextColumn("{task.description} {task.fields[phase]}", markup=False),
        BarColumn(_BAR_WIDTH),
        TaskProgressColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=console.is_dumb_terminal,
    ) as progress:
        name = shorten(escape(what), _NAME_WIDTH, "~", middle=True)
        task = progress.add_task(name, total=None, phase="", figures="")
        pace = Pace(clock)

        def show(job: dict[str, Any]) -> None:
            figures = job.get("progress") or {}
            phase = figures.get("phase") if job["state"] == "running" else None
            done, total = _share(figures)
            progress.update(
                task,
                total=total,
                completed=done,
                phase=escape(phase or job["state"]),
                figures=describe(pace.extend(figures)),
            )

        yield show


def report(on_progress: OnProgress, phase: str, **figures: int) -> None:
    """Show the progress of this command's own work, in the same way as a job's."""
    on_progress({"state": "running", "progress": {"phase": phase, **figures}})


def describe(figures: Figures) -> str:
    """What a job has done, how fast, and how long the rest takes: what is known of it."""
    parts = [
        _amount(figures, "days", "days"),
        _amount(figures, "records", "rows"),
        _amount(figures, "files", "files"),
        None if figures.get("files_total") else _bytes(figures),
        _rate(figures),
        f"{format_duration(figures['remaining_ms'])} left" if figures.get("remaining_ms") is not None else None,
    ]
    return ", ".join(part for part in parts if part)


@dataclass
class Pace:
    """Computes the rate of a job and the time that is left, if the service does not say them."""

    clock: Callable[[], float] = time.monotonic
    _phase: str | None = None
    _since: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """When the phase was first seen, and what was done by then: the rows, and the part of the total."""

    def extend(self, figures: Figures) -> Figures:
        """The figures with `records_per_s` and `remaining_ms`."""
        now, rows = self.clock(), figures.get("records_done", figures.get("records")) or 0
        done, total = _share(figures)
        started, rows_before, done_before = self._since
        if figures.get("phase") != self._phase or done < done_before or rows < rows_before:
            self._phase, self._since = figures.get("phase"), (now, rows, done)
            return figures
        computed: dict[str, Any] = {}
        if now > started and rows > rows_before:
            computed["records_per_s"] = round((rows - rows_before) / (now - started))
        if now > started and total and done > done_before:
            computed["remaining_ms"] = round((total - done) / (done - done_before) * (now - started) * 1000)
        return {**computed, **figures}


def _share(figures: Figures) -> tuple[float, float | None]:
    """How much of how much is done, in the unit whose total is known; it is None if none is."""
    for unit in ("days", "records", "bytes", "files"):
        if figures.get(f"{unit}_total"):
            return figures.get(f"{unit}_done") or 0, figures[f"{unit}_total"]
    return 0, None


def _amount(figures: Figures, unit: str, noun: str) -> str | None:
    done, total = figures.get(f"{unit}_done", figures.get(unit)) or 0, figures.get(f"{unit}_total")
    if total:
        return f"{done:,}/{total:,} {noun}"
    return f"{done:,} {noun}" if done else None


def _bytes(figures: Figures) -> str | None:
    total = figures.get("bytes_total")
    return f"{format_size(figures.get('bytes_done') or 0)} of {format_size(total)}" if total else None


def _rate(figures: Figures) -> str | None:
    """The rate, in the unit in which it is known."""
    for unit, written in (("records", "{:,.0f} rows"), ("files", "{:,.1f} files")):
        if rate := figures.get(f"{unit}_per_s"):
            return f"{written.format(rate)}/s"
    rate = figures.get("bytes_per_s")
    return f"{format_size(rate)}/s" if rate else None
