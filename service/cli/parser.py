"""Build the parser of the command line from the catalogue."""

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any

from service.cli.catalogue import COMMANDS, GROUPS
from service.cli.command import EXIT_CODES, FORMATS, Argument, Command, argument, flag
from service.cli.values import suggestion

SHARED = (
    argument(
        "--profile", "PROFILE", "the service and the tenant of a profile, as `firn profile add` named them", short="-p"
    ),
    argument("--url", "URL", "the service's address (default: FIRN_URL, or the service of FIRN_HOME)"),
    argument("--tenant", "NAME", "the tenant (default: FIRN_TENANT, or default)"),
    argument("--namespace", "NAME", "the namespace within the tenant (default: default)", short="-n"),
    argument("--output", None, "how to print the response (default: table)", short="-o", choices=FORMATS),
    flag("--json", "print the service's response as JSON, on one line; short for -o json"),
    flag("--no-background", "run in this process, and start no service in the background"),
    flag("--yes", "do not ask for confirmation", short="-y"),
)
"""Options of every command that uses a service. They may stand before its name or after it."""


def split_words(given: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Split a command line into the command's name, the shared options before the end of the name, and the rest."""
    known = {name: each for each in SHARED for name in each.names}
    names = {tuple(command.words) for command in COMMANDS}
    words: list[str] = []
    options: list[str] = []
    rest = list(given)
    while rest and tuple(words) not in names:
        name, value, _ = rest[0].partition("=")
        if not rest[0].startswith("--"):
            name, value = rest[0][:2], rest[0][2:]  # such as -nshop
        if name in known:
            count = 2 if known[name].takes_value and not value and rest[0] == name else 1
            if len(rest) < count:
                break
            options += rest[:count]
            del rest[:count]
        elif name.startswith("-"):
            break
        else:
            words.append(rest.pop(0))
    return words, options, rest


def build_parser(version: str, given: Sequence[str]) -> argparse.ArgumentParser:
    """A parser whose result has the `command`. To save time, only the command that is `given` gets its arguments."""
    codes = "\n".join(f"  {code:<4}{text}" for code, text in EXIT_CODES.items())
    parser = _Parser(
        prog="firn",
        description="JSON requests over Apache Iceberg tables.",
        epilog=f"exit codes:\n{codes}\n\n`firn COMMAND --help` shows its options and examples.",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"firn {version}")
    shared = parser.add_argument_group("options of every command that uses a service, before it or after it")
    for each in SHARED:
        shared.add_argument(*each.names, **each.options, default=argparse.SUPPRESS)
    parser.set_defaults(command=None, error=parser.error, parser=parser)
    # Not `required`: main() shows the help instead of argparse's error.
    commands: dict[str, Any] = {"": parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)}
    for command in COMMANDS:
        *groups, name = command.words
        group = "".join(groups)
        if group not in commands:
            added = commands[""].add_parser(group, help=GROUPS[group], description=GROUPS[group], formatter_class=_Help)
            added.set_defaults(command=None, parser=added)
            commands[group] = added.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
        if given[: len(command.words)] == command.words:
            _add(commands[group], command, name)
        else:
            commands[group].add_parser(name, help=command.summary, add_help=False)  # only listed
    return parser


def arguments_of(command: Command) -> tuple[Argument, ...]:
    """The arguments of a command, shared options included."""
    if command.local:
        return command.arguments
    names = {each.name for each in command.arguments}
    return (*command.arguments, *(each for each in SHARED if each.name not in names))


def unrecognised(words: Sequence[str], command: Command | None) -> str:
    """The error message for words that are not arguments of a command."""
    options = [name for each in (arguments_of(command) if command else SHARED) for name in each.names]
    near = suggestion(words[0].partition("=")[0], options, list_all=False) if words[0].startswith("-") else ""
    return f"unrecognized arguments: {' '.join(words)}{near and f'; {near}'}"


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            # argparse does not count the indentation of commands, and would put the longest on a line of its own.
            self._action_max_length += 2


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations: a new option must not break a script."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is not known; {suggestion(value, action.choices)}")


def _add(level: Any, command: Command, name: str) -> None:
    summary, details = command.summary, command.details
    shown = [f"  {each.title}:\n    {each.shell_line}" for each in command.examples]
    epilog = "\n".join([*([textwrap.fill(details, 79), ""] if details else []), "examples:", *shown])
    parser = level.add_parser(name, help=summary, description=summary, epilog=epilog, formatter_class=_Help)
    for each in arguments_of(command):
        parser.add_argument(*each.names, **each.options)
    parser.set_defaults(command=command, error=parser.error)
