"""Calls of the `firn` command in this process, and its examples as tests run them."""

import io
import re
import shlex
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from service.cli.command import CommandExample
from service.cli.connection.remote import Connection
from service.cli.example_files import FILES
from service.cli.examples import PLACEHOLDERS
from service.cli.main import main
from tests.harness import Firn


@dataclass(frozen=True)
class Called:
    """The outcome of a call."""

    code: int
    out: str
    err: str


def call(
    arguments: list[str], environ: dict[str, str], connection: Connection | None = None, stdin: str = ""
) -> Called:
    """Run a command as the shell would, without a terminal."""
    out, err = io.StringIO(), io.StringIO()
    try:
        code = main(
            arguments,
            environ,
            stdin=io.TextIOWrapper(io.BytesIO(stdin.encode())),
            stdout=out,
            stderr=err,
            connection=connection,
        )
    except SystemExit as e:  # argparse's own way out
        code = int(e.code or 0)
    return Called(code, out.getvalue(), err.getvalue())


def run(
    example: CommandExample,
    firn: Firn,
    tenant: str,
    folder: Path,
    environ: dict[str, str],
    connection: Connection | None,
) -> Called:
    """Run an example, after what is given, in a folder that is the present one."""
    for name, text in FILES.items():
        # Of its own also for a service that runs elsewhere, because no two tables may export to one folder.
        (folder / name).write_text(text.replace("base_path: tables/", f"base_path: {folder}/tables/"))
    environ = {**environ, "FIRN_TENANT": tenant}
    answers: list[dict[str, Any]] = []

    def words(line: str) -> list[str]:
        program, *rest = shlex.split(line)
        assert program == "firn", line
        for sample, (back, path) in PLACEHOLDERS.items():
            if any(sample in word for word in rest):
                value = reduce(lambda value, key: value[key], path.split("."), answers[-back])
                rest = [word.replace(sample, str(value)) for word in rest]
        return rest

    for given in example.setup:
        if isinstance(given, str):
            done = call(words(given), environ, connection)
            assert (done.code, done.err) == (0, ""), (given, done)
        else:
            answers.append(firn.ok({**given, "tenant_id": tenant}))
    done = call(words(example.line), environ, connection, example.stdin)
    return replace(done, out=done.out.replace(f"{folder}/", ""))


def shows(approved: str, got: str) -> bool:
    """Whether this is what is approved: `…` is anything on its line, alone on a line any lines; spaces only divide."""
    lines = ["(?:.*\n)*" if line == "…" else _line(line) + "\n" for line in approved.splitlines()]
    return re.fullmatch("".join(lines), re.sub(" +", " ", got)) is not None


def _line(approved: str) -> str:
    return ".*".join(re.escape(re.sub(" +", " ", part)) for part in approved.split("…"))
