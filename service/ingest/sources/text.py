"""What must be known about a text file before Spark reads it, found in the pass over its bytes."""

import codecs
import re
from dataclasses import dataclass

_BLANK = re.compile(rb"(?<=\n)\r?\n")
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextFacts:
    """About the text of a file. A line ends with a line feed, or with a carriage return and a line feed."""

    lines: int
    blank_lines: int
    has_cr: bool
    has_bom: bool
    is_utf8: bool
    has_nul: bool
    has_quotes: bool
    has_open_quotes: bool
    """Whether a line feed may be inside of quotes."""

    @property
    def records(self) -> int:
        """The lines that are not blank."""
        return self.lines - self.blank_lines


class TextScan:
    """Finds the facts about a text, chunk by chunk, with few calls for each: a file has a thousand times as many."""

    def __init__(self, quote: str | None) -> None:
        """`quote` is the character around fields, if fields can be quoted."""
        self._quote = None if quote is None else quote.encode()
        # The bytes that say nothing about where quotes are open.
        self._others = bytes(set(range(256)) - set(b"\n" + (self._quote or b"")))
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._lines = self._blank = self._size = 0
        self._has_cr = self._has_nul = self._has_quotes = self._has_open_quotes = self._is_inside = False
        self._is_utf8 = True
        self._has_begun = self._has_bom = False
        self._tail = b"\n"

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        if not self._has_begun:
            self._has_begun = True
            self._has_bom = chunk.startswith(BOM)
            chunk = chunk.removeprefix(BOM)
        self._size += len(chunk)
        self._lines += chunk.count(b"\n")
        self._has_cr = self._has_cr or b"\r" in chunk
        self._has_nul = self._has_nul or b"\0" in chunk
        self._count_blank(chunk)
        if self._is_utf8 and not (chunk.isascii() and not self._decoder.getstate()[0]):
            self._check_utf8(chunk)
        if self._quote is not None:
            self._has_quotes = self._has_quotes or self._quote[:1] in chunk
            if self._has_quotes and not self._has_open_quotes:
                self._find_open_quotes(chunk, self._quote)
        # Enough of the end to recognise a blank line that begins in this chunk and ends in the next.
        self._tail = (self._tail + chunk[-2:])[-2:]

    def facts(self) -> TextFacts:
        """The facts, after the last chunk."""
        if self._is_utf8 and self._decoder.getstate()[0]:
            self._is_utf8 = False
        ends_inside = bool(self._size) and not self._tail.endswith(b"\n")
        blank = self._blank + (ends_inside and self._tail == b"\n\r")
        return TextFacts(
            self._lines + ends_inside,
            blank,
            self._has_cr,
            self._has_bom,
            self._is_utf8,
            self._has_nul,
            self._has_quotes,
            self._has_open_quotes,
        )

    def _count_blank(self, chunk: bytes) -> None:
        self._blank += _blank_lines(self._tail + chunk[:2], after=len(self._tail))
        self._blank += _blank_lines(chunk, after=2)

    def _check_utf8(self, chunk: bytes) -> None:
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError:
            self._is_utf8 = False

    def _find_open_quotes(self, chunk: bytes, quote: bytes) -> None:
        """Whether a line feed comes after an odd number of quotes."""
        if len(quote) > 1:  # rare, and it may be divided between two chunks
            self._has_open_quotes = True
            return
        marks = chunk.translate(None, self._others)
        if self._is_inside:
            marks = quote + marks
        # Pairs say nothing. What is left has a quote for each row of quotes of odd length.
        left = marks.replace(quote * 2, b"")
        self._has_open_quotes = quote in left.removesuffix(quote)
        self._is_inside = left.endswith(quote)


def _blank_lines(text: bytes, *, after: int) -> int:
    """The number of blank lines that end after so many bytes."""
    if b"\n\n" not in text and (b"\r" not in text or b"\n\r\n" not in text):
        return 0
    return sum(found.end() > after for found in _BLANK.finditer(text))
