"""LIMIT and OFFSET inside each other, held by whoever reads the rows."""

from hypothesis import given
from hypothesis import strategies as st

from service.engine.sql.window import Window

windows = st.builds(Window, st.integers(0, 12), st.none() | st.integers(0, 12))
ROWS = list(range(30))


def held(window: Window, rows: list[int]) -> list[int]:
    rows = rows[window.offset :]
    return rows if window.limit is None else rows[: window.limit]


@given(windows, windows)
def test_a_window_of_a_window_leaves_what_one_after_the_other_leaves(outer: Window, inner: Window) -> None:
    assert held(outer.of(inner), ROWS) == held(outer, held(inner, ROWS))


def test_only_what_json_may_answer_too_is_small() -> None:
    assert Window(0, 100_000).is_small
    assert not Window(1, 100_000).is_small
    assert not Window(0, 100_001).is_small
    assert not Window(5).is_small
