"""Parse the text of an expression, with SQL's syntax and precedence, into a tree with known columns and kinds."""

from typing import NoReturn

from service.errors import FirnError, InvalidSchema, UnknownField, did_you_mean
from service.model.expressions.calls import check_call
from service.model.expressions.checks import Checks
from service.model.expressions.functions import FUNCTIONS
from service.model.expressions.kinds import BOOLEAN, DATE, STRING, TIMESTAMP
from service.model.expressions.tokens import Token, UnexpectedText, tokens
from service.model.expressions.tree import ColumnValue, Constant, Expression, Node
from service.model.schema.columns import Resolver
from service.model.schema.definition import parse_leaf
from service.model.schema.types import ColumnType

MAX_LENGTH = 10_000
MAX_DEPTH = 64
_RESERVED = (
    *("and", "or", "not", "in", "is", "between", "like", "ilike", "rlike"),
    *("null", "true", "false", "case", "when", "then", "else"),
)
# How tightly each operator binds; the predicates (IS, IN, BETWEEN, LIKE) are between NOT and the comparisons.
_OR, _AND, _NOT, _PREDICATE, _COMPARISON, _SUM, _PRODUCT, _SIGN = range(1, 9)
_BINDS = {
    **{"or": _OR, "and": _AND},
    **dict.fromkeys(("is", "not", "in", "between", "like", "ilike", "rlike"), _PREDICATE),
    **dict.fromkeys(("=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>"), _COMPARISON),
    **dict.fromkeys(("+", "-", "||"), _SUM),
    **dict.fromkeys(("*", "/", "%", "div"), _PRODUCT),
}
_SAME = {"==": "=", "!=": "<>"}
_CONSTANTS = {"true": Constant(BOOLEAN, True), "false": Constant(BOOLEAN, False), "null": Constant(None, None)}
_MOMENTS: dict[str, ColumnType] = {"date": DATE, "timestamp": TIMESTAMP}


def parse_expression(text: object, resolve: Resolver, path: str, error: type[FirnError]) -> Expression:
    """Parse an expression; `path` is its place in the request.

    Raises UnknownField for an unknown column, and `error` for anything else.
    """
    if not isinstance(text, str) or not text.strip():
        raise error.at(path, "expected text such as 'price * 1.1'")
    if len(text) > MAX_LENGTH:
        raise error.at(path, f"the expression has {len(text)} characters; use at most {MAX_LENGTH}")
    checks = Checks(path, error)
    try:
        return Expression(_Parser(tokens(text), resolve, checks).whole(), text, path)
    except UnexpectedText as e:
        checks.refuse(e.place, e.problem)


