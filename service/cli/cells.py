"""Text in cells of a terminal: what it takes there, and what must not reach one."""

import unicodedata

# Control characters steer a terminal, and direction marks lie about the order of what is read.
_HARMFUL = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def clean(text: str) -> str:
    """The text with every character spelt out that is not one to read."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelt(c) if unicodedata.category(c) in _HARMFUL else c for c in text)


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int, dots: str = "…", *, middle: bool = False) -> str:
    """The text in so many columns. A longer one gets dots at its end, or in its middle: names differ at both ends."""
    if width_of(text) <= width:
        return text
    room = width - len(dots)
    if room <= 0:
        return dots[:width]
    end = room // 2 if middle else 0
    return _first(text, room - end) + dots + (_first(text[::-1], end)[::-1] if end else "")


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """The text on as many lines as it takes, the later ones indented. A word is never broken: it may be a name."""
    lines: list[str] = []
    line, *words = text.split(" ")
    for word in words:
        if width_of(line) + 1 + width_of(word) <= width:
            line += f" {word}"
        else:
            lines.append(line.rstrip())
            line = indent + word
    return [*lines, line]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces up to a width; with `right` before it."""
    spaces = " " * max(0, width - width_of(text))
    return spaces + text if right else text + spaces


def _first(text: str, width: int) -> str:
    taken, used = [], 0
    for c in text:
        used += _width(c)
        if used > width:
            break
        taken.append(c)
    return "".join(taken)


def _spelt(c: str) -> str:
    plain = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return plain.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")


def _width(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1
