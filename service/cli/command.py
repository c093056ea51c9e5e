"""What a command is: a name, arguments, examples, the request it makes and how its response is shown."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.cli.call import Invocation
    from service.cli.terminal.printer import Printer

OK, FAILED, USAGE, UNREACHABLE, UNCONFIRMED, INTERRUPTED = 0, 1, 2, 3, 4, 130
EXIT_CODES = {
    OK: "success",
    FAILED: "the request was refused, or all or part of it failed",
    USAGE: "wrong usage; nothing was sent",
    UNREACHABLE: "no service responds, and none could be started",
    UNCONFIRMED: "not confirmed: the reply was not yes, or no terminal and no --force",
    INTERRUPTED: "interrupted",
}

Args = argparse.Namespace
Request = dict[str, Any]
Response = dict[str, Any]


class UsageError(Exception):
    """The command line, or a file that it names, is wrong; the message says in one line what and how to fix it."""


@dataclass(frozen=True)
class Argument:
    """One argument, as argparse takes it."""

    flags: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def positional(self) -> bool:
        return not self.flags[0].startswith("-")

    @property
    def takes_value(self) -> bool:
        return self.options.get("action") != "store_true"


def argument(*flags: str, **options: Any) -> Argument:
    return Argument(flags, options)


def flag(name: str, help: str) -> Argument:
    return Argument((name,), {"action": "store_true", "help": help})


def repeated(name: str, metavar: str, help: str) -> Argument:
    return Argument((name,), {"action": "append", "metavar": metavar, "help": f"{help}; may be repeated"})


@dataclass(frozen=True)
class CommandExample:
    """A command line and what it prints. Help and documentation show it, and tests run it."""

    title: str
    line: str
    output: str
    """`…` stands for text that differs each time."""
    setup: tuple[str | Request, ...] = ()
    """Command lines and requests that run first."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files in the working directory, by name."""
    stdin: str = ""
    placeholders: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Sample ids in `line`. Each is replaced by a field of the nth last response to `setup`: (n, path of the field)."""


@dataclass(frozen=True)
class Command:
    """One command. It either makes one `request` or has a `run` function of its own."""

    name: str
    summary: str
    """The first line of its help."""
    arguments: tuple[Argument, ...] = ()
    examples: tuple[CommandExample, ...] = ()
    request: Callable[[Args], Request] | None = None
    show: Callable[[Response, Args, "Printer"], None] = lambda response, args, printer: None
    question: Callable[[Request], str | None] | None = None
    """What to ask before the request is sent, if it may lose data."""
    needs_spark: bool = False
    """Whether it needs Spark. Metadata is read and changed without."""
    job: bool = False
    """Whether the operation can run as a job: then the command polls it and shows its progress."""
    run: Callable[["Invocation"], int] | None = None
    """Returns the exit code."""
    local: bool = False
    """Whether it concerns this machine, and not a service: then it takes no address."""
    details: str = ""
    """What its help says besides."""

    @property
    def words(self) -> Sequence[str]:
        return self.name.split()
