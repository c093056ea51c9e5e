"""The text of an expression cut into words, signs, numbers, texts and quoted names."""

import re
from dataclasses import dataclass
from typing import Literal

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
    "'": "the text that begins here does not end; texts stand in single quotes, and '' is one within",
    '"': "double quotes are not taken; texts stand in single quotes, names in backquotes",
    "`": "the name that begins here does not end, or is empty; names stand in backquotes",
    "!": "'!' alone is not taken; write NOT or !=",
    ";": "';' is not taken; send one expression",
}


@dataclass(frozen=True, slots=True)
class Token:
    """What stands at a place of the text; `value` is without its quotes."""

    sort: Sort
    value: str
    start: int
    end: int

    @property
    def shown(self) -> str:
        if self.sort == "end":
            return "the end"
        return f"the text {self.value[:40]!r}" if self.sort == "text" else repr(self.value[:40])


class Stray(Exception):
    """Something at a place that is part of no expression."""

    def __init__(self, problem: str, place: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = place


def tokens(text: str) -> list[Token]:
    """The parts in their order, an end after them; Stray at the first that is none."""
    found: list[Token] = []
    place = _space(text, 0)
    while place < len(text):
        found.append(_token(text, place))
        place = _space(text, found[-1].end)
    return [*found, Token("end", "", len(text), len(text))]


def _token(text: str, place: int) -> Token:
    found = _TOKEN.match(text, place)
    if found is None:
        raise Stray(_OPENED.get(text[place], f"{text[place]!r} is not part of an expression"), place)
    value, end = found[0], found.end()
    match found.lastgroup:
        case "comment":
            raise Stray("comments are not taken; between two minus signs put a space", place)
        case "number":
            if end < len(text) and (text[end].isalnum() or text[end] == "_"):
                raise Stray(
                    f"{text[place : end + 1][:40]!r} is neither a number nor a name; "
                    "a name that begins with a digit stands in backquotes",
                    place,
                )
            return Token("number", value, place, end)
        case "text":
            return Token("text", value[1:-1].replace("''", "'"), place, end)
        case "quoted":
            return Token("quoted", value[1:-1].replace("``", "`"), place, end)
        case "word":
            return Token("word", value, place, end)
    return Token("sign", value, place, end)


def _space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
