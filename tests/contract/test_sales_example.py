"""The walk-through of examples/sales does what it shows: every command, in order, with the output printed in it."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.cli.connection.in_process import InProcess
from service.settings import ROOT
from tests.cli import call, shows
from tests.harness import Firn

EXAMPLE = ROOT / "examples" / "sales"
JANUARY, WHOLE_YEAR = (EXAMPLE / "README.md").read_text().split("## The whole year\n")
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SQLITE = re.compile(r"sqlite3 -readonly \S+ (.+)")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The command lines of a page, each with the output that is shown below it."""
    for block in BLOCK.findall(text):
        for part in block.removeprefix("$ ").split("\n$ "):
            line, _, output = part.partition("\n")
            yield line, output if output.endswith("\n") or not output else f"{output}\n"


@dataclass
class Walk:
    """Runs the commands of the page in a copy of the example."""

    firn: Firn
    tenant: str
    folder: Path

    def run(self, line: str) -> str:
        if line.startswith("firn "):
            # In this process, so that the service reads files by their paths, as one on the same machine does.
            called = call(shlex.split(line)[1:], {"FIRN_TENANT": self.tenant}, InProcess(self.firn.app))
            assert (called.code, called.err) == (0, ""), f"{line}\n{called}"
            return called.out
        if query := SQLITE.fullmatch(line):
            return self.log(shlex.split(query[1])[0])
        variables = {**os.environ, "FIRN_URL": self.firn.base_url, "FIRN_TENANT": self.tenant, "PYTHONPATH": str(ROOT)}
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", line], capture_output=True, text=True, timeout=300, cwd=self.folder, env=variables
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout

    def log(self, query: str) -> str:
        """What sqlite3 prints of the rows of this tenant."""
        sql = query.replace(" WHERE ", f" WHERE tenant_id = '{self.tenant}' AND ")
        with sqlite3.connect(self.firn.home / "ledger.db") as ledger:
            rows = ledger.execute(sql).fetchall()
        return "".join("|".join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize("part", ["January", pytest.param("the year", marks=pytest.mark.thorough)])
def test_every_command_of_the_walk_through_prints_what_it_shows(
    part: str, firn: Firn, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sales"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data", ".firn"))
    monkeypatch.chdir(folder)
    walk = Walk(firn, tenant, folder)
    lines = list(commands(JANUARY if part == "January" else JANUARY + WHOLE_YEAR))
    assert len(lines) > 15
    for line, shown in lines:
        printed = walk.run(line)
        assert shows(shown, printed), f"{line}\n{printed}"
