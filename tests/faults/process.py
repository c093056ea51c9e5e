"""A Firn in a process of its own, as `make serve` runs it: to be killed, starved and started again."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from service.settings import ROOT
from tests.harness import Firn, free_port, wait_until


class Process:
    """`python -m service serve` with its data under `home`; `settings` are FIRN_… variables without the prefix.

    It is not warmed unless they say so: most tests end it before that would be worth its while. `command` is another
    one than `serve`, with its arguments.
    """

    def __init__(
        self, home: Path, port: int | None = None, command: tuple[str, ...] = ("serve",), **settings: str
    ) -> None:
        self.home = home
        self.port = port or free_port()
        self.log_file = home.with_name(f"{home.name}.log")
        self.firn = Firn(f"http://127.0.0.1:{self.port}")
        env = {k: v for k, v in os.environ.items() if not k.startswith("FIRN_") or k == "FIRN_CACHE"}
        env |= {"FIRN_HOME": str(home), "FIRN_PORT": str(self.port), "FIRN_LOG_LEVEL": "info"}
        env |= {"FIRN_SPARK__WARM_UP": "false", "FIRN_INGEST__WATCH_INTERVAL_S": "1", "FIRN_SPARK__PROCESSES": "1"}
        env |= {f"FIRN_{key}": value for key, value in settings.items()}
        with self.log_file.open("ab") as log:
            self._popen = subprocess.Popen([sys.executable, "-m", "service", *command], cwd=ROOT, env=env, stderr=log)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.firn.client.close()
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()

    @property
    def id(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        return self._popen.poll() is not None

    def defects(self) -> list[str]:
        """What went wrong unforeseen, as the log says: the last line of each trace that an error id leads to."""
        found: list[str] = []
        seeking = False
        for line in self.log.splitlines():
            if "failed unexpectedly; error id" in line:
                seeking = True
                found.append("")
            elif seeking and re.match(r"\d{4}-\d\d-\d\d[ T]", line):
                seeking = False
            elif seeking and re.match(r"[\w.]+(Error|Exception)\b", line):
                found[-1] = line[:300]
        return found

    def ready(self) -> bool:
        assert not self.ended, self.log[-4000:]
        return self.firn.client.get("/ready").status_code == 200

    def wait_until_ready(self, seconds: float = 150) -> None:
        wait_until(self.ready, seconds, every=0.2)

    def health(self) -> int:
        """The status of `/health`; 0 where nothing answers."""
        try:
            return self.firn.client.get("/health", timeout=10).status_code
        except httpx.TransportError:
            return 0

    def terminate(self) -> None:
        self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def exit_code(self, seconds: float) -> int:
        return self._popen.wait(seconds)

    def jvms(self) -> list[int]:
        """The JVMs that belong to this home, also after the process that started them is gone."""
        return list(java_processes(self.home))

    def wait_until_no_jvm(self, seconds: float) -> float:
        """How long it took until none was left."""
        started = time.monotonic()
        wait_until(lambda: not self.jvms(), seconds)
        return time.monotonic() - started


def java_processes(home: Path) -> Iterator[int]:
    """Live Java processes that were started with this FIRN_HOME; a zombie has no environment any more."""
    marked = f"FIRN_HOME={home}".encode()
    for entry in Path("/proc").iterdir():
        try:
            is_java = entry.name.isdigit() and (entry / "comm").read_text().strip() == "java"
            if is_java and marked in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue


def is_stopped(process: int) -> bool:
    """Whether a process was sent SIGSTOP, and nothing since."""
    return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] == "T"
