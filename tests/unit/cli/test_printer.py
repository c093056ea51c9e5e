"""What commands print: aligned, within the terminal's width, and nothing that steers a terminal."""

import io
import os
import re
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.cells import clean, cut, pad, width_of, wrapped
from service.cli.page import Column, Page, count, moment, page_for, shown, size
from service.cli.progress import Progress


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


COLUMNS = st.lists(
    st.builds(Column, st.text("ABCDEFG", min_size=1, max_size=8), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)
CELLS = st.one_of(st.text(max_size=60), st.integers(), st.none(), st.booleans(), st.lists(st.integers(), max_size=5))


def numbered(lines: int, pager: str, **environ: str) -> Page:
    page = page_for(Terminal(), {"TERM": "xterm", "PAGER": pager, **environ})
    for i in range(lines):
        page.line(str(i))
    return page


def printed(page: Page) -> list[str]:
    page.finish()
    assert isinstance(page.out, io.StringIO)
    return page.out.getvalue().splitlines()


@given(COLUMNS, st.integers(1, 5), st.data())
def test_no_line_is_wider_than_the_terminal_but_for_what_is_never_cut(
    columns: list[Column], rows: int, data: st.DataObject
) -> None:
    page = Page(io.StringIO(), width=80)
    cells = [[data.draw(CELLS) for _ in columns] for _ in range(rows)]
    page.table(columns, cells)
    first = max(width_of(clean(shown(row[0]))) for row in cells) if columns[0].right or columns[0].whole else 0
    assert max(map(width_of, page.lines)) <= max(80, first)
    assert not any(re.search(r"[\x00-\x1f\x7f-\x9f]", line) for line in page.lines)


@given(st.text(), st.integers(1, 80))
def test_a_long_line_goes_on_below_and_no_word_is_broken(text: str, width: int) -> None:
    made = wrapped(clean(text), width, "  ")
    words = [[word for word in line.split(" ") if word] for line in made]
    assert [word for line in words for word in line] == [word for word in clean(text).split(" ") if word]
    assert all(width_of(line) <= width or len(words[i]) <= 1 for i, line in enumerate(made))


def test_what_the_next_command_needs_is_whole_also_where_there_is_little_room() -> None:
    name, uuid = "backup-20260301T100000000Z-reinitialise_table-1f0c9a7e", "84f0f3c9-b1a0-4a6d-8f6c-5e1d2b7a9f30"
    page = Page(io.StringIO(), width=80)
    page.table(
        [Column("BACKUP", whole=True), Column("KEPT UNTIL", whole=True), Column("BEFORE")], [[name, "x" * 17, "y"]]
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
    page = Page(io.StringIO(), width=39)
    page.table([Column("A", whole=True), Column("B"), Column("C", whole=True)], [["a" * 10, "b" * 20, "c" * 20]])
    assert page.lines[1] == f"{'a' * 10}  {'b' * 20}"


@given(st.text(max_size=80), st.integers(1, 40), st.booleans())
def test_a_cut_text_takes_the_room_it_has_and_no_more(text: str, width: int, middle: bool) -> None:
    made = cut(clean(text), width, middle=middle)
    assert width_of(made) <= width
    assert (made == clean(text)) == (width_of(clean(text)) <= width)
    assert width_of(pad(made, width)) == width


def test_two_hundred_tables_have_a_line_each_of_eighty_columns_and_names_keep_both_ends() -> None:
    page = Page(io.StringIO(), width=80)
    rows = [
        ["default", f"customer_addresses_of_the_european_branch_since_2019_{i:03}", i, 10**6 * i] for i in range(200)
    ]
    page.table(
        [Column("NAMESPACE", name=True), Column("TABLE", name=True), Column("FILES", True), Column("B", True)], rows
    )
    lines = printed(page)
    assert len(lines) == 201
    assert {len(line) for line in lines} == {80}
    assert [line.split()[1][-3:] for line in lines[1:]] == [f"{i:03}" for i in range(200)]


def test_columns_stand_under_their_titles_numbers_to_the_right() -> None:
    page = Page(io.StringIO())
    page.table(
        [Column("NAME"), Column("ROWS", right=True), Column("NOTE")], [["a", 5, "x"], ["long name", 12345, None]]
    )
    assert printed(page) == ["NAME        ROWS  NOTE", "a              5  x", "long name  12345  -"]


def test_wide_and_combining_characters_are_counted_as_they_are_shown() -> None:
    page = Page(io.StringIO())
    page.table([Column("A"), Column("B")], [["日本", "x"], ["e\u0301", "y"], ["four", "z"]])
    assert printed(page) == ["A     B", "日本  x", "e\u0301     y", "four  z"]


def test_what_steers_a_terminal_is_spelt_out() -> None:
    assert clean("a\nb\t\x1b[31mred\u202e\x85") == "a\\nb\\t\\x1b[31mred\\u202e\\x85"


def test_columns_that_do_not_fit_are_named_below() -> None:
    page = Page(io.StringIO(), width=20)
    page.table([Column(f"COLUMN{i}") for i in range(4)], [["x" * 30] * 4])
    assert printed(page) == [
        "COLUMN0    COLUMN1",
        "xxxxxxxx~  xxxxxxxx~",
        "2 more columns",
        "  (--json has all):",
        "  COLUMN2, COLUMN3",
    ]


def test_where_there_is_no_terminal_nothing_is_cut_and_nothing_is_bold() -> None:
    page = page_for(io.StringIO(), {"TERM": "xterm"})
    page.table([Column("NAME")], [["x" * 500]])
    assert printed(page) == ["NAME", "x" * 500]


@pytest.mark.parametrize(
    ("environ", "bold"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({}, False)],
)
def test_letters_are_bold_in_a_terminal_that_has_them_and_wants_them(environ: dict[str, str], bold: bool) -> None:
    page = page_for(Terminal(), {**environ, "PAGER": "cat"})
    page.table([Column("NAME")], [])
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
    page = Page(ascii_only, width=6)
    page.table([Column("A")], [["too long"]])
    page.finish()
    assert ascii_only.buffer.getvalue() == b"A\ntoo l~\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (10**6, "977 KiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_are_told_as_people_read_them(bytes_: int | None, said: str) -> None:
    assert size(bytes_) == said


def test_times_and_counts_are_told_as_people_read_them() -> None:
    assert moment("2026-03-01T10:00:59.123456Z") == "2026-03-01 10:00Z"
    assert moment("2026-03-01T10:00:00+01:00") == "2026-03-01 09:00Z"
    assert (moment(None), moment("soon")) == ("-", "soon")
    assert (count(1, "file"), count(0, "file"), count(1234, "file")) == ("1 file", "0 files", "1,234 files")


def test_progress_is_one_line_that_is_written_over_and_leaves_nothing_behind() -> None:
    out, clock = Terminal(), iter([0.0, 3.0, 4.0])
    progress = Progress(out, "compact shop.orders", 80, lambda: next(clock))
    progress({"state": "queued", "progress": {}})
    figures = {"phase": "rewriting", "bytes_done": 50, "bytes_total": 200, "files_done": 3, "files_total": 12}
    progress({"state": "running", "progress": figures})
    progress.end()
    first, second, last = out.getvalue().split("\r")[1:]
    assert first == "compact shop.orders: queued 3 s\033[K"
    assert second == "compact shop.orders [#####---------------]  25% 4 s, 3/12 files\033[K"
    assert last == "\033[K"


def test_without_a_terminal_no_progress_is_shown() -> None:
    out = io.StringIO()
    progress = Progress(out, "x", None)
    progress({"state": "running"})
    progress.end()
    assert out.getvalue() == ""
