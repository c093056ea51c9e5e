"""Print lines and aligned tables. In a terminal they fit its width, and a pager shows what its height cannot hold."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from service.cli.terminal.cells import escape, pad, shorten, width_of, wrap
from service.cli.terminal.format import format_value, plural

_GAP = "  "
_MIN_WIDTH, _MIN_NAME_WIDTH = 6, 16
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_NOT_STARTED = (126, 127)  # exit codes of a shell that cannot start a command


@dataclass(frozen=True)
class PageColumn:
    """A column of a table. Put the most important ones first: columns that do not fit are left out from the end."""

    title: str
    right: bool = False
    """Aligned right, as numbers are, and never shortened."""
    name: bool = False
    """Shortened in the middle, which keeps both ends of a name."""
    whole: bool = False
    """Never shortened."""
    value: Callable[[Any], Any] = lambda item: item
    """Returns the value of the column for an item of `items`."""

    def min_width(self, width: int) -> int:
        """The width to which a column of this width may shrink."""
        if self.right or self.whole:
            return width
        return min(width, max(_MIN_NAME_WIDTH if self.name else _MIN_WIDTH, width_of(self.title)))


def data_columns(names: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> list[PageColumn]:
    """The columns of a table's rows: those with numbers are aligned right."""
    return [PageColumn(name, right=_are_numbers([row.get(name) for row in rows])) for name in names]


def _are_numbers(values: list[Any]) -> bool:
    """Whether all values of a column are numbers: decimals are text, and all of a column have as many digits after
    their point; so are a double's NaN and infinities."""
    given = [value for value in values if value is not None and value not in _NOT_FINITE]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        return True
    scales = {_scale(value) for value in given}
    return len(scales) == 1 and None not in scales


def _scale(value: Any) -> int | None:
    """The digits after the point of a decimal; None if it is none."""
    if not isinstance(value, str):
        return None
    whole, point, fraction = value.removeprefix("-").partition(".")
    return len(fraction) if point and whole.isdecimal() and fraction.isdecimal() else None


@dataclass
class Printer:
    """Collects lines, and prints them at the end."""

    out: TextIO
    width: int | None = None
    """The terminal's; None if the output is not a terminal: then nothing is shortened or wrapped."""
    height: int = 0
    bold: bool = False
    pager: str = ""
    lines: list[str] = field(default_factory=list)

    def line(self, text: str = "", indent: str = _GAP) -> None:
        """Add a line. If it is too long for the terminal, it continues on indented lines below."""
        text = escape(text)
        self.lines += [text] if self.width is None else wrap(text, self.width, indent)

    def success(self, text: str) -> None:
        """Add a line that reports success."""
        self.line(f"✓ {text}" if self.can_print("✓", "utf-8") else text)

    def text(self, text: str) -> None:
        """Add lines as they are, however long."""
        self.lines += map(escape, text.splitlines())

    def pairs(self, pairs: Mapping[str, Any]) -> None:
        """Add a line with a name and a value for each pair that has a value."""
        given = {name: value for name, value in pairs.items() if value is not None}
        widest = max(map(width_of, given), default=0)
        for name, value in given.items():
            self.line(f"{pad(name, widest)}{_GAP}{format_value(value)}", " " * (widest + len(_GAP)))

    def items(self, columns: Sequence[PageColumn], items: Iterable[Any]) -> None:
        """Add a table with a row for each item: the columns have functions that return its values."""
        self.table(columns, [[column.value(item) for column in columns] for item in items])

    def table(self, columns: Sequence[PageColumn], rows: Sequence[Sequence[Any]]) -> None:
        """Add an aligned table with a heading, and a line that names the columns that did not fit."""
        titles = [escape(column.title) for column in columns]
        cells = [[escape(format_value(value)) for value in row] for row in rows]
        widths = self._fit(columns, [max(map(width_of, column)) for column in zip(titles, *cells, strict=True)])
        heading, *body = (self._row(columns, widths, row) for row in (titles, *cells))
        self.lines += [f"\033[1m{heading}\033[0m" if self.bold else heading, *body]
        if left_out := titles[len(widths) :]:
            self.line(f"{plural(len(left_out), 'more column')} (--json has all): {', '.join(left_out)}")

    def has_room(self, columns: Sequence[PageColumn], rows: Sequence[Sequence[Any]]) -> bool:
        """Whether `table` would leave out no column."""
        if self.width is None:
            return True
        cells = [
            [escape(column.title) for column in columns],
            *([escape(format_value(v)) for v in row] for row in rows),
        ]
        widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
        least = (column.min_width(width) for column, width in zip(columns, widths, strict=True))
        return _total(list(least)) <= self.width

    def finish(self) -> None:
        """Print all lines, through the pager if the terminal is too small for them."""
        text = "".join(f"{line}\n" for line in self.lines)
        too_long = self.pager and len(self.lines) >= self.height
        self.lines.clear()
        if too_long and _page(self.pager, text.encode(self.out.encoding or "utf-8", "backslashreplace")):
            return
        self.out.write(text)
        self.out.flush()

    @property
    def _dots(self) -> str:
        return "…" if self.can_print("…", "ascii") else "~"

    def can_print(self, text: str, default: str = "utf-8") -> bool:
        """Whether the output's encoding, by default this one, has all characters of a text."""
        try:
            text.encode(self.out.encoding or default)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def _fit(self, columns: Sequence[PageColumn], widths: list[int]) -> list[int]:
        """The widths of the columns that fit: leave out the last ones until the others fit, then shrink the widest."""
        if self.width is None:
            return widths
        least = [column.min_width(width) for column, width in zip(columns, widths, strict=True)]
        fitting = next((n for n in range(len(columns), 1, -1) if _total(least[:n]) <= self.width), 1)
        widths, least = widths[:fitting], least[:fitting]
        while _total(widths) > self.width and widths != least:
            spare = [width - low for width, low in zip(widths, least, strict=True)]
            widths[spare.index(max(spare))] -= 1
        return widths

    def _row(self, columns: Sequence[PageColumn], widths: list[int], cells: Sequence[str]) -> str:
        fitted = (
            pad(shorten(cell, width, self._dots, middle=column.name), width, right=column.right)
            for column, width, cell in zip(columns, widths, cells, strict=False)
        )
        return _GAP.join(fitted).rstrip()


def printer_for(out: TextIO, environ: Mapping[str, str]) -> Printer:
    """A printer that suits the output. A terminal has a width and, unless it is dumb, bold letters and a pager."""
    if not out.isatty():
        return Printer(out)
    import shutil  # 12 ms, which scripts do not need

    size = shutil.get_terminal_size()
    if (environ.get("TERM") or "dumb") == "dumb":
        return Printer(out, size.columns)
    pager = environ.get("PAGER", "less -FRX" if shutil.which("less") else "")
    return Printer(out, size.columns, size.lines, not environ.get("NO_COLOR"), "" if pager == "cat" else pager)


def _page(pager: str, text: bytes) -> bool:
    """Show text through a pager until that ends; False if the pager cannot be started."""
    import signal
    import subprocess

    # Ctrl-C is for the pager, which has to restore the terminal. A handler, because the pager would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(pager, shell=True, input=text, check=False).returncode not in _NOT_STARTED
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)
