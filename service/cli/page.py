"""What a command prints: lines and aligned tables, made to fit the terminal's width where there is one."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from service.cli.cells import clean, cut, pad, width_of, wrapped

_GAP = "  "
_NARROWEST, _NARROWEST_NAME = 6, 16
_NOT_STARTED = (126, 127)  # what a shell exits with that cannot start a command


@dataclass(frozen=True)
class Column:
    """A column of a table: numbers stand right and are never cut, and of names that are cut enough stays at both ends.

    The most important one stands first: where there is no room, the last ones go.
    """

    title: str
    right: bool = False
    name: bool = False
    whole: bool = False
    """Whether it is never cut either."""

    def least(self, width: int) -> int:
        """What is left of a width where there is little room."""
        if self.right or self.whole:
            return width
        return min(width, max(_NARROWEST_NAME if self.name else _NARROWEST, width_of(self.title)))


@dataclass
class Page:
    """Lines on their way out."""

    out: TextIO
    width: int | None = None
    """The terminal's; None where it is none, and nothing is cut or wrapped then."""
    height: int = 0
    bold: bool = False
    pager: str = ""
    lines: list[str] = field(default_factory=list)

    def line(self, text: str = "", indent: str = _GAP) -> None:
        """A line, and where it is too long for the terminal more of them, indented."""
        text = clean(text)
        self.lines += [text] if self.width is None else wrapped(text, self.width, indent)

    def text(self, text: str) -> None:
        """Lines that are somebody else's, as long as they are."""
        self.lines += map(clean, text.splitlines())

    def pairs(self, pairs: Mapping[str, Any]) -> None:
        """A name and a value on each line."""
        widest = max(map(width_of, pairs), default=0)
        for name, value in pairs.items():
            self.line(f"{pad(name, widest)}{_GAP}{shown(value)}", " " * (widest + len(_GAP)))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
        """An aligned table with a heading. Columns that do not fit at all are named below it."""
        cells = [[clean(shown(value)) for value in row] for row in rows]
        widths = [
            max(width_of(column.title), *(width_of(row[i]) for row in cells)) if cells else width_of(column.title)
            for i, column in enumerate(columns)
        ]
        fitting = self._fit(columns, widths)
        self.lines.append(self._emphasised(self._row(columns, fitting, [column.title for column in columns])))
        self.lines += [self._row(columns, fitting, row) for row in cells]
        if len(fitting) < len(columns):
            left = [column.title for column in columns[len(fitting) :]]
            more = f"{len(left)} more column{'s' if len(left) > 1 else ''} (--json has all): {', '.join(left)}"
            self.line(more)

    def finish(self) -> None:
        """Write all, through a pager where it is more than the terminal holds."""
        text = "".join(f"{line}\n" for line in self.lines)
        self.lines.clear()
        too_long = self.height and text.count("\n") >= self.height
        if (
            too_long
            and self.pager
            and _paged(self.pager, text.encode(self.out.encoding or "utf-8", "backslashreplace"))
        ):
            return
        self.out.write(text)
        self.out.flush()

    @property
    def _dots(self) -> str:
        try:
            "…".encode(self.out.encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return "~"
        return "…"

    def _emphasised(self, text: str) -> str:
        return f"\033[1m{text}\033[0m" if self.bold else text

    def _fit(self, columns: Sequence[Column], widths: Sequence[int]) -> list[int]:
        """The widths that columns get: the last columns go until the others fit, then the widest text gives way."""
        if self.width is None:
            return list(widths)
        least = [column.least(width) for column, width in zip(columns, widths, strict=True)]
        many = next((n for n in range(len(columns), 1, -1) if _across(least[:n]) <= self.width), 1)
        fitting, least = list(widths[:many]), least[:many]
        while _across(fitting) > self.width and fitting != least:
            spare = [width - low for width, low in zip(fitting, least, strict=True)]
            fitting[spare.index(max(spare))] -= 1
        return fitting

    def _row(self, columns: Sequence[Column], widths: list[int], cells: Sequence[str]) -> str:
        made = [
            pad(cut(cell, width, self._dots, middle=column.name), width, right=column.right)
            for column, width, cell in zip(columns, widths, cells, strict=False)
        ]
        return _GAP.join(made).rstrip()


def _paged(pager: str, text: bytes) -> bool:
    """Show text through a pager until that ends; false where there is none such."""
    import signal
    import subprocess

    # Ctrl-C is the pager's, which has the terminal to put right. As a handler, as the pager would inherit SIG_IGN.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(pager, shell=True, input=text, check=False).returncode not in _NOT_STARTED
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _across(widths: Sequence[int]) -> int:
    """How many columns of a terminal a row takes."""
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def page_for(out: TextIO, environ: Mapping[str, str]) -> Page:
    """A page for where output goes: a terminal has a width, and unless it is dumb bold letters and a pager."""
    if not out.isatty():
        return Page(out)
    size = shutil.get_terminal_size()
    if (environ.get("TERM") or "dumb") == "dumb":
        return Page(out, size.columns)
    pager = environ.get("PAGER", "less -FRX" if shutil.which("less") else "")
    return Page(out, size.columns, size.lines, not environ.get("NO_COLOR"), "" if pager == "cat" else pager)


def shown(value: Any) -> str:
    """A value of an answer as a cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def datum(value: Any) -> str:
    """A value of somebody's data as a cell: null is not the same as nothing."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value)


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def count(value: int, of: str) -> str:
    """`1 file`, `2 files`."""
    return f"{value:,} {of}{'' if value == 1 else 's'}"


def size(value: int | None) -> str:
    """Bytes as people read them."""
    if value is None:
        return "-"
    told = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if told < 1024 or unit == "TiB":
            break
        told /= 1024
    return f"{told:.0f} {unit}" if unit == "B" or told >= 100 else f"{told:.1f} {unit}"


def moment(value: str | None) -> str:
    """A time of an answer, to the minute."""
    if value is None:
        return "-"
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
    except ValueError:
        return value
