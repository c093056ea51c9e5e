"""What a command is: its arguments, the request it sends and how its response is shown."""

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.cli.call import Invocation
    from service.cli.connection.remote import Connection
    from service.cli.terminal.printer import Printer

OK, FAILED, USAGE, UNREACHABLE, UNCONFIRMED, INTERRUPTED = 0, 1, 2, 3, 4, 130
EXIT_CODES = {
    OK: "success",
    FAILED: "the request was refused, or all or part of it failed",
    USAGE: "wrong usage; nothing was sent",
    UNREACHABLE: "no service responds, and none could be started",
    UNCONFIRMED: "not confirmed: the reply was not yes, or no terminal and no --yes",
    INTERRUPTED: "interrupted",
}
FORMATS = ("table", "json", "csv", "yaml")
"""How a response can be printed."""
WITHOUT_SPARK = frozenset(
    {
        "ACCEPT_DRIFT",
        "ALTER_DYNAMIC_TABLE",
        "ALTER_TABLE",
        "APPLY_TABLE",
        "AUDIT_LOG",
        "COMPACTION_LOG",
        "CREATE_KEY",
        "CREATE_NAMESPACE",
        "CREATE_SCHEDULE",
        "CREATE_TABLE",
        "DELETE_BACKUP",
        "DELETE_SCHEDULE",
        "DESCRIBE_DYNAMIC_TABLE",
        "DESCRIBE_TABLE",
        "DROP_DYNAMIC_TABLE",
        "DROP_NAMESPACE",
        "DROP_TABLE",
        "HISTORY",
        "LIST_BACKUPS",
        "LIST_DYNAMIC_TABLES",
        "LIST_JOBS",
        "LIST_KEYS",
        "LIST_NAMESPACES",
        "LIST_PARTITIONS",
        "LIST_SCHEDULES",
        "LIST_TABLES",
        "RECOMMEND",
        "REFRESH_HISTORY",
        "RENAME_TABLE",
        "RESTORE_TABLE",
        "REVOKE_KEY",
        "ROTATE_KEY",
        "SET_COMPACTION",
        "SET_ONLINE",
        "SET_POLICY",
        "TABLE_STATUS",
    }
)
"""The operations that only read or change metadata. All others may need Spark."""

Args = argparse.Namespace
Request = dict[str, Any]
Response = dict[str, Any]


class UsageError(Exception):
    """The command line, or a file that it names, is wrong; the message says in one line what and how to fix it."""

    exit_code = USAGE


@dataclass(frozen=True)
class Argument:
    """One argument, as argparse takes it, and the field of the request that it sets."""

    name: str
    """Options begin with `--`; others are positional."""
    options: Mapping[str, Any]
    field: str | None = ""
    """Empty if it has the argument's own name; None if the command reads the argument itself."""
    parse: Callable[[Any], Any] = lambda value: value
    short: str = ""
    """A short form of an option, such as `-n`."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.short, self.name) if self.short else (self.name,)

    @property
    def positional(self) -> bool:
        return not self.name.startswith("-")

    @property
    def takes_value(self) -> bool:
        return self.options.get("action") != "store_true"

    @property
    def required(self) -> bool:
        return self.options.get("nargs") != "?" if self.positional else bool(self.options.get("required"))

    def fields(self, args: Args) -> Request:
        """The field with its value, if the argument was given. Scripts pass an empty text for "not given".

        Raises `UsageError` if it is required and not given.
        """
        if self.field is None:
            return {}
        own_name = self.name.lstrip("-").replace("-", "_")
        value = getattr(args, self.options.get("dest") or own_name)
        if value == "" and self.required:
            raise UsageError(f"{self.options['metavar'] if self.positional else self.name} is empty; give a value")
        if value is None or value is False or value == "":
            return {}
        return {self.field or own_name: self.parse(value)}


def argument(
    name: str,
    metavar: str | None,
    help: str,
    field: str | None = "",
    parse: Callable[[Any], Any] = lambda value: value,
    short: str = "",
    **options: Any,
) -> Argument:
    """An argument with a value, which sets the field to what `parse` makes of it."""
    return Argument(name, {"metavar": metavar, "help": help, **options}, field, parse, short)


def number(name: str, help: str, **options: Any) -> Argument:
    return argument(name, "N", help, type=int, **options)


def repeated(
    name: str, metavar: str, help: str, field: str | None = "", parse: Callable[[list[str]], Any] = list
) -> Argument:
    return argument(name, metavar, f"{help}; may be repeated", field, parse, action="append")


def flag(name: str, help: str, field: str | None = "", value: Any = True, short: str = "") -> Argument:
    """An option without a value of its own: if it is given, it sets the field to `value`."""
    return Argument(name, {"action": "store_true", "help": help}, field, lambda _: value, short)


@dataclass(frozen=True)
class CommandExample:
    """A command line and what it prints. Help and documentation show it, and tests run it."""

    title: str
    line: str
    output: str
    """`…` stands for text that differs each time."""
    setup: tuple[str | Request, ...] = ()
    """Command lines and requests that run first."""
    stdin: str = ""

    @property
    def shell_line(self) -> str:
        return f"echo '{self.stdin}' | {self.line}" if self.stdin else self.line


@dataclass(frozen=True)
class Command:
    """One command. It sends one request, unless it has a `run` function of its own."""

    name: str
    summary: str
    """The first line of its help."""
    arguments: tuple[Argument, ...] = ()
    operation: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request that do not depend on arguments, unless one sets them."""
    address: Callable[[Args], Request] | None = None
    """Returns the fields that say what the request is about; None: only the tenant."""
    complete: Callable[[Request, Args], Request] = lambda request, args: request
    """Adds to the request what single arguments do not say, or raises `UsageError`."""
    question: Callable[[Request], str | None] | None = None
    """What to ask before the request is sent, if it may lose data. A dry run never asks."""
    check: Callable[[Request, "Connection"], Response | None] | None = None
    """Returns the response to a request that need not be asked about, because it would fail or do nothing; else None.

    By default the dry run decides, if the command has one, or else whether the table exists.
    """
    show: Callable[[Response, Args, "Printer"], None] = lambda response, args, printer: None
    lists: tuple[str, ...] = ()
    """The fields of the response that hold one page of a list: the command follows the pages to the end, or to its
    --limit. The first of them counts."""
    job: bool = False
    """Whether the operation can run as a job: then the command polls it and shows its progress."""
    long_preview: bool = False
    """Whether its dry run may take long, too, and is a job."""
    cancels: bool = False
    """Whether Ctrl-C cancels the job. Otherwise the job continues."""
    run: Callable[["Invocation"], int] | None = None
    """Returns the exit code."""
    local: bool = False
    """Whether it concerns this machine and not a service: then it takes no address."""
    details: str = ""
    """More text for its help."""

    @property
    def words(self) -> list[str]:
        return self.name.split()

    @property
    def needs_spark(self) -> bool:
        return bool(self.operation) and self.operation not in WITHOUT_SPARK

    @property
    def examples(self) -> tuple[CommandExample, ...]:
        """The examples whose line calls this command."""
        from service.cli.examples import EXAMPLES  # only help, documentation and tests need them

        call = re.compile(rf"\bfirn {self.name}(?![\w-])")
        return tuple(example for example in EXAMPLES if call.search(example.line))
