"""Whether a query means the same after it was read and written again.

sqlglot writes some things in another way than they were read, and leaves out what it takes for granted. The words of
both texts are compared as a bag, because NOT may move; what is known to be equal is written in one way before.
"""

from collections import Counter

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from service.dynamic.query.dialect import FirnSpark, parse, sql_of

_SILENT = {
    *(TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.SEMICOLON, TokenType.ALIAS, TokenType.ASC),
    *(TokenType.INNER, TokenType.OUTER, TokenType.DCOLON),
}
"""Words that say nothing more: a cast keeps its type, a join its side."""
_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_SAME = {"SUBSTR": "SUBSTRING", "CAST": ""}
_SILENT_PAIRS = (["NULLS", "FIRST"], ["NULLS", "LAST"], ["CROSS", "JOIN"])
_NULL_SAFE = [TokenType.IS, TokenType.NOT, TokenType.DISTINCT, TokenType.FROM]


def changed_word(text: str, tree: exp.Expr) -> tuple[str, int] | None:
    """A word of the text, and its place, that is not in the text that sqlglot writes; None if all are."""
    written = sql_of(tree)
    if _alike(parse(written)) != _alike(tree):
        return text[:40], 0
    words, again = _words(text), _words(written)
    rest = Counter(word for word, _ in again)
    rest.update(_left_out(tree))
    for word, start in words:
        if rest[word] == 0:
            return word, start
        rest[word] -= 1
    rest.subtract(_added(tree))
    left = +rest - _left_out(tree)
    return (next(iter(left)), 0) if left else None


def _alike(tree: exp.Expr) -> exp.Expr:
    """The tree with one form for what has two."""

    def same(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.TryCast) and not node.args.get("safe"):
            return exp.Cast(this=node.this, to=node.args["to"])
        if isinstance(node, exp.Concat):
            return exp.Anonymous(this="CONCAT", expressions=node.expressions)
        return exp.Literal.string(node.this) if isinstance(node, exp.RawString) else node

    return tree.copy().transform(same)


def _added(tree: exp.Expr) -> Counter[str]:
    """Words that only the written text has: adjacent strings become a call."""
    return Counter({"CONCAT": sum(1 for _ in tree.find_all(exp.Concat))})


def _left_out(tree: exp.Expr) -> Counter[str]:
    """Words that the text may have, and that are written as commas."""
    substrings = sum(1 for _ in tree.find_all(exp.Substring))
    return Counter({"FROM": substrings, "FOR": substrings})


def _words(text: str) -> list[tuple[str, int]]:
    tokens: list[Token] = FirnSpark().tokenize(text)
    found: list[tuple[str, int]] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        kinds = [each.token_type for each in tokens[i : i + 4]]
        if kinds == _NULL_SAFE:
            found.append((TokenType.NULLSAFE_EQ.name, token.start))
            i += 4
        elif [each.text.upper() for each in tokens[i : i + 2]] in _SILENT_PAIRS:
            i += 2
        elif kinds[0] in _SET_OPERATIONS and kinds[1:2] == [TokenType.DISTINCT]:
            found.append((kinds[0].name, token.start))
            i += 2
        else:
            word = _word(text, token)
            found += [(word, token.start)] if word and token.token_type not in _SILENT else []
            i += 1
    return found


def _word(text: str, token: Token) -> str:
    raw = text[token.start : token.end + 1]
    match token.token_type:
        case TokenType.STRING:
            return "'" + (raw[1:-1] if "\\" in raw else token.text.replace("'", "\\'"))
        case TokenType.RAW_STRING:
            return "'" + token.text.replace("\\", "\\\\").replace("'", "\\'")
        case TokenType.NUMBER:
            return "'" + (f"0{token.text}" if token.text.startswith(".") else token.text)
        case TokenType.VAR | TokenType.IDENTIFIER:
            return _SAME.get(token.text.upper(), token.text.upper())
    return token.token_type.name
