"""From `make serve` to `/ready`, when everything is installed and the data is there."""

import os
import signal
import subprocess
import time
from pathlib import Path

from bench.measures import FIRN, Line, Section
from bench.place import ROOT, folder, say
from bench.service import environment, free_port, wait_until_ready

TITLE = "Start"
_TIMES = 4


def measure() -> Section:
    with folder("start") as home:
        took = []
        for number in range(_TIMES):
            took.append(_start(home / "firn", home / "firn.log"))
            say(f"part 7: start {number + 1} of {_TIMES}: {took[-1]:.1f} s")
    # The first start made the folder and its catalog, so only the others are alike.
    return Section([Line("make serve to /ready, second run", FIRN, "s", took[1:])])


def _start(home: Path, log_file: Path) -> float:
    port = free_port()
    with log_file.open("ab") as log:
        started = time.monotonic()
        process = subprocess.Popen(
            ["make", "--no-print-directory", "serve"], cwd=ROOT, env=environment(home, port), stdout=log, stderr=log
        )
    try:
        return wait_until_ready(port, process, log_file) - started
    finally:
        # `make` does not forward signals; the lock file has the id of the process that serves.
        owner = (home / "lock").read_text().strip() if (home / "lock").exists() else ""
        if owner.isdigit():
            os.kill(int(owner), signal.SIGTERM)
        else:
            process.terminate()
        process.wait(60)
