"""Every example of the `firn` command, in process and against a URL: what help and documents show is what happens."""

import shlex
import sys
from pathlib import Path

import pytest

from service.cli.call import Invocation
from service.cli.catalogue import COMMANDS
from service.cli.command import WITHOUT_SPARK, Command, CommandExample
from service.cli.connection.in_process import InProcess
from service.cli.example_files import FILES
from service.cli.main import main
from service.cli.parser import build_parser
from tests import cli
from tests.contract.test_sales_example import JANUARY, commands
from tests.harness import Firn
from tests.support.marks import thorough_except

# What these commands print is also shown, and compared, in the walk-through of examples/sales.
WALKED = {
    command.name for command in COMMANDS for line, _ in commands(JANUARY) if line.startswith(f"firn {command.name} ")
}

# These need a dynamic table, an ingested file or many files first; tests/unit/cli shows what they print.
COSTLY = {f"dynamic {word}" for word in ("alter", "audit", "describe", "drop", "graph", "history", "list")}
COSTLY |= {"compact", *(f"table {word}" for word in ("accept-drift", "export", "repartition", "watch"))}

CASES = [
    pytest.param(
        command,
        example,
        id=f"{command.name}: {example.title}",
        marks=() if example is command.examples[0] and command.name not in WALKED | COSTLY else pytest.mark.thorough,
    )
    for command in COMMANDS
    if not command.local
    for example in command.examples
]


@pytest.mark.parametrize("way", thorough_except(["URL"], ["URL", "in process"]))
@pytest.mark.parametrize(("command", "example"), CASES)
def test_an_example_does_the_same_in_process_and_against_a_url(
    command: Command,
    example: CommandExample,
    way: str,
    firn: Firn,
    tenant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / tenant  # pytest may give several tests the same
    folder.mkdir()
    monkeypatch.chdir(folder)
    if way == "in process" and command.name == "load":
        pytest.skip("files are loaded by a service")
    if way == "URL":
        called = cli.run(example, firn, tenant, folder, {"FIRN_URL": firn.base_url}, None)
    else:
        called = cli.run(example, firn, tenant, folder, {}, InProcess(firn.app))
    assert (called.code, called.err) == (0, "")
    assert cli.shows(example.output, called.out), called.out


def test_each_command_says_of_its_operation_whether_it_needs_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if command.operation and command.run is None:
            line = shlex.split(command.examples[0].line)[1:]
            for name, text in FILES.items():
                (tmp_path / name).write_text(text)
            args = build_parser("", line).parse_args(line)
            args.default_tenant = "t"
            request = Invocation(command, args, {}, sys.stdin, sys.stdout, sys.stderr).request()
            assert command.needs_spark == (request["operation"] not in WITHOUT_SPARK), command.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_ends_with_the_examples(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.examples
    with pytest.raises(SystemExit):
        main([*command.words, "--help"])
    body = capsys.readouterr().out
    assert all(example.line in body and example.title in body for example in command.examples)
