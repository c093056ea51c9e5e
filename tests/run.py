"""Run the groups of tests, and end with one table of what passed and what each group cost.

    python -m tests.run                           what `make test` runs
    python -m tests.run unit                      one group of it
    python -m tests.run --all [--without-large]   what `make test-all` runs

A group's CPU seconds are those of every process it started, user and system, killed ones included.

`make test` runs the unit tests and the faults beside the tests of a running service, so that no core is idle.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import IO

BIN = Path(sys.executable).parent
PYTEST = (sys.executable, "-m", "pytest")
PR_SET_CHILD_SUBREAPER = 36
SERVICE = "service"
# A JVM that lives a few minutes does not earn back what its second compiler and its concurrent garbage collector cost.
# The first compiler alone would have too little room for its code, and sweep it all the time.
# With the heap and the classes that it begins with, it would collect garbage often, and all of it several times.
# Nor does the code that Spark generates and compiles for each new query pay off with a few rows, and what it remembers
# of a thousand jobs for a web page that nobody opens.
QUICK_JVM = " ".join(
    (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
        "-XX:NewSize=200m -XX:MetaspaceSize=256m",
        "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN",
        "-Dspark.ui.retainedJobs=100 -Dspark.ui.retainedStages=100",
    )
)

Command = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Commands that are one line of the table. `counted`: pytest, which says how many tests it ran."""

    name: str
    commands: tuple[Command, ...]
    counted: bool = True


@dataclass
class Result:
    """The result of a group."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wall_s: float = 0
    cpu_s: float = 0


CHECKS = Group(
    "checks",
    (
        (f"{BIN}/ruff", "format", "--check", "."),
        (f"{BIN}/ruff", "check", "."),
        (f"{BIN}/mypy", "service", "handlers"),
        (f"{BIN}/lint-imports", "--no-logo"),
        ("env", "NO_MKDOCS_2_WARNING=1", f"{BIN}/mkdocs", "build", "--quiet"),  # strict: a broken link or anchor fails
    ),
    counted=False,
)


def groups(everything: bool, large: bool) -> Iterator[Group]:
    """The groups of a run.

    The tests of a running service are one group, because a start of the service costs as much as twenty of them.
    """
    marks = ("-m", "not large" if everything else "not large and not thorough")
    # In the order of collection, as the files with the fewest tests, which would come last, are some of the longest.
    two = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    yield CHECKS
    # One process: it runs beside the services, and a second would read all these modules again.
    examples = ("-n", "2", "--hypothesis-profile", "thorough") if everything else ("-q",)
    yield _tests("unit", "tests/unit", *marks, *examples)
    yield _tests(SERVICE, "tests/contract", "tests/integration", *marks, *two)
    yield _tests("faults", "tests/faults", *marks, *two)
    if large:
        yield _tests("large sizes", "tests", "-m", "large")


def _tests(name: str, *arguments: str) -> Group:
    return Group(name, ((*PYTEST, *arguments),))


def run(group: Group, output: IO[bytes] | None = None) -> Result:
    """Run all commands of a group, also if one fails. Without `output` they write to the terminal."""
    result = Result(group.name)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        for command in group.commands:
            heading = f"\nfirn: {group.name}: {' '.join(command)}\n"
            if output:
                output.write(heading.encode())
                output.flush()
            else:
                print(heading, end="", flush=True)
            if group.counted:
                command = (*command, f"--junitxml={report}")
            succeeded, cpu_s = measured(command, output)
            result.cpu_s += cpu_s
            if group.counted and report.exists():
                _count(result, report)
            elif succeeded:
                result.passed += 1
            else:
                result.failed += 1
            if not succeeded and not result.failed:
                result.failed = 1  # pytest itself
    result.wall_s = time.monotonic() - started
    return result


def run_beside(one: list[Group], other: list[Group]) -> list[Result]:
    """Run groups, and at the same time others, whose output is printed once each has ended."""
    with ProcessPoolExecutor(1, get_context("fork"), adopt_orphans) as pool:
        # One call for all of them, so that none begins after Ctrl-C has ended another.
        beside = pool.submit(run_quietly, other)
        results = [run(group) for group in one]
        return [*results, *beside.result()]


def run_quietly(groups: list[Group]) -> list[Result]:
    results = []
    for group in groups:
        with tempfile.TemporaryFile() as output:
            results.append(run(group, output))
            output.seek(0)
            print(output.read().decode(errors="replace"), flush=True)
    return results


def measured(command: Command, output: IO[bytes] | None = None) -> tuple[bool, float]:
    """Run a command: whether it succeeded, and the CPU seconds of it and of all that it started."""
    process = subprocess.Popen(command, stdout=output, stderr=output)
    cpu_s = 0.0
    while process.returncode is None:
        # Any child, so that processes left behind by a killed parent end as they would under init.
        ended, status, used = os.wait4(-1, 0)
        cpu_s += used.ru_utime + used.ru_stime
        if ended == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
    with suppress(ChildProcessError):
        while (left := os.wait4(-1, os.WNOHANG))[0]:
            cpu_s += left[2].ru_utime + left[2].ru_stime
    return process.returncode == 0, cpu_s


def adopt_orphans() -> None:
    """Have processes whose parent was killed become children of this one, so that their CPU seconds are known."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def table(results: list[Result], wall_s: float) -> str:
    """The results, and their sum: all of them took `wall_s` seconds, in which some ran beside each other."""
    total = Result("total", wall_s=wall_s)
    for result in results:
        for column in ("passed", "failed", "skipped", "cpu_s"):
            setattr(total, column, getattr(total, column) + getattr(result, column))
    lines = [f"{'group':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'wall':>8}{'CPU s':>8}"]
    for r in (*results, total):
        wall = f"{int(r.wall_s) // 60}:{int(r.wall_s) % 60:02}"
        lines.append(f"{r.name:<12}{r.passed:>8}{r.failed:>8}{r.skipped:>9}{wall:>8}{r.cpu_s:>8.0f}")
    return "\n".join(lines)


def _count(result: Result, report: Path) -> None:
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        result.passed += tests - skipped - failed
        result.failed += failed
        result.skipped += skipped


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("group", nargs="*", help="only these groups")
    parser.add_argument("--all", action="store_true", help="variants, more examples and large sizes too")
    parser.add_argument("--without-large", action="store_true", help="leave out the sizes that take hours")
    chosen = parser.parse_args(arguments)
    found = list(groups(chosen.all, chosen.all and not chosen.without_large))
    unknown = set(chosen.group) - {group.name for group in found}
    if unknown:
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(group.name for group in found)}")
    if not chosen.all:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JVM)
    # Otherwise each of the many processes of a run compiles every module again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    adopt_orphans()
    started = time.monotonic()
    results = run_all(
        [group for group in found if not chosen.group or group.name in chosen.group], beside=not chosen.all
    )
    print(f"\n{table(results, time.monotonic() - started)}")
    return 1 if any(result.failed for result in results) else 0


def run_all(chosen: list[Group], beside: bool) -> list[Result]:
    """Run groups in their order; with `beside`, those that are not of a running service beside it."""
    results: list[Result] = []
    if CHECKS in chosen:
        results.append(run(CHECKS))
        if results[-1].failed:
            return results  # they take seconds, and most often fail for a reason that fails tests too
    tests = [group for group in chosen if group is not CHECKS]
    service = [group for group in tests if beside and group.name == SERVICE]
    others = [group for group in tests if group not in service]
    if service and others:
        found = {result.name: result for result in run_beside(service, others)}
        return [*results, *(found[group.name] for group in tests)]
    return [*results, *map(run, tests)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
