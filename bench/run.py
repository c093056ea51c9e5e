"""`python -m bench.run [part …]`: measures, and writes bench/results/latest.json and latest.md."""

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from bench import report
from bench.parts import PARTS
from bench.place import RESULTS, ROOT, say

_CORES = 2


def main(arguments: Sequence[str]) -> int:
    if unknown := [text for text in arguments if text not in {str(number) for number in PARTS}]:
        print(f"bench: PART={unknown[0]} is not one of {', '.join(map(str, PARTS))}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _terminated)  # as an exception, so that all processes are ended
    _keep_to(_CORES)
    failed = False
    for number in [int(text) for text in arguments] or list(PARTS):
        say(f"part {number}: {PARTS[number].TITLE}")
        section = _measured(number)
        failed |= "error" in section
        results = report.merged(report.read(RESULTS), number, section)
        report.write(RESULTS, results | {"machine": _machine()})
    print(report.markdown(report.read(RESULTS)))
    return int(failed)


def _measured(number: int) -> dict[str, Any]:
    """One part's section. If the part fails, the section has the error, and the other parts still run."""
    started = time.monotonic()
    section: dict[str, Any] = {"title": PARTS[number].TITLE}
    section |= {"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "commit": _commit()}
    try:
        measured = PARTS[number].measure()
        section["lines"] = [line.as_json() for line in measured.lines]
        section["claims"] = [claim.as_json() for claim in measured.claims]
    except Exception as e:
        traceback.print_exc()
        section |= {"lines": [], "claims": [], "error": f"{type(e).__name__}: {e}"[:1000]}
    return section | {"seconds": round(time.monotonic() - started)}


def _keep_to(cores: int) -> None:
    """All processes started from here on share so many cores, even if the machine has more."""
    with contextlib.suppress(AttributeError):  # macOS has no such call
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def _machine() -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    locked = "\n".join((ROOT / name).read_text() for name in ("requirements.lock", "bench/requirements.lock"))
    versions = {
        name: re.search(rf"(?m)^{name}==(\S+)", locked) for name in ("pyspark", "pyiceberg", "duckdb", "pyarrow")
    }
    used = [f"{name} {found[1]}" for name, found in versions.items() if found]
    jars = re.findall(
        r"(?m)^org\.apache\.iceberg:(iceberg-spark-runtime\S+):(\S+) ", (ROOT / "config/jars.lock").read_text()
    )
    used += [f"{name} {version}" for name, version in jars]
    return {
        "cores": f"{cores} of {os.cpu_count()}, {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(used),
    }


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (
            " and changes" if git("status", "--porcelain", "-uno", "--", ".", ":!bench/results") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _terminated(_number: int, _frame: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
