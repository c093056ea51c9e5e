"""What a command is: a name, arguments, examples, the request it makes and how its answer is shown."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.cli.call import Call
    from service.cli.page import Page

WELL, FAILED, USAGE, UNREACHABLE, UNCONFIRMED, INTERRUPTED = 0, 1, 2, 3, 4, 130
CODES = {
    WELL: "done; what was asked for is so",
    FAILED: "the request was refused, or it failed, or a part of it did",
    USAGE: "called wrongly; nothing was sent",
    UNREACHABLE: "no service answers there, and none could be started",
    UNCONFIRMED: "not confirmed: the answer was no, or nobody was asked and no --force given",
    INTERRUPTED: "interrupted",
}

Args = argparse.Namespace
Request = dict[str, Any]
Answer = dict[str, Any]


class Misused(Exception):
    """The command was called wrongly, or a file that it names is; the message is one line with the way out."""


@dataclass(frozen=True)
class Argument:
    """One argument as argparse takes it."""

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
class Example:
    """A call of a command and what it prints, in help, documents and tests alike.

    `…` in what it prints stands for what differs each time.
    """

    title: str
    line: str
    shows: str
    given: tuple[str | Request, ...] = ()
    """Calls and requests that come before it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files beside it, by name."""
    stdin: str = ""
    taken: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Texts of the line that in truth are in the answer to the so-manieth last request of `given`, and where there."""


@dataclass(frozen=True)
class Command:
    """One command. It makes one request, or it has a `run` of its own."""

    name: str
    summary: str
    """The first line of its help."""
    arguments: tuple[Argument, ...] = ()
    examples: tuple[Example, ...] = ()
    request: Callable[[Args], Request] | None = None
    show: Callable[[Answer, Args, "Page"], None] = lambda answer, args, page: None
    question: Callable[[Request], str | None] | None = None
    """What to ask before the request is sent, where something may be lost by it."""
    spark: bool = False
    """Whether it needs Spark; metadata is read and changed without."""
    job: bool = False
    """Whether the operation takes `async`: it is then asked after, and shown how far it is."""
    run: Callable[["Call"], int] | None = None
    local: bool = False
    """Whether it has nothing to do with a service that others have, so that no address is taken."""
    details: str = ""
    """What else its help says."""

    @property
    def words(self) -> Sequence[str]:
        return self.name.split()
