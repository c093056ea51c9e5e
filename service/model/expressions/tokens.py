"""Split the text of an expression into words, signs, numbers, texts and quoted names."""

import re
from dataclasses import dataclass
from typing import Literal, cast

Sort = Literal["word", "quoted", "number", "text", "sign", "end"]

_TOKEN = re.compile(
    r"""
      (?P<comment> -- | /\* )
    | (?P<number>  (?: [0-9]+ (?: \.[0-9]* )? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? )
    | (?P<word>    [^\W\d]\w* )
    | (?P<text>    ' (?: [^'] | '' )* ' )
    | (?P<quoted>  ` (?: [^`] | `` )+ ` )
    | (?P<sign>    <=> | <> | != | == | <= | >= | \|\| | [-+*/%=<>(),.] )
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_PROBLEMS = {
    "'": "the text that begins here does not end; write texts in single quotes, with '' for a quote inside",
    '"': "double quotes are not supported; write texts in single quotes, names in backquotes",
    "`": "the name that begins here does not end, or is empty; write names in backquotes",
    "!": "'!' alone is not supported; write NOT or !=",
    ";": "';' is not supported; send one expression",
}


@dataclass(frozen=True, slots=True)
class Token:
    """A part of the text; `value` is without quotes."""

    sort: Sort
    value: str
    start: int
    end: int

    @property
    def shown(self) -> str:
        if self.sort == "end":
            return "the end"
        return f"the text {self.value[:40]!r}" if self.sort == "text" else repr(self.value[:40])


class UnexpectedText(Exception):
    """The text cannot be part of an expression from `position` on."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position


def tokens(text: str) -> list[Token]:
    """The tokens in order, with an end token last; raises UnexpectedText."""
    found: list[Token] = []
    position = _space(text, 0)
    while position < len(text):
        found.append(_token(text, position))
        position = _space(text, found[-1].end)
    return [*found, Token("end", "", len(text), len(text))]


def _token(text: str, position: int) -> Token:
    found = _TOKEN.match(text, position)
    if found is None:
        problem = _PROBLEMS.get(text[position], f"{text[position]!r} is not part of an expression")
        raise UnexpectedText(problem, position)
    sort, value, end = found.lastgroup, found[0], found.end()
    if sort == "comment":
        raise UnexpectedText("comments are not supported; put a space between two minus signs", position)
    if sort == "number" and end < len(text) and (text[end].isalnum() or text[end] == "_"):
        problem = f"{text[position : end + 1][:40]!r} is neither a number nor a name; write such a name in backquotes"
        raise UnexpectedText(problem, position)
    if sort in ("text", "quoted"):
        quote = value[0]
        value = value[1:-1].replace(quote * 2, quote)
    return Token(cast(Sort, sort), value, position, end)


def _space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position
