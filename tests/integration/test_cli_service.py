"""The `firn` command as a shell runs it, with a Spark of its own: one start for many commands, and nothing lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli.example_files import ORDERS_YAML
from service.host import presence
from service.settings import ROOT
from tests.harness import wait_until

FILES = 5


class Shell:
    """Commands in a folder with a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("FIRN_") or k == "FIRN_CACHE"}
        self.environ = {**inherited, "FIRN_HOME": "home", "PYTHONPATH": str(ROOT), "FIRN_TENANT": "acme"}

    def begin(self, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "service", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env={**self.environ, **environ}, stdout=pipe, stderr=pipe, text=True
        )

    def firn(self, *arguments: str, **environ: str) -> str:
        """What a command that must succeed prints."""
        return self.ended(self.begin(*arguments, **environ))

    @staticmethod
    def ended(process: "subprocess.Popen[str]") -> str:
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, (process.args, out, err)
        return out

    @property
    def pid(self) -> int | None:
        """The service's process."""
        found = presence.find(self.home)
        return found.pid if found else None

    @property
    def starts(self) -> int:
        return (self.home / "service.log").read_text().count("listening on")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    (tmp_path / "orders.yaml").write_text(ORDERS_YAML)
    for i in range(FILES):
        record = {"id": i, "customer": "Ann"}
        request = {"operation": "WRITE", "namespace": "shop", "table": "orders", "records": [record]}
        (tmp_path / f"{i}.json").write_text(json.dumps(request))
    return made


def ids(shell: Shell, *more: str) -> list[int]:
    answer = json.loads(shell.firn("query", "orders", "--namespace", "shop", "--sort", "id", "--json", *more))
    return [row["id"] for row in answer["data"]]


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_loop_over_files_starts_spark_once_and_a_kill_loses_nothing(shell: Shell) -> None:
    assert shell.firn("table", "create", "orders.yaml") == "created shop.orders\n"
    assert shell.pid is None, "metadata needs no service"
    try:
        for process in [shell.begin("call", f"{i}.json") for i in (0, 1)]:
            shell.ended(process)
        first = shell.pid
        for i in range(2, FILES):
            shell.firn("call", f"{i}.json")
        assert ids(shell) == list(range(FILES))
        assert (shell.pid, shell.starts) == (first, 1)
        assert "_firn.warm" not in (shell.home / "service.log").read_text(), "who waits was made to wait for a warm-up"
        assert first is not None
        os.kill(first, signal.SIGKILL)
        body = shell.firn("table", "describe", "orders.yaml")
        assert f"rows            {FILES}\n" in body
        assert shell.pid is None
        assert ids(shell, "--no-background") == list(range(FILES))
        assert (shell.pid, shell.starts) == (None, 1)
    finally:
        shell.firn("stop")


@pytest.mark.thorough  # it waits for two starts; how long a service is idle is tested without a JVM
@pytest.mark.timeout(600)
def test_a_service_in_the_background_ends_when_nobody_asks_and_says_so(shell: Shell) -> None:
    shell.firn("table", "create", "orders.yaml")
    process = shell.begin("query", "orders", "--namespace", "shop", FIRN_BACKGROUND__IDLE_TIMEOUT_S="2")
    try:
        assert shell.ended(process) == "0 rows\n"
        wait_until(lambda: not (shell.home / "service.json").exists(), 60)
        assert "stopping: there was no request for 2 s" in (shell.home / "service.log").read_text()
        assert shell.firn("stop") == f"no service of FIRN_HOME {shell.home} is running\n"
        assert shell.firn("table", "list", "--namespace", "shop") == "orders\n"
    finally:
        shell.firn("stop")
