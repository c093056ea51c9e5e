"""Show the progress of a job on one line of a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from service.cli.terminal.cells import escape, shorten
from service.cli.terminal.format import format_size

_BAR_WIDTH, _NAME_WIDTH = 20, 34
OnProgress = Callable[[dict[str, Any]], None]
"""Called with a job whenever its state was read."""


@contextmanager
def progress_line(out: TextIO, what: str) -> Iterator[OnProgress]:
    """Keep a line with a job's progress up to date, and remove it at the end. Not for a pipe or a file."""
    from rich.console import Console  # 50 ms, paid only if somebody watches
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(file=out)
    with Progress(
        TextColumn("{task.description} {task.fields[phase]}", markup=False),
        BarColumn(_BAR_WIDTH),
        TaskProgressColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[files]}", markup=False),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=console.is_dumb_terminal,
    ) as progress:
        task = progress.add_task(shorten(escape(what), _NAME_WIDTH, "~", middle=True), total=None, phase="", files="")

        def show(job: dict[str, Any]) -> None:
            figures = job.get("progress") or {}
            phase = figures.get("phase") if job["state"] == "running" else None
            total = figures.get("bytes_total") or None
            files = f"{figures['files_done']:,}/{figures['files_total']:,} files" if figures.get("files_total") else ""
            if not files and total:
                files = f"{format_size(figures.get('bytes_done', 0))} of {format_size(total)}"
            elif figures.get("records"):
                files = f"{figures['records']:,} rows"
            progress.update(
                task,
                total=total,
                completed=figures.get("bytes_done", 0),
                phase=escape(phase or job["state"]),
                files=files,
            )

        yield show
