"""What commands print: aligned, within the terminal's width, and nothing that steers a terminal."""

import io
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.main import main
from service.cli.terminal.cells import escape, pad, shorten, width_of, wrap
from service.cli.terminal.format import format_size, format_time, format_value, plural
from service.cli.terminal.printer import PageColumn, Printer, printer_for
from service.cli.terminal.progress import Pace, describe, progress_line
from tests.harness import wait_until
from tests.unit.cli.test_commands import Ending


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


COLUMNS = st.lists(
    st.builds(PageColumn, st.text("ABCDEFG", min_size=1, max_size=8), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)
CELLS = st.one_of(st.text(max_size=60), st.integers(), st.none(), st.booleans(), st.lists(st.integers(), max_size=5))


def numbered(lines: int, pager: str, **environ: str) -> Printer:
    page = printer_for(Terminal(), {"TERM": "xterm", "PAGER": pager, **environ})
    for i in range(lines):
        page.line(str(i))
    return page


def printed(page: Printer) -> list[str]:
    page.finish()
    assert isinstance(page.out, io.StringIO)
    return page.out.getvalue().splitlines()


@given(COLUMNS, st.integers(1, 5), st.data())
def test_no_line_is_wider_than_the_terminal_but_for_what_is_never_cut(
    columns: list[PageColumn], rows: int, data: st.DataObject
) -> None:
    page = Printer(io.StringIO(), width=80)
    cells = [[data.draw(CELLS) for _ in columns] for _ in range(rows)]
    page.table(columns, cells)
    first = max(width_of(escape(format_value(row[0]))) for row in cells) if columns[0].right or columns[0].whole else 0
    assert max(map(width_of, page.lines)) <= max(80, first)
    assert not any(re.search(r"[\x00-\x1f\x7f-\x9f]", line) for line in page.lines)


@given(st.text(), st.integers(1, 80))
def test_a_long_line_goes_on_below_and_no_word_is_broken(text: str, width: int) -> None:
    made = wrap(escape(text), width, "  ")
    words = [[word for word in line.split(" ") if word] for line in made]
    assert [word for line in words for word in line] == [word for word in escape(text).split(" ") if word]
    assert all(width_of(line) <= width or len(words[i]) <= 1 for i, line in enumerate(made))


def test_what_the_next_command_needs_is_whole_also_where_there_is_little_room() -> None:
    name, uuid = "backup-20260301T100000000Z-reinitialise_table-1f0c9a7e", "84f0f3c9-b1a0-4a6d-8f6c-5e1d2b7a9f30"
    page = Printer(io.StringIO(), width=80)
    page.table(
        [PageColumn("BACKUP", whole=True), PageColumn("KEPT UNTIL", whole=True), PageColumn("BEFORE")],
        [[name, "x" * 17, "y"]],
    )
    page.line(f"the state before is kept as {name}")
    page.line(f"orders  dropped, restorable until 2026-03-01 10:00Z as {uuid}")
    page.pairs({"job": "x", "error": f"there is no table {'y' * 50}; did you mean {name}?"})
    assert printed(page) == [
        f"BACKUP{' ' * 50}KEPT UNTIL",
        f"{name}  {'x' * 17}",
        "1 more column (--json has all): BEFORE",
        "the state before is kept as",
        f"  {name}",
        "orders  dropped, restorable until 2026-03-01 10:00Z as",
        f"  {uuid}",
        "job    x",
        f"error  there is no table {'y' * 50}; did",
        f"       you mean {name}?",
    ]


def test_a_column_that_goes_leaves_its_room_to_the_others() -> None:
    page = Printer(io.StringIO(), width=39)
    page.table(
        [PageColumn("A", whole=True), PageColumn("B"), PageColumn("C", whole=True)], [["a" * 10, "b" * 20, "c" * 20]]
    )
    assert page.lines[1] == f"{'a' * 10}  {'b' * 20}"


@given(st.text(max_size=80), st.integers(1, 40), st.booleans())
def test_a_cut_text_takes_the_room_it_has_and_no_more(text: str, width: int, middle: bool) -> None:
    made = shorten(escape(text), width, middle=middle)
    assert width_of(made) <= width
    assert (made == escape(text)) == (width_of(escape(text)) <= width)
    assert width_of(pad(made, width)) == width


def test_two_hundred_tables_have_a_line_each_of_eighty_columns_and_names_keep_both_ends() -> None:
    page = Printer(io.StringIO(), width=80)
    rows = [
        ["default", f"customer_addresses_of_the_european_branch_since_2019_{i:03}", i, 10**6 * i] for i in range(200)
    ]
    page.table(
        [
            PageColumn("NAMESPACE", name=True),
            PageColumn("TABLE", name=True),
            PageColumn("FILES", True),
            PageColumn("B", True),
        ],
        rows,
    )
    lines = printed(page)
    assert len(lines) == 201
    assert {len(line) for line in lines} == {80}
    assert [line.split()[1][-3:] for line in lines[1:]] == [f"{i:03}" for i in range(200)]


def test_columns_stand_under_their_titles_numbers_to_the_right() -> None:
    page = Printer(io.StringIO())
    page.table(
        [PageColumn("NAME"), PageColumn("ROWS", right=True), PageColumn("NOTE")],
        [["a", 5, "x"], ["long name", 12345, None]],
    )
    assert printed(page) == ["NAME        ROWS  NOTE", "a              5  x", "long name  12345  -"]


def test_wide_and_combining_characters_are_counted_as_they_are_shown() -> None:
    page = Printer(io.StringIO())
    page.table([PageColumn("A"), PageColumn("B")], [["日本", "x"], ["e\u0301", "y"], ["four", "z"]])
    assert printed(page) == ["A     B", "日本  x", "e\u0301     y", "four  z"]


def test_what_steers_a_terminal_is_spelt_out() -> None:
    assert escape("a\nb\t\x1b[31mred\u202e\x85") == "a\\nb\\t\\x1b[31mred\\u202e\\x85"


def test_columns_that_do_not_fit_are_named_below() -> None:
    page = Printer(io.StringIO(), width=20)
    page.table([PageColumn(f"COLUMN{i}") for i in range(4)], [["x" * 30] * 4])
    assert printed(page) == [
        "COLUMN0    COLUMN1",
        "xxxxxxxx~  xxxxxxxx~",
        "2 more columns",
        "  (--json has all):",
        "  COLUMN2, COLUMN3",
    ]


def test_where_there_is_no_terminal_nothing_is_cut_and_nothing_is_bold() -> None:
    page = printer_for(io.StringIO(), {"TERM": "xterm"})
    page.table([PageColumn("NAME")], [["x" * 500]])
    assert printed(page) == ["NAME", "x" * 500]


@pytest.mark.parametrize(
    ("environ", "bold"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, False)],
)
def test_letters_are_bold_in_a_terminal_that_has_them_and_wants_them(environ: dict[str, str], bold: bool) -> None:
    page = printer_for(Terminal(), {**environ, "PAGER": "cat"})
    page.table([PageColumn("NAME")], [])
    assert ("\033[1m" in printed(page)[0]) == bold


