"""The statement CREATE DYNAMIC TABLE."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from service.dynamic.query.dialect import FirnSpark, parse, place_at
from service.dynamic.query.tables import NAME_SHAPE, is_table_name
from service.errors import InvalidQuery, did_you_mean
from service.model.dynamic.definition import DynamicOptions
from service.model.dynamic.target_lag import read_lag

_SHAPE = (
    "CREATE [OR REPLACE] DYNAMIC TABLE [IF NOT EXISTS] name TARGET_LAG = '5 minutes' [option = value …] AS SELECT …"
)
_SWITCH = {"true": True, "on": True, "enabled": True, "false": False, "off": False, "disabled": False}


@dataclass(frozen=True)
class DynamicStatement:
    """A statement as it was read."""

    namespace: str | None
    table: str
    replace: bool
    if_not_exists: bool
    options: DynamicOptions
    query: str
    line: int
    """Where the query begins in the statement."""
    column: int


def read_statement(text: str) -> DynamicStatement:
    """Read CREATE DYNAMIC TABLE; raises InvalidQuery with the line and the column of what is wrong."""
    return _Reader(text).statement()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.next = text, 0
        try:
            self.tokens: list[Token] = FirnSpark().tokenize(text)
        except SqlglotError as error:
            raise InvalidQuery(f"the statement cannot be read: {error}", field="sql") from error

    def statement(self) -> DynamicStatement:
        self.expect("CREATE")
        replace = self.accept("OR")
        if replace:
            self.expect("REPLACE")
        self.expect("DYNAMIC")
        self.expect("TABLE")
        if_not_exists = self.accept("IF")
        if if_not_exists:
            self.expect("NOT")
            self.expect("EXISTS")
        if replace and if_not_exists:
            self.fail("OR REPLACE and IF NOT EXISTS exclude each other", self.tokens[self.next - 1])
        namespace, table = self.name()
        options = self.options()
        query, line, column = self.query()
        return DynamicStatement(namespace, table, replace, if_not_exists, options, query, line, column)

    def name(self) -> tuple[str | None, str]:
        first = self.peek()
        parts = [self.identifier()]
        while self.accept("."):
            parts.append(self.identifier())
        if not is_table_name(parts):
            self.fail(f"{'.'.join(parts)} is not the name of a table; write {NAME_SHAPE}", first)
        return (parts[-2] if len(parts) > 1 else None), parts[-1]

    def options(self) -> DynamicOptions:
        found: dict[str, Any] = {}
        while not self.accept("AS"):
            token = self.peek()
            name = "" if token is None else token.text.upper()
            if token is not None and token.text == "(":
                self.fail("a list of columns is not supported; name the columns in the query, with AS", token)
            if name not in _OPTIONS:
                if token is None or name in ("SELECT", "WITH"):
                    self.fail("AS is missing before the query", token)
                _, hint = did_you_mean(name, list(_OPTIONS))
                self.fail(f"{name} is not an option; {hint}", token)
            self.next += 1
            self.expect("=")
            field, read = _OPTIONS[name]
            value = self.peek()
            if field in found:
                self.fail(f"{name} is given twice", token)
            try:
                found[field] = read(self.value())
            except ValueError as error:
                self.fail(f"{name}: {error}", value)
        if "target_lag_s" not in found:
            self.fail("TARGET_LAG is missing; write TARGET_LAG = '5 minutes' or TARGET_LAG = 'downstream'", self.peek())
        return DynamicOptions(**found)

    def query(self) -> tuple[str, int, int]:
        start = self.peek()
        if start is None:
            self.fail("the query is missing after AS", None)
        ends = [i for i, token in enumerate(self.tokens) if token.token_type is TokenType.SEMICOLON]
        end = len(self.text)
        if ends:
            end = self.tokens[ends[0]].start
            after = [token for token in self.tokens[ends[0] :] if token.token_type is not TokenType.SEMICOLON]
            if after:
                self.fail(f"{after[0].text[:40]!r} follows the end of the statement; send one statement", after[0])
        line, column = place_at(self.text, start.start)
        query = self.text[start.start : end].rstrip()
        parse("\n" * (line - 1) + " " * (column - 1) + query)
        return query, line, column

    def peek(self) -> Token | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def accept(self, word: str) -> bool:
        token = self.peek()
        found = token is not None and token.text.upper() == word and token.token_type not in _QUOTED
        self.next += found
        return found

    def expect(self, word: str) -> None:
        if not self.accept(word):
            token = self.peek()
            self.fail(
                f"{word} is expected{f', not {token.text[:40]!r}' if token else ''}; the shape is {_SHAPE}", token
            )

    def identifier(self) -> str:
        token = self.peek()
        plain = token is not None and (token.token_type is TokenType.IDENTIFIER or re.fullmatch(r"\w+", token.text))
        if token is None or not plain or token.token_type is TokenType.STRING:
            self.fail("the name of the table is expected", token)
        self.next += 1
        return token.text

    def value(self) -> str:
        token = self.peek()
        if token is None or token.text in ("=", "(", ")", ";"):
            raise ValueError("a value is expected after =")
        self.next += 1
        return token.text

    def fail(self, problem: str, token: Token | None) -> NoReturn:
        line, column = place_at(self.text, token.start if token else len(self.text))
        raise InvalidQuery(f"{problem} (line {line}, column {column})", field="sql")


_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.upper() not in words:
            raise ValueError(f"{text[:40]!r} is not one of {', '.join(words)}")
        return text.upper()

    return read


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(f"{text[:40]!r} is not one of TRUE, FALSE, ENABLED, DISABLED")
    return _SWITCH[text.lower()]


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text[:40]!r} is not a number from 0 to 1")
    return value


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TARGET_LAG": ("target_lag_s", read_lag),
    "REFRESH_MODE": ("refresh_mode", _one_of("AUTO", "INCREMENTAL", "FULL", "INCREMENTAL_STRICT")),
    "INITIALIZE": ("initialise", _one_of("ON_CREATE", "ON_SCHEDULE")),
    "DEDUPLICATION": ("deduplication", _switch),
    "CARDINALITY_THRESHOLD": ("cardinality_threshold", _share),
    "SCHEDULER": ("scheduled", _switch),
}
