"""Completion with the Tab key: which words can stand where."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from service.cli.catalogue import COMMANDS
from service.cli.command import Argument, Command
from service.cli.completion.known import known_names
from service.cli.connection.names import Names
from service.cli.files import is_file, read_table
from service.cli.parser import SHARED, arguments_of, split_words

FILES = ":files"
"""Stands for the names of all files."""
_PATIENCE_S = 1.0
_NAMED = {
    "--namespace": "NAMESPACE",
    "--add": "",
    "--derive": "",
}
"""What the values of options are whose metavar does not say it: those of the last two are new names."""


def complete(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """What can replace the last word, which may be incomplete or empty."""
    *before, last = words or [""]
    name, options, rest = split_words(before)
    command = next((each for each in COMMANDS if each.words == name), None)
    if command is not None:
        line = _Line(command, arguments_of(command), [*options, *rest], environ)
    else:
        line = _Line(None, SHARED, [*options, *rest], environ)
    option, equals, value = last.partition("=")
    if equals and option.startswith("--"):
        values = _starting(line.values_of(option, value) or [], value)
        return [word if word == FILES else f"{option}={word}" for word in values]
    if command is not None:
        found = line.words(last)
    elif rest:
        found = line.values_of(rest[-1], last) or []
    else:
        found = _command_words(name, options, last)
    return _starting(found, last)


def _starting(found: Iterable[str], start: str) -> list[str]:
    """The words that begin like this, and `FILES`. One that cannot stand on a line is left out."""
    return sorted({word for word in found if (word.startswith(start) and word.isprintable()) or word == FILES})


def _command_words(name: list[str], options: Sequence[str], last: str) -> list[str]:
    depth = len(name)
    found = [each.words[depth] for each in COMMANDS if each.words[:depth] == name and len(each.words) > depth]
    shared = [each.name for each in SHARED if not {*each.names} & {*options}] if last.startswith("-") else []
    return [*found, *shared, "--help", *([] if name or options else ["--version"])]


@dataclass(frozen=True)
class _Line:
    """A command line before the word to complete."""

    command: Command | None
    arguments: Sequence[Argument]
    before: Sequence[str]
    environ: Mapping[str, str]
    given: dict[str, str] = field(default_factory=dict)
    """The values of the arguments that are given, by the argument's name."""

    def __post_init__(self) -> None:
        positional = [each.name for each in self.arguments if each.positional]
        rest = iter(self.before)
        for word in rest:
            option, equals, value = word.partition("=")
            named = self._option(option) or self._option(word[:2])
            if not word.startswith("-"):
                if positional:
                    self.given[positional.pop(0)] = word
            elif named is not None and named.takes_value:
                short = "" if option in named.names else word[2:]
                self.given[named.name] = value if equals else short or next(rest, "")

    def words(self, last: str) -> list[str]:
        """What can be the next word of the command."""
        values = self.values_of(self.before[-1], last) if self.before else None
        if values is not None:
            return values
        missing = [each for each in self.arguments if each.positional and each.name not in self.given]
        if missing and not last.startswith("-"):
            return self._values(missing[0], last)
        options = [each for each in self.arguments if not each.positional]
        used = {each.name for each in options if {*each.names} & {*self.before}}
        return [
            *(o.name for o in options if o.name not in used or o.options.get("action") == "append"),
            "--help",
        ]

    def values_of(self, option: str, last: str) -> list[str] | None:
        """The values that an option can have; None if it takes none."""
        argument = self._option(option)
        return self._values(argument, last) if argument is not None and argument.takes_value else None

    def _option(self, name: str) -> Argument | None:
        return next((each for each in self.arguments if name in each.names and not each.positional), None)

    def _values(self, argument: Argument, last: str) -> list[str]:
        if "choices" in argument.options:
            return list(argument.options["choices"])
        kind = _NAMED.get(argument.name, argument.options.get("metavar") or "")
        if kind == "PROFILE":
            from service.cli import profiles

            return sorted(profiles.read(self.environ))
        return [*self._names(kind, last), *([FILES] if "FILE" in kind or kind == "LOG" else [])]

    def _names(self, kind: str, last: str) -> Iterator[str]:
        """The names of a kind of thing that the service has. What cannot be read in time is not offered."""
        read = _READ.get(kind)
        if read is not None:
            with suppress(Exception), known_names(self.given, self.environ) as names:
                yield from read(names, self.given, last)


def _tables(names: Names, given: Mapping[str, str], last: str) -> Iterator[str]:
    """The tables of the namespace, and those of other namespaces as the user writes them."""
    namespace, separator, _ = last.replace("/", ".").partition(".")
    if separator:
        yield from (f"{namespace}{last[len(namespace)]}{name}" for name in names.tables_in(namespace))
        return
    with suppress(Exception):  # a namespace that does not exist has no tables; others may
        yield from names.tables_in(names.namespace)
    until = time.monotonic() + _PATIENCE_S
    for each in names.namespaces() if "--namespace" not in given else ():
        if each.startswith(last) and each != names.namespace and time.monotonic() < until:
            yield from (f"{each}.{name}" for name in names.tables_in(each))


def _table(given: Mapping[str, str]) -> str:
    """The table that the command line names, or that the file it names describes."""
    table = given["table"]
    if not is_file(table):
        return table
    described = read_table(table)
    return f"{described['namespace']}.{described['table']}" if "namespace" in described else str(described["table"])


def _columns(names: Names, given: Mapping[str, str], last: str) -> Iterator[str]:
    """The columns of the command's table, after those that the word names already."""
    done = last[: last.rfind(",") + 1]
    yield from (f"{done}{name}" for name in names.columns(_table(given)))


def _assigned(names: Names, given: Mapping[str, str], last: str) -> Iterator[str]:
    yield from (f"{name}=" for name in names.columns(_table(given)))


_READ: dict[str, Callable[[Names, Mapping[str, str], str], Iterable[str]]] = {
    "TABLE": _tables,
    "TABLE|FILE": _tables,
    "NAMESPACE": lambda names, given, last: names.namespaces(),
    "BACKUP": lambda names, given, last: names.backups(_table(given)),
    "JOB": lambda names, given, last: names.jobs(),
    "SCHEDULE": lambda names, given, last: names.schedules(),
    "COLUMN": lambda names, given, last: names.columns(_table(given)),
    "COLUMNS": _columns,
    "NAMES": _columns,
    "COLUMN=VALUE": _assigned,
    "COLUMN=EXPRESSION": _assigned,
    "COLUMN=TYPE": _assigned,
    "COLUMN=NAME": _assigned,
    "FIELD[:TRANSFORM[:N]]": lambda names, given, last: names.columns(_table(given)),
}
"""How to read the names that an argument of each metavar takes."""
