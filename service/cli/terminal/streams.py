"""Make the standard streams of this process usable, however it was started."""

import io
import os
import sys
from typing import Literal, TextIO


def prepare() -> None:
    """Open /dev/null for every stream that is closed, and write characters that an encoding lacks as escapes.

    Without this, the next file to be opened would get the number of the closed stream, and what is written to it.
    """
    sys.stdin = sys.stdin or _open_null("r")
    sys.stdout = sys.stdout or _open_null("w")
    sys.stderr = sys.stderr or _open_null("w")
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")


def _open_null(mode: Literal["r", "w"]) -> TextIO:
    opened = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(opened, True)  # child processes need the three streams, too
    return os.fdopen(opened, mode, encoding="utf-8", closefd=False)