def test_more_than_a_terminal_holds_goes_through_the_pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("COLUMNS", "80")
    for lines, paged in ((5, False), (10, True)):
        assert bool(printed(numbered(lines, f"cat > {tmp_path}/paged"))) != paged
    assert (tmp_path / "paged").read_text() == "".join(f"{i}\n" for i in range(10))


def test_ctrl_c_is_for_the_pager_which_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    before = signal.getsignal(signal.SIGINT)
    pager = f"kill -INT {os.getpid()}; sleep 0.2; cat > {tmp_path}/paged; trap - INT; kill -INT $$"
    assert printed(numbered(10, pager)) == []
    assert len((tmp_path / "paged").read_text().splitlines()) == 10
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("pager", ["no-such-pager-is-installed", "/dev/null"])
def test_where_the_pager_cannot_be_started_nothing_is_lost(pager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "10")
    assert len(printed(numbered(10, pager))) == 10


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_can_do_nothing_has_no_pager(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "10")
    assert len(printed(numbered(10, f"cat > {tmp_path}/paged", **environ))) == 10


def test_a_terminal_that_knows_no_dots_gets_another_sign() -> None:
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    page = Printer(ascii_only, width=6)
    page.table([PageColumn("A")], [["too long"]])
    page.finish()
    assert ascii_only.buffer.getvalue() == b"A\ntoo l~\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("bytes_", "message"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10**6, "977 KiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_are_told_as_people_read_them(bytes_: int | None, message: str) -> None:
    assert format_size(bytes_) == message


def test_times_and_counts_are_told_as_people_read_them() -> None:
    assert format_time("2026-03-01T10:00:59.123456Z") == "2026-03-01 10:00Z"
    assert format_time("2026-03-01T10:00:00+01:00") == "2026-03-01 09:00Z"
    assert (format_time(None), format_time("soon")) == ("-", "soon")
    assert (plural(1, "file"), plural(0, "file"), plural(1234, "file")) == ("1 file", "0 files", "1,234 files")


class Screen:
    """The lines of a terminal after what was written to it, as far as progress needs it."""

    CONTROL = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.cursor = True

    def write(self, text: str) -> None:
        for part in self.CONTROL.finditer(text):
            line = self.lines[self.row]
            if part[0] == "\r":
                self.column = 0
            elif part[0] == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row == len(self.lines))
            elif part[2] is None:
                self.lines[self.row] = (
                    line[: self.column].ljust(self.column) + part[0] + line[self.column + len(part[0]) :]
                )
                self.column += len(part[0])
            elif part[2] == "A":
                self.row -= int(part[1] or 1)
            elif part[2] == "K":
                self.lines[self.row] = ""
            elif part[1] == "?25":
                self.cursor = part[2] == "h"
            else:
                assert part[2] == "m", part[0]


