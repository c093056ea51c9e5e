"""Split a text into records with their line numbers, where a record may have line breaks inside of quotes."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

# A record with more line breaks or characters than this began with a quote that nothing closes.
_MOST_LINES, _MOST_CHARACTERS = 10_000, 1 << 20


class Record(NamedTuple):
    line: int
    """The number of its first line, from 1."""
    raw: str
    has_problem: bool = False
    """Whether a quote is never closed, or some of its text was not in the file's encoding."""


def csv_records(lines: Iterable[str], delimiter: str, quote: str) -> Iterator[Record]:
    """The records of CSV lines, without blank lines. A quote that nothing closes spoils only its own line."""
    waiting: list[str] = []
    source = iter(lines)
    number = 0

    def next_line() -> str | None:
        return waiting.pop() if waiting else next(source, None)

    while (line := next_line()) is not None:
        number += 1
        if not line:
            continue
        if quote not in line or not _is_open(line, delimiter, quote):
            yield Record(number, line)
            continue
        parts, size = [line], len(line)
        closed = False
        while len(parts) < _MOST_LINES and size < _MOST_CHARACTERS and (more := next_line()) is not None:
            parts.append(more)
            size += len(more) + 1
            if quote in more and not _is_open("\n".join(parts), delimiter, quote):
                closed = True
                break
        if closed:
            yield Record(number, "\n".join(parts))
            number += len(parts) - 1
        else:
            yield Record(number, line, has_problem=True)
            waiting += reversed(parts[1:])


def _is_open(text: str, delimiter: str, quote: str) -> bool:
    """Whether the last field of a text begins with a quote that is not closed, or is closed in the middle of it."""
    place = 0
    while True:
        if text.startswith(quote, place):
            end = _closing(text, quote, place + 1)
            if end < 0:
                return True
            place = end + 1
            if place < len(text) and not text.startswith(delimiter, place):
                # Not a field in quotes: the rest up to the next delimiter belongs to it.
                return "\n" in text[:place]
        found = text.find(delimiter, place)
        if found < 0:
            return False
        place = found + 1


def _closing(text: str, quote: str, place: int) -> int:
    """The place of the quote that closes a field; two quotes stand for one in it."""
    while True:
        end = text.find(quote, place)
        if end < 0 or not text.startswith(quote, end + 1):
            return end
        place = end + 2
