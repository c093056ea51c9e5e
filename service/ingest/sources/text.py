"""What must be known about a text file before Spark reads it, found in the pass over its bytes."""

import codecs
import re
from dataclasses import dataclass

_BLANK, _BLANKS = re.compile(rb"(?<=\n)\r?\n"), (b"\n\n", b"\n\r\n")
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextFacts:
    """About the text of a file. A line ends with a line feed, or with a carriage return and a line feed."""

    lines: int
    blank_lines: int
    has_cr: bool
    has_bom: bool
    is_utf8: bool
    has_open_quotes: bool
    """Whether a line feed may be inside of quotes."""

    @property
    def records(self) -> int:
        """The lines that are not blank."""
        return self.lines - self.blank_lines


class TextScan:
    """Finds the facts about a text, chunk by chunk. Most chunks have no quotes and only ASCII, which is fast."""

    def __init__(self, quote: str | None) -> None:
        """`quote` is the character around fields, if fields can be quoted."""
        self._quote = None if quote is None else quote.encode()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._lines = self._blank = self._size = 0
        self._has_cr = self._has_open_quotes = self._is_inside = False
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
        self._count_blank(chunk)
        if self._is_utf8 and not (chunk.isascii() and not self._decoder.getstate()[0]):
            self._check_utf8(chunk)
        if self._quote is not None and (self._is_inside or self._quote in chunk):
            self._find_open_quotes(chunk, self._quote)
        # Enough of the end to recognise a blank line that begins in this chunk and ends in the next.
        self._tail = (self._tail + chunk)[-2:]

    def facts(self) -> TextFacts:
        """The facts, after the last chunk."""
        if self._is_utf8 and self._decoder.getstate()[0]:
            self._is_utf8 = False
        ends_inside = bool(self._size) and not self._tail.endswith(b"\n")
        blank = self._blank + (ends_inside and self._tail == b"\n\r")
        return TextFacts(
            self._lines + ends_inside, blank, self._has_cr, self._has_bom, self._is_utf8, self._has_open_quotes
        )

    def _count_blank(self, chunk: bytes) -> None:
        seen = self._tail + chunk
        if any(blank in seen for blank in _BLANKS):
            self._blank += sum(found.end() > len(self._tail) for found in _BLANK.finditer(seen))

    def _check_utf8(self, chunk: bytes) -> None:
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError:
            self._is_utf8 = False

    def _find_open_quotes(self, chunk: bytes, quote: bytes) -> None:
        """Whether a line feed comes after an odd number of quotes."""
        parts = chunk.split(quote)
        inside = parts[0 if self._is_inside else 1 :: 2]
        self._has_open_quotes = self._has_open_quotes or any(b"\n" in part for part in inside)
        self._is_inside ^= len(parts) % 2 == 0
