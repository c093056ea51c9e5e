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
_OPENED = {
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
    """The text cannot be part of an expression from `place` on."""

    def __init__(self, problem: str, place: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = place


def tokens(text: str) -> list[Token]:
    """The tokens in order, with an end token last; raises UnexpectedText."""
    found: list[Token] = []
    place = _space(text, 0)
    while place < len(text):
        found.append(_token(text, place))
        place = _space(text, found[-1].end)
    return [*found, Token("end", "", len(text), len(text))]


def _token(text: str, place: int) -> Token:
    found = _TOKEN.match(text, place)
    if found is None:
        raise UnexpectedText(_OPENED.get(text[place], f"{text[place]!r} is not part of an expression"), place)
    sort, value, end = found.lastgroup, found[0], found.end()
    if sort == "comment":
        raise UnexpectedText("comments are not supported; put a space between two minus signs", place)
    if sort == "number" and end < len(text) and (text[end].isalnum() or text[end] == "_"):
        problem = f"{text[place : end + 1][:40]!r} is neither a number nor a name; write such a name in backquotes"
        raise UnexpectedText(problem, place)
    if sort in ("text", "quoted"):
        quote = value[0]
        value = value[1:-1].replace(quote * 2, quote)
    return Token(cast(Sort, sort), value, place, end)


def _space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
