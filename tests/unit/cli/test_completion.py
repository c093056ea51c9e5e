"""The completion scripts in the shells that they are for, as somebody types there."""

import itertools
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli.completion.scripts import SCRIPTS
from service.settings import ROOT
from tests.unit.cli.test_completed_names import serving

TYPED = [
    ("firn ta", "firn table"),
    ("firn table desc", "firn table describe"),
    ("firn table compact t --strategy z", "firn table compact t --strategy zorder"),
    ("firn --json ta", "firn --json table"),
    ("firn --url http://localhost:8080 ta", "firn --url http://localhost:8080 table"),
    ("firn table drop --tenant=x t --pur", "firn table drop --tenant=x t --purge"),
    ("firn table create orders.y", "firn table create orders.yaml"),
    ("firn table create --schema ord", "firn table create --schema orders.yaml"),
    ("firn table describe -n shop ca", "firn table describe -n shop carts"),
    ("firn table describe shop.c", "firn table describe shop.carts"),
    ("firn update orders --set it", "firn update orders --set item="),
    ("firn table list --namespace=s", "firn table list --namespace=shop"),
    ("~/bin/firn ta", "~/bin/firn table"),
]
CASES = pytest.mark.parametrize(("typed", "completed"), TYPED, ids=[typed for typed, _ in TYPED])
KILL_LINE = "\x15"
BEGIN = {
    "bash": ["bash", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "zsh from $fpath": ["zsh", "-f", "-i"],
}
SET_UP = {
    "bash": "source bash.script",
    "zsh": "autoload -Uz compinit; compinit -u -D; source zsh.script",
    "zsh from $fpath": "autoload -Uz compinit; fpath=($PWD $fpath); compinit -u -D",
}


def need(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; its script was tried where it is")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the command, the scripts, a file, and a service whose names are completed."""
    made = tmp_path_factory.mktemp("home")
    (made / "bin").mkdir()
    (made / "bin/firn").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m service "$@"\n')
    (made / "bin/firn").chmod(0o755)
    for shell, script in SCRIPTS.items():
        (made / f"{shell}.script").write_text(script)
    (made / "_firn").write_text(SCRIPTS["zsh"])
    (made / "orders.yaml").touch()
    with serving() as url:
        (made / "url").write_text(url)
        yield made


def environ(folder: Path) -> dict[str, str]:
    variables = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}
    return {**variables, "FIRN_URL": (folder / "url").read_text()}


class Terminal:
    """An interactive shell at the other end of a terminal."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._lines = itertools.count()
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environ(folder))

    def run(self, line: str) -> None:
        """Have a line done, in place of what was typed last."""
        number = next(self._lines)
        # The line as it is typed is seen as well: only what it prints has the sum.
        self.type(f"{KILL_LINE}{line}; echo done$((1000 + {number}))\n", f"done{1000 + number}")

    def type(self, text: str, until: str) -> str:
        """What has come to be seen once this is, or after a while."""
        os.write(self._end, text.encode())
        seen, deadline = "", time.monotonic() + 30
        while until not in seen and time.monotonic() < deadline:
            if select.select([self._end], [], [], 0.1)[0]:
                seen += os.read(self._end, 65536).decode(errors="replace")
        return seen

    def close(self) -> None:
        os.close(self._end)
        os.waitpid(self._pid, 0)


@pytest.fixture(scope="module", params=list(BEGIN))
def terminal(request: pytest.FixtureRequest, folder: Path) -> Iterator[Terminal]:
    """One shell for all that is typed: zsh takes a third of a second to learn completing."""
    need(BEGIN[request.param][0])
    made = Terminal(BEGIN[request.param], folder)
    made.run(SET_UP[request.param])
    yield made
    made.close()


@CASES
def test_bash_and_zsh_complete_what_is_typed(terminal: Terminal, typed: str, completed: str) -> None:
    terminal.run(":")
    assert completed in terminal.type(f"{typed}\t", completed)


def test_bash_quotes_a_name_and_runs_nothing_of_it(folder: Path) -> None:
    terminal = Terminal(BEGIN["bash"], folder)
    terminal.run(SET_UP["bash"])
    assert r"--drop a\ b\$\(c\)" in terminal.type("firn table alter orders --drop a\t", r"\(c\)")
    terminal.close()


@CASES
def test_fish_completes_what_is_typed(folder: Path, typed: str, completed: str) -> None:
    need("fish")
    asked = ["fish", "--no-config", "-c", f"source fish.script; complete -C {typed!r}"]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=folder, env=environ(folder), timeout=60)
    assert (done.stdout.split(), done.stderr) == (completed.split()[-1:], "")