class Watched(Terminal):
    """A terminal, and what is to be seen on it."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = Screen()

    def write(self, text: str) -> int:
        self.screen.write(text)
        return super().write(text)

    @property
    def seen(self) -> list[str]:
        return [" ".join(line.split()) for line in self.screen.lines if line.strip()]


FIGURES = {"phase": "rewriting", "bytes_done": 50, "bytes_total": 200, "files_done": 3, "files_total": 12}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Watched()


def test_progress_is_one_line_that_is_written_over_and_leaves_nothing_behind(watched: Watched) -> None:
    with progress_line(watched, "compact shop.orders") as on_progress:
        on_progress({"state": "queued", "progress": {}})
        wait_until(lambda: watched.seen and watched.seen[0].startswith("compact shop.orders queued"), 20, every=0.01)
        on_progress({"state": "running", "progress": FIGURES})
        wait_until(lambda: "rewriting" in watched.seen[0], 20, every=0.01)
        [line] = watched.seen
        assert re.fullmatch(r"compact shop.orders rewriting \S+ ?\S* 25% 0:00:0\d 3/12 files", line), line
        assert not watched.screen.cursor
    assert watched.seen == []
    assert watched.screen.row == 0
    assert watched.screen.cursor, "the cursor is hidden meanwhile, and back at the end"


def test_what_a_name_contains_steers_neither_the_terminal_nor_its_colours(watched: Watched) -> None:
    with progress_line(watched, "compact [red]x[/red]\x1b[2J") as on_progress:
        on_progress({"state": "running", "progress": {"phase": "[bold]p\x1b]0;t\x07"}})
        wait_until(lambda: any("[bold]p" in line for line in watched.seen), 20, every=0.01)
        assert watched.seen[0].startswith("compact [red]x[/red]\\x1b[2J [bold]p\\x1b]0;t\\x07 ")


def test_progress_fits_a_narrow_terminal(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    with progress_line(watched, "compact shop.customer_addresses_since_2019") as on_progress:
        on_progress({"state": "running", "progress": FIGURES})
        wait_until(lambda: watched.seen, 20, every=0.01)
        [line] = [line for line in watched.screen.lines if line.strip()]
        assert len(line) <= 50


def test_a_terminal_that_can_do_nothing_has_no_progress(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with progress_line(watched, "x") as on_progress:
        on_progress({"state": "running"})
    assert watched.getvalue() == ""


@pytest.mark.parametrize(("err", "options"), [(io.StringIO(), []), (Terminal(), ["--json"])])
def test_without_a_terminal_or_with_json_no_progress_is_shown(
    err: io.StringIO, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.connection.jobs._FIRST_PAUSE_S", 0)
    assert main(["table", "compact", "t", *options], {}, stdout=io.StringIO(), stderr=err, connection=Ending()) == 0
    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("figures", "shown"),
    [
        ({}, ""),
        ({"records": 12_000}, "12,000 rows"),
        ({"files_done": 3, "files_total": 12, "bytes_done": 5, "bytes_total": 9}, "3/12 files"),
        ({"records": 5, "bytes_done": 1024, "bytes_total": 4096}, "5 rows, 1.0 KiB of 4.0 KiB"),
        ({"records": 9, "records_done": 5, "records_total": 10, "remaining_ms": 61_000}, "5/10 rows, 1:01 left"),
        ({"records": 5, "records_per_s": 1234.5, "remaining_ms": 3_661_000}, "5 rows, 1,234 rows/s, 1:01:01 left"),
        ({"files_done": 1, "files_total": 2, "bytes_per_s": 2048}, "1/2 files, 2.0 KiB/s"),
    ],
)
def test_what_is_known_of_progress_is_shown(figures: dict[str, Any], shown: str) -> None:
    assert describe(figures) == shown


def test_rate_and_time_left_are_computed_within_a_phase_unless_the_service_says_them() -> None:
    now = 100.0
    pace = Pace(lambda: now)
    first = {"phase": "sending", "records": 0, "bytes_done": 0, "bytes_total": 400}
    assert pace.extend(first) == first
    now = 102.0
    half = {"phase": "sending", "records": 50, "bytes_done": 100, "bytes_total": 400}
    assert pace.extend(half) == {**half, "records_per_s": 25, "remaining_ms": 6000}
    assert pace.extend({**half, "remaining_ms": 1})["remaining_ms"] == 1
    writing = {"phase": "writing", "records": 80}
    assert pace.extend(writing) == writing, "another phase has another rate"
    now = 103.0
    assert pace.extend({"phase": "writing", "records": 90})["records_per_s"] == 10
