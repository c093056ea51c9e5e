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
_BINDING = {
    **{"or": _OR, "and": _AND},
    **dict.fromkeys(("is", "not", "in", "between", "like", "ilike", "rlike"), _PREDICATE),
    **dict.fromkeys(("=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>"), _COMPARISON),
    **dict.fromkeys(("+", "-", "||"), _SUM),
    **dict.fromkeys(("*", "/", "%", "div"), _PRODUCT),
}
_SYNONYMS = {"==": "=", "!=": "<>"}
_CONSTANTS = {"true": Constant(BOOLEAN, True), "false": Constant(BOOLEAN, False), "null": Constant(None, None)}
_TIME_LITERALS: dict[str, ColumnType] = {"date": DATE, "timestamp": TIMESTAMP}


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
        return Expression(_Parser(tokens(text), resolve, checks).parse(), text, path)
    except UnexpectedText as e:
        checks.refuse(e.position, e.problem)


class _Parser:
    def __init__(self, all_tokens: list[Token], resolve: Resolver, checks: Checks) -> None:
        self.tokens = all_tokens
        self.index = 0
        self.depth = 0
        self.resolve = resolve
        self.checks = checks

    @property
    def next(self) -> Token:
        return self.tokens[self.index]

    def parse(self) -> Node:
        tree = self.expression()
        if self.next.sort != "end":
            self.expected("an operator or the end")
        return tree

    def expected(self, what: str) -> NoReturn:
        self.checks.refuse(self.next.start, f"expected {what}, found {self.next.shown}")

    def take(self) -> Token:
        token = self.next
        self.index += token.sort != "end"
        return token

    def word(self, ahead: int = 0) -> str:
        """The next word or sign, in lower case; empty if the next token is neither."""
        token = self.tokens[min(self.index + ahead, len(self.tokens) - 1)]
        return token.value.lower() if token.sort in ("word", "sign") else ""

    def skip(self, *words: str) -> bool:
        """Skip the next word if it is one of these, and return whether it was."""
        found = self.word() in words
        self.index += found
        return found

    def need(self, word: str, after: str) -> None:
        if not self.skip(word):
            self.expected(f"{word.upper()!r} {after}")

    def expression(self, binding: int = _OR) -> Node:
        """Everything from here on that binds at least as tightly."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.checks.refuse(self.next.start, f"the expression is nested more than {MAX_DEPTH} deep; flatten it")
        value = self.signed(binding)
        loosest = _SIGN
        while True:
            operator = self.word()
            binds = _BINDING.get(operator, 0)
            if not binding <= binds <= loosest or not binds:
                break
            position = self.take().start
            if binds == _PREDICATE:
                value = self.predicate(value, operator, position)
                # SQL allows one predicate after a value; after that, only AND and OR can follow.
                loosest = _AND
            elif operator in ("and", "or"):
                value = self.chain(value, operator, position)
            else:
                value = self.binary(value, operator, self.expression(binds + 1), position)
        self.depth -= 1
        return value

    def chain(self, first: Node, operator: str, position: int) -> Node:
        """All conditions joined by the same operator, as one operation."""
        parts = [first, self.expression(_BINDING[operator] + 1)]
        while self.skip(operator):
            parts.append(self.expression(_BINDING[operator] + 1))
        return self.checks.logic(operator, parts, position)

    def binary(self, left: Node, operator: str, right: Node, position: int) -> Node:
        if operator == "||":
            return check_call(self.checks, FUNCTIONS["concat"], (left, right), position)
        if _BINDING[operator] == _COMPARISON:
            return self.checks.comparison(_SYNONYMS.get(operator, operator), left, right, position)
        return self.checks.arithmetic(operator, left, right, position)

    def predicate(self, value: Node, operator: str, position: int) -> Node:
        negated = operator == "not"
        if negated:
            operator = self.word()
            if operator not in ("in", "between", "like", "ilike", "rlike"):
                self.expected("IN, BETWEEN, LIKE, ILIKE or RLIKE after NOT")
            self.take()
        if operator == "is":
            negated = self.skip("not")
            self.need("null", "after IS")
            found = self.checks.is_null(value, position)
        elif operator == "in":
            self.need("(", "after IN")
            found = self.checks.among(value, self.list_items("a list of values"), position)
        elif operator == "between":
            low = self.expression(_COMPARISON)
            self.need("and", "between the two values of BETWEEN")
            found = self.checks.between(value, low, self.expression(_COMPARISON), position)
        else:
            found = self.checks.like(operator, value, self.expression(_COMPARISON), position)
        return self.checks.logic("not", (found,), position) if negated else found

    def signed(self, binding: int) -> Node:
        """A value with the signs or the NOT before it."""
        token = self.next
        word = self.word()
        if word == "not":
            if binding > _NOT:
                self.checks.refuse(token.start, "NOT binds less tightly than the operator before it; use parentheses")
            self.take()
            return self.checks.logic("not", (self.expression(_NOT),), token.start)
        if word in ("-", "+"):
            self.take()
            if word == "-" and self.next.sort == "number":
                number = self.take()
                return self.checks.number(f"-{number.value}", number.start)
            value = self.expression(_SIGN)
            return self.checks.negated(value, token.start) if word == "-" else value
        return self.operand()

    def operand(self) -> Node:
        token = self.next
        match token.sort:
            case "number":
                return self.checks.number(self.take().value, token.start)
            case "text":
                return self.checks.literal(STRING, self.take().value, token.start)
            case "quoted":
                return self.column()
            case "word":
                return self.word_operand(self.word(), token)
        if self.skip("("):
            value = self.expression()
            self.need(")", "to close the parenthesis")
            return value
        self.expected("a value")

    def word_operand(self, word: str, token: Token) -> Node:
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
            return self.call(word, token)
        if word in _TIME_LITERALS and self.tokens[self.index + 1].sort == "text":
            self.take()
            return self.checks.literal(_TIME_LITERALS[word], self.take().value, token.start)
        return self.column()

    def call(self, word: str, token: Token) -> Node:
        self.index += 2
        if word in ("cast", "try_cast"):
            return self.cast(word == "try_cast", token.start)
        if word not in FUNCTIONS:
            near, hint = did_you_mean(word, FUNCTIONS, "docs/reference/expressions.md lists them all")
            self.checks.refuse(token.start, f"{token.value[:80]!r} is not a function here; {hint}", near)
        return check_call(self.checks, FUNCTIONS[word], self.list_items(f"the arguments of {word}"), token.start)

    def list_items(self, what: str) -> list[Node]:
        """Values separated by commas, up to the closing parenthesis."""
        values: list[Node] = []
        if self.skip(")"):
            return values
        while True:
            values.append(self.expression())
            if self.skip(")"):
                return values
            if not self.skip(","):
                self.expected(f"',' or ')' in {what}")

    def cast(self, safe: bool, position: int) -> Node:
        value = self.expression()
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
        return self.checks.cast(value, kind, safe, position)

    def type(self, text: str, position: int) -> ColumnType:
        if not text:
            self.expected("a type")
        try:
            return parse_leaf(text.lower(), "type")
        except InvalidSchema as e:
            self.checks.refuse(position, e.message.removeprefix("type: "), e.suggestion)

    def case(self, position: int) -> Node:
        of = None if self.word() == "when" else self.expression()
        branches = []
        while self.skip("when"):
            condition = self.expression()
            self.need("then", "after the condition of WHEN")
            branches.append((condition, self.expression()))
        if not branches:
            self.expected("WHEN")
        otherwise = self.expression() if self.skip("else") else None
        self.need("end", "to close CASE")
        return self.checks.case(of, branches, otherwise, position)

    def column(self) -> Node:
        token = self.take()
        parts, position = [token.value], token.start
        while self.skip("."):
            if self.next.sort not in ("word", "quoted"):
                self.expected("a name after the dot")
            parts.append(self.take().value)
        if self.word() == "(":
            self.checks.refuse(position, f"{'.'.join(parts)[:80]!r} is not a function; functions have plain names")
        try:
            column = self.resolve(".".join(parts), self.checks.path)
        except UnknownField as e:
            where = f"at character {position + 1}; write texts in single quotes, unusual names in backquotes"
            raise UnknownField(f"{e.message} ({where})", field=e.field, suggestion=e.suggestion) from e
        return self.checks.made(ColumnValue(column), position)
