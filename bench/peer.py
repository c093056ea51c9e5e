"""A peer: another tool in a process of its own, which runs commands and measures itself."""

import contextlib
import json
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.place import ROOT, THEIRS, say


class PeerFailed(Exception):
    """A peer could not run a command."""


class Capped(Exception):
    """A peer exceeded its time, and was ended."""


class Peer:
    """One of bench/peers/, kept running so that no measurement pays for its imports."""

    def __init__(self, name: str, home: Path, python: Path = THEIRS) -> None:
        self._name = name
        self._log = home / f"{name}-peer.log"
        self._command = [str(python), "-m", f"bench.peers.{name}"]
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def ask(self, do: str, cap: float = 900, **arguments: Any) -> Any:
        """The result of a command. After `cap` seconds the peer is ended and started again; raises Capped."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
        except BrokenPipeError as e:
            raise self._failed(do, "it has ended") from e
        if not select.select([stdout], [], [], cap)[0]:
            self._process.kill()
            self._end()
            self._process = self._start()
            raise Capped(f"{self._name} {do} took longer than {cap:g} s")
        line = stdout.readline()
        if not line:
            raise self._failed(do, "it ended")
        response = json.loads(line)
        if "error" in response:
            raise self._failed(do, response["error"])
        return response["result"]

    def _start(self) -> "subprocess.Popen[str]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def _end(self) -> None:
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # which is what ends it
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _failed(self, do: str, why: str) -> PeerFailed:
        say(self._log.read_text(errors="replace")[-2000:])
        return PeerFailed(f"{self._name} {do}: {why}")
