"""`firn sql`: a prompt for SELECT statements, with a history and completion of tables and columns."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from service.cli.call import Invocation
from service.cli.command import FAILED, OK, Command, Request, UsageError, number
from service.cli.commands.queries import show_rows
from service.cli.connection.names import Names, NamesUnknown
from service.cli.connection.remote import Connection, Unreachable
from service.cli.files import decode
from service.cli.terminal.cells import escape
from service.cli.values import single_tenant

_PROMPT, _CONTINUED = "firn> ", "   -> "
_HELP = """\
Write a SELECT and end it with a semicolon. Tables are `table` or `namespace.table`.
\\d         list the tables      \\d TABLE   list the columns of a table
\\q         leave, as Ctrl-D does; Ctrl-C cancels a query or an input
Tab completes keywords, tables and columns."""
_KEYWORDS = (
    *(
        "SELECT",
        "DISTINCT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "WITH",
        "UNION",
        "ALL",
    ),
    *(
        "JOIN",
        "LEFT",
        "RIGHT",
        "FULL",
        "INNER",
        "CROSS",
        "ON",
        "USING",
        "AS",
        "EXCEPT",
        "INTERSECT",
        "OVER",
        "PARTITION",
    ),
    *(
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "LIKE",
        "BETWEEN",
        "EXISTS",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "CAST",
    ),
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "DESC", "ASC"),
)
_DELIMITERS = " \t\n,()=<>+-*/;|"
_HISTORY_LINES = 1000


_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]*(?:\n|\Z) | /\*.*?\*/ | \s+ )
  | (?P<end> ; )
  | (?P<open> /\*.* )
  | '(?:[^'\\]|\\.)*(?:'|\Z) | "(?:[^"\\]|\\.)*(?:"|\Z) | `[^`]*(?:`|\Z) | .
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that a semicolon ends, and the rest. Semicolons in quotes and comments end none.

    Comments alone are no statement, and no rest either unless the last of them is still open.
    """
    statements: list[str] = []
    start, is_empty = 0, True
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "end":
            statements += [] if is_empty else [text[start : token.start()].strip()]
            start, is_empty = token.end(), True
        elif token.lastgroup != "comment":
            is_empty = False
    return statements, "" if is_empty else text[start:].strip()


def completions(names: Names, word: str, statement: str) -> list[str]:
    """What a word can become: columns of the tables that the statement names, then tables, then keywords."""
    for c in _DELIMITERS:
        statement = statement.replace(c, " ")
    tables = names.tables()
    columns = sorted({column for table in {*statement.split()} & {*tables} for column in names.columns(table)})
    alias, dot, _ = word.rpartition(".")
    qualified = [f"{alias}.{column}" for column in columns] if dot else []
    upper = word.isupper() or not word
    keywords = [each if upper else each.lower() for each in _KEYWORDS] if word else []
    found = [*columns, *qualified, *tables, *keywords]
    return list(dict.fromkeys(each for each in found if each.lower().startswith(word.lower())))


@dataclass
class _Session:
    """One use of `firn sql`."""

    call: Invocation
    connection: Connection
    names: Names
    pending: str = ""

    def run(self) -> int:
        """Run statements until the input ends. At a terminal a failure ends nothing; in a script it ends the script."""
        if not self.call.stdin.isatty():
            statements, rest = split_statements(decode(self.call.stdin.buffer.read(), "stdin"))
            for statement in [*statements, *([rest] if rest else [])]:
                if self.query(statement) != OK:
                    return FAILED
            return OK
        print("SELECT … ; runs a query, \\? shows help, \\q leaves", file=self.call.stderr)
        with _line_editing(self.call, self._complete) as read:
            while True:
                try:
                    line = read(_CONTINUED if self.pending else _PROMPT)
                except KeyboardInterrupt:
                    self.pending = ""
                    print(file=self.call.stderr)
                    continue
                except UnicodeDecodeError:
                    self.call.notify("this line is not UTF-8 text; it was left out")
                    continue
                if line is None or (not self.pending and line.strip().rstrip(";") in ("\\q", "exit", "quit")):
                    return OK
                self._enter(line)

    def _enter(self, line: str) -> None:
        if not self.pending and line.startswith("\\"):
            self._attempt(lambda: self._command(line.split()))
            return
        statements, self.pending = split_statements(f"{self.pending}\n{line}" if self.pending else line)
        for statement in statements:
            self._attempt(partial(self.query, statement))

    def _attempt(self, run: Callable[[], object]) -> None:
        """Do something whose failure does not end the session."""
        try:
            run()
        except KeyboardInterrupt:
            self.call.notify("cancelled")
        except (Unreachable, NamesUnknown, UsageError) as e:
            self.call.notify(str(e))

    def _command(self, words: list[str]) -> None:
        if words[0] != "\\d":
            print(_HELP, file=self.call.stdout)
            return
        self.names.forget()  # there may be new ones
        names = self.names.columns(words[1].rstrip(";")) if len(words) > 1 else self.names.tables()
        print("\n".join(map(escape, names)) or "there are none", file=self.call.stdout)

    def query(self, statement: str) -> int:
        """Run a statement, show its rows and return the exit code."""
        args = self.call.args
        request: Request = {"operation": "QUERY", "tenant_id": self.names.tenant, "namespace": self.names.namespace}
        return self.call.show(self.connection.send({**request, "sql": statement, "limit": args.limit}))

    def _complete(self, word: str, line: str) -> list[str]:
        with suppress(Unreachable, NamesUnknown):
            return completions(self.names, word, f"{self.pending} {line}")
        return []


@contextmanager
def _line_editing(call: Invocation, complete: Callable[[str, str], list[str]]) -> Iterator[Callable[[str], str | None]]:
    """A function that reads a line after a prompt, with editing, history and completion where Python has them."""

    def plain(prompt: str) -> str | None:
        call.stderr.write(prompt)
        call.stderr.flush()
        line = call.stdin.readline()
        return line.rstrip("\n") if line else None

    try:
        import readline
    except ImportError:
        readline = None  # type: ignore[assignment]
    if readline is None or call.stdin is not sys.stdin:
        yield plain
        return

    def edited(prompt: str) -> str | None:
        try:
            return input(prompt)
        except EOFError:
            print(file=call.stderr)
            return None

    found: list[str] = []

    def completer(word: str, state: int) -> str | None:
        if state == 0:
            found[:] = complete(word, readline.get_line_buffer())
        return found[state] if state < len(found) else None

    history = _history(call.environ)
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(completer)
    # The library that macOS has instead of GNU's has another syntax.
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    try:
        yield edited
    finally:
        readline.set_completer(None)
        before = os.umask(0o077)  # only the user may read it, from its first byte
        try:
            with suppress(OSError):
                history.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(history)
                history.chmod(0o600)
        finally:
            os.umask(before)


def _history(environ: Mapping[str, str]) -> Path:
    folder = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(folder) / "firn" / "sql_history"


def _sql(call: Invocation) -> int:
    with call.connect() as connection:
        names = Names(connection, single_tenant(call.args), call.args.namespace or "default")
        return _Session(call, connection, names).run()


COMMANDS = (
    Command(
        "sql",
        "Read rows with SQL at a prompt, or run the SELECTs of a script.",
        (number("--limit", "show at most this many rows of each (default: 100)", default=100),),
        operation="QUERY",
        run=_sql,
        show=show_rows,
        details="A statement ends with a semicolon. Tab completes tables and columns; the history is in "
        "~/.local/state/firn/sql_history. Without a terminal, statements are read from stdin.",
    ),
)
