"""Spark SQL as sqlglot reads and writes it here: function calls stay as they were written.

sqlglot knows many functions and writes some of them in another way. Here a call keeps its name and its arguments.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser

from service.errors import InvalidQuery

_PARSED = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "OVERLAY", "SUBSTRING", "SUBSTR")
"""Calls with words between their arguments."""


def _with_place(parse: Callable[[Any], tuple[str, Any]]) -> Callable[[Any], tuple[str, Any]]:
    """The parser of a clause, which begins where its keyword is. sqlglot notes only the places of names and values."""

    def parsed(parser: Any) -> tuple[str, Any]:
        start = parser._curr.start
        name, clause = parse(parser)
        if isinstance(clause, exp.Expr):
            clause.meta["start"] = start
        return name, clause

    return parsed


class FirnSpark(Spark):
    class Tokenizer(Spark.Tokenizer):
        # Since Spark 4, a quote that is written twice is one, not two strings side by side.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {name: SparkParser.FUNCTION_PARSERS[name] for name in _PARSED}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: SparkParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "IF")
        }
        QUERY_MODIFIER_PARSERS: ClassVar[dict[Any, Any]] = {
            token: _with_place(parse) for token, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
        }


def parse(text: str) -> exp.Expr:
    """The one statement of a text; raises InvalidQuery with the place of what cannot be read."""
    try:
        statements = [one for one in sqlglot.parse(text, dialect=FirnSpark) if one is not None]
    except ParseError as error:
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        line, column = first.get("line"), first.get("col")
        problem = str(first.get("description") or error).rstrip(".")
        if first.get("highlight") and "Unexpected token" in problem:
            problem = f"{first['highlight']!r} is not expected here"
        place = f"line {line}, column {column}"
        raise InvalidQuery(f"the query cannot be read at {place}: {problem}", field="query") from error
    except SqlglotError as error:
        raise InvalidQuery(f"the query cannot be read: {error}", field="query") from error
    if len(statements) != 1:
        raise InvalidQuery(f"the query must be one statement, not {len(statements)}", field="query")
    return statements[0]


def sql_of(expression: exp.Expr) -> str:
    """The expression as Spark SQL."""
    return expression.sql(dialect=FirnSpark, comments=False)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def place(text: str, expression: exp.Expr) -> tuple[int | None, int | None]:
    """The line and column, from 1, of the expression's first word that has a place: a name, a value, or the
    keyword of a clause. Nothing if it has none."""
    starts = [node.meta["start"] for node in expression.walk() if "start" in node.meta]
    return place_at(text, min(starts)) if starts else (None, None)


def place_at(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
