"""Where things are, and how a run reports its progress."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
RESULTS = BENCH / "results"
# The tables of all tools are here, so that all write to the same disk.
WORK = BENCH / ".work"
OURS = ROOT / ".venv" / "bin" / "python"
THEIRS = BENCH / ".venv" / "bin" / "python"
DLT = BENCH / ".dlt" / "bin" / "python"
_STARTED = time.monotonic()


@contextmanager
def folder(name: str) -> Iterator[Path]:
    """A folder of one part's own, gone when it ends."""
    WORK.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=WORK))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def say(text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _STARTED), 60)
    print(f"bench {minutes:2d}:{seconds:02d}  {text}", file=sys.stderr, flush=True)
