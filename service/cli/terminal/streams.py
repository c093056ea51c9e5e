"""The streams of this process, made fit to use whatever it was started with."""

import codecs
import io
import os
import sys
from typing import Literal, TextIO


def prepare() -> None:
    """Have each stream be there, and output spell out what its encoding lacks.

    One that is closed becomes /dev/null, before a file that is opened gets its number and what is meant for it.
    """
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")
    for out in (sys.stdout, sys.stderr):
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")


def is_utf_8(out: TextIO) -> bool:
    """Whether every letter can be written there."""
    return codecs.lookup(out.encoding or "utf-8").name == "utf-8"


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    opened = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(opened, True)  # a process that is started here has no fewer streams
    return os.fdopen(opened, mode, encoding="utf-8", closefd=False)
