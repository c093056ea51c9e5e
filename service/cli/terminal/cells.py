"""Text in the cells of a terminal: escape it, measure it, shorten it, wrap it."""

import unicodedata

# Control characters steer a terminal, and direction marks change the order in which text is read.
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def escape(text: str) -> str:
    """Replace every character that is not printed as itself by its escape sequence, as Python writes it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _UNSAFE else c for c in text)


def width_of(text: str) -> int:
    """The number of columns that the text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # 10 ms, which most output does not need

    return cell_len(text)


def shorten(text: str, width: int, dots: str = "…", *, middle: bool = False) -> str:
    """Cut the text to a width, at its end or in its middle: names often differ at both ends."""
    if width_of(text) <= width:
        return text
    if width <= len(dots):
        return dots[:width]
    end = (width - len(dots)) // 2 if middle else 0
    return _first(text, width - len(dots) - end) + dots + _first(text[::-1], end)[::-1]


def wrap(text: str, width: int, indent: str) -> list[str]:
    """Break the text into lines and indent all but the first. Words stay whole, because they may be names to copy."""
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
    """Fill the text with spaces up to a width, on its left if it is aligned right."""
    spaces = " " * (width - width_of(text))
    return spaces + text if right else text + spaces


def _first(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    from rich.cells import set_cell_size

    return set_cell_size(text, width)


def _escaped(c: str) -> str:
    return _NAMED.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