class _Parser:
    def __init__(self, found: list[Token], resolve: Resolver, checks: Checks) -> None:
        self.found = found
        self.at = 0
        self.depth = 0
        self.resolve = resolve
        self.checks = checks

    @property
    def next(self) -> Token:
        return self.found[self.at]

    def whole(self) -> Node:
        tree = self.any()
        if self.next.sort != "end":
            self.expected("an operator or the end")
        return tree

    def expected(self, what: str) -> NoReturn:
        self.checks.refuse(self.next.start, f"expected {what}, found {self.next.shown}")

    def take(self) -> Token:
        token = self.next
        self.at += token.sort != "end"
        return token

    def word(self, ahead: int = 0) -> str:
        """The next word or sign, in lower case; empty if the next token is neither."""
        token = self.found[min(self.at + ahead, len(self.found) - 1)]
        return token.value.lower() if token.sort in ("word", "sign") else ""

    def skip(self, *words: str) -> bool:
        """Skip the next word if it is one of these, and return whether it was."""
        found = self.word() in words
        self.at += found
        return found

    def need(self, word: str, after: str) -> None:
        if not self.skip(word):
            self.expected(f"{word.upper()!r} {after}")

    def any(self, binding: int = _OR) -> Node:
        """Everything from here on that binds at least as tightly."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.checks.refuse(self.next.start, f"the expression is nested more than {MAX_DEPTH} deep; flatten it")
        value = self.first(binding)
        loosest = _SIGN
        while True:
            operator = self.word()
            binds = _BINDS.get(operator, 0)
            if not binding <= binds <= loosest or not binds:
                break
            place = self.take().start
            if binds == _PREDICATE:
                value = self.predicate(value, operator, place)
                # SQL allows one predicate after a value; after that, only AND and OR can follow.
                loosest = _AND
            elif operator in ("and", "or"):
                value = self.chained(value, operator, place)
            else:
                value = self.joined(value, operator, self.any(binds + 1), place)
        self.depth -= 1
        return value

    def chained(self, first: Node, operator: str, place: int) -> Node:
        """All conditions joined by the same operator, as one operation."""
        parts = [first, self.any(_BINDS[operator] + 1)]
        while self.skip(operator):
            parts.append(self.any(_BINDS[operator] + 1))
        return self.checks.logic(operator, parts, place)

    def joined(self, left: Node, operator: str, right: Node, place: int) -> Node:
        if operator == "||":
            return check_call(self.checks, FUNCTIONS["concat"], (left, right), place)
        if _BINDS[operator] == _COMPARISON:
            return self.checks.comparison(_SAME.get(operator, operator), left, right, place)
        return self.checks.arithmetic(operator, left, right, place)

    def predicate(self, value: Node, operator: str, place: int) -> Node:
        negated = operator == "not"
        if negated:
            operator = self.word()
            if operator not in ("in", "between", "like", "ilike", "rlike"):
                self.expected("IN, BETWEEN, LIKE, ILIKE or RLIKE after NOT")
            self.take()
        if operator == "is":
            negated = self.skip("not")
            self.need("null", "after IS")
            found = self.checks.is_null(value, place)
        elif operator == "in":
            self.need("(", "after IN")
            found = self.checks.among(value, self.listed("a list of values"), place)
        elif operator == "between":
            low = self.any(_COMPARISON)
            self.need("and", "between the two values of BETWEEN")
            found = self.checks.between(value, low, self.any(_COMPARISON), place)
        else:
            found = self.checks.like(operator, value, self.any(_COMPARISON), place)
        return self.checks.logic("not", (found,), place) if negated else found

    def first(self, binding: int) -> Node:
        """A value with the signs or the NOT before it."""
        token = self.next
        word = self.word()
        if word == "not":
            if binding > _NOT:
                self.checks.refuse(
                    token.start, "NOT cannot follow an operator that binds more tightly; use parentheses"
                )
            self.take()
            return self.checks.logic("not", (self.any(_NOT),), token.start)
        if word in ("-", "+"):
            self.take()
            if word == "-" and self.next.sort == "number":
                number = self.take()
                return self.checks.number(f"-{number.value}", number.start)
            value = self.any(_SIGN)
            return self.checks.negated(value, token.start) if word == "-" else value
        return self.single()

    def single(self) -> Node:
        token = self.next
        match token.sort:
            case "number":
                return self.checks.number(self.take().value, token.start)
            case "text":
                return self.checks.literal(STRING, self.take().value, token.start)
            case "quoted":
                return self.column()
            case "word":
                return self.worded(self.word(), token)
        if self.skip("("):
            value = self.any()
            self.need(")", "to close the parenthesis")
            return value
        self.expected("a value")

    def worded(self, word: str, token: Token) -> Node:
        if word in _CONSTANTS:
            self.take()
            return self.checks.made(_CONSTANTS[word], token.start)
        if word == "case":
            self.take()
            return self.case(token.start)
        if word in _RESERVED:
            problem = f"expected a value, found {token.value!r}; write a column of that name as `{token.value}`"
            self.checks.refuse(token.start, problem)
        if self.word(1) == "(":
            return self.called(word, token)
        if word in _MOMENTS and self.found[self.at + 1].sort == "text":
            self.take()
            return self.checks.literal(_MOMENTS[word], self.take().value, token.start)
        return self.column()

    def called(self, word: str, token: Token) -> Node:
        self.at += 2
        if word in ("cast", "try_cast"):
            return self.cast(word == "try_cast", token.start)
        if word not in FUNCTIONS:
            near, hint = did_you_mean(word, FUNCTIONS, "docs/expressions.md lists them all")
            self.checks.refuse(token.start, f"{token.value[:80]!r} is not a function here; {hint}", near)
        return check_call(self.checks, FUNCTIONS[word], self.listed(f"the arguments of {word}"), token.start)

    def listed(self, what: str) -> list[Node]:
        """Values separated by commas, up to the closing parenthesis."""
        values: list[Node] = []
        if self.skip(")"):
            return values
        while True:
            values.append(self.any())
            if self.skip(")"):
                return values
            if not self.skip(","):
                self.expected(f"',' or ')' in {what}")

    def cast(self, safe: bool, place: int) -> Node:
        value = self.any()
        self.need("as", "in CAST(value AS type)")
        at = self.next.start
        text = ""
        while self.next.sort in ("word", "number") or self.word() in ("(", ","):
            text += self.take().value
            if text.endswith(")"):
                break
            if self.word() == ")" and "(" in text:
                text += self.take().value
                break
        kind = self.type(text, at)
        self.need(")", "after the type of CAST")
        return self.checks.cast(value, kind, safe, place)

    def type(self, text: str, place: int) -> ColumnType:
        if not text:
            self.expected("a type")
        try:
            return parse_leaf(text.lower(), "type")
        except InvalidSchema as e:
            self.checks.refuse(place, e.message.removeprefix("type: "), e.suggestion)

    def case(self, place: int) -> Node:
        of = None if self.word() == "when" else self.any()
        branches = []
        while self.skip("when"):
            condition = self.any()
            self.need("then", "after the condition of WHEN")
            branches.append((condition, self.any()))
        if not branches:
            self.expected("WHEN")
        otherwise = self.any() if self.skip("else") else None
        self.need("end", "to close CASE")
        return self.checks.case(of, branches, otherwise, place)

    def column(self) -> Node:
        token = self.take()
        parts, place = [token.value], token.start
        while self.skip("."):
            if self.next.sort not in ("word", "quoted"):
                self.expected("a name after the dot")
            parts.append(self.take().value)
        if self.word() == "(":
            self.checks.refuse(place, f"{'.'.join(parts)[:80]!r} is not a function; functions have plain names")
        try:
            column = self.resolve(".".join(parts), self.checks.path)
        except UnknownField as e:
            problem = (
                f"{e.message} (at character {place + 1}; write texts in single quotes, unusual names in backquotes)"
            )
            raise UnknownField(problem, field=e.field, suggestion=e.suggestion) from e
        return self.checks.made(ColumnValue(column), place)
