"""The command line, made of the catalogue."""

import argparse
from collections.abc import Sequence
from typing import Any

from service.cli.command import CODES, Argument, Command, argument, flag
from service.cli.values import hint

ADDRESS = (
    argument("--url", metavar="URL", help="where the service is; FIRN_URL, or the service of FIRN_HOME"),
    argument("--tenant", metavar="NAME", help="whose tables; FIRN_TENANT, or default"),
)
NAMESPACE = argument("--namespace", metavar="NAME", help="a group of tables within the tenant; default")
ALSO = (
    flag("--json", "print the service's answer as JSON, on one line"),
    flag("--no-background", "start no service in the background; do it in this process"),
)
FORCE = flag("--force", "ask no question")
SHARED = (*ADDRESS, NAMESPACE, *ALSO, FORCE)
"""What every command takes that asks a service, before its words or after them."""


def in_order(given: Sequence[str], commands: Sequence[Command]) -> tuple[list[str], list[str], list[str]]:
    """The words of the command, the shared options that stand before the last of them, and all that comes after it."""
    known = {each.flags[0]: each for each in SHARED}
    names = {tuple(command.words) for command in commands}
    words: list[str] = []
    options: list[str] = []
    rest = list(given)
    while rest and tuple(words) not in names:
        name, equals, _ = rest[0].partition("=")
        if name in known:
            many = 2 if known[name].takes_value and not equals else 1
            if len(rest) < many:
                break
            options += rest[:many]
            rest = rest[many:]
        elif name.startswith("-"):
            break
        else:
            words.append(rest.pop(0))
    return words, options, rest


def parser_of(
    commands: Sequence[Command], groups: dict[str, str], version: str, given: Sequence[str]
) -> argparse.ArgumentParser:
    """A parser whose result has the `command` that was called. Only the one that is `given` gets its arguments."""
    codes = "\n".join(f"  {code:<4}{text}" for code, text in CODES.items())
    parser = _Parser(
        prog="firn",
        description="JSON requests over Apache Iceberg tables.",
        epilog=f"exit codes:\n{codes}\n\n`firn COMMAND --help` says more, with examples.",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"firn {version}")
    shared = parser.add_argument_group("options of every command that asks a service, before it or after it")
    for each in SHARED:
        shared.add_argument(*each.flags, **each.options, default=argparse.SUPPRESS)
    # Required by hand: argparse would only name the metavariable.
    top = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    parser.set_defaults(command=None, refuse=parser.error, asked=parser)
    inner: dict[str, Any] = {}
    for command in commands:
        first, *rest = command.words
        place = top
        if rest:
            if first not in inner:
                group = top.add_parser(first, help=groups[first], description=groups[first], formatter_class=_Help)
                group.set_defaults(command=None, asked=group)
                inner[first] = group.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
            place = inner[first]
        name = rest[0] if rest else first
        if list(given[: len(command.words)]) == list(command.words):
            _add(place, command, name)
        else:
            place.add_parser(name, help=command.summary, add_help=False)  # it is only listed
    return parser


def arguments_of(command: Command) -> tuple[Argument, ...]:
    """All arguments of a command, those that many have among them."""
    if command.local:
        return command.arguments
    names = {flag for each in command.arguments for flag in each.flags}
    return (*command.arguments, *(each for each in SHARED if not names & set(each.flags)))


def unknown(words: Sequence[str], command: Command | None) -> str:
    """What is wrong with words that no argument takes."""
    options = [flag for each in (arguments_of(command) if command else SHARED) for flag in each.flags]
    near = hint(words[0].partition("=")[0], options, all_of_them=False) if words[0].startswith("-") else ""
    return f"unrecognized arguments: {' '.join(words)}{near and f'; {near}'}"


def help_of(command: Command) -> str:
    """The examples of a command, as its help ends."""
    shown = [f"  {e.title}:\n    {_call(e.line, e.stdin)}" for e in command.examples]
    details = f"{command.details}\n\n" if command.details else ""
    return f"{details}examples:\n" + "\n".join(shown) if shown else details


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            # Its commands stand further in, which argparse does not count: the longest name had a line of its own.
            self._action_max_length += 2


class _Parser(argparse.ArgumentParser):
    """As argparse's, with nothing abbreviated: a script must not break as options are added."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"{value!r} is not known; {hint(value, action.choices)}")


def _call(line: str, stdin: str) -> str:
    return f"echo '{stdin.strip()}' | {line}" if stdin else line


def _add(place: Any, command: Command, name: str) -> None:
    parser = place.add_parser(
        name,
        help=command.summary,
        description=command.summary,
        epilog=help_of(command),
        formatter_class=_Help,
    )
    for each in arguments_of(command):
        parser.add_argument(*each.flags, **each.options)
    parser.set_defaults(command=command, refuse=parser.error)
