"""How many rows one response has room for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.jobs.select import Selected
from service.errors import ResponseTooLarge
from service.model import wire
from service.model.call import Call
from service.queries.fitting import _REST, cut, fitting

ROWS = st.lists(
    st.dictionaries(st.text(max_size=8), st.text(max_size=60) | st.integers(-(2**63), 2**63 - 1), max_size=4),
    max_size=900,
)


def call_with(rows_bytes: int, *, event: bool = False) -> Call:
    return Call(most_bytes=rows_bytes + _REST, is_inside_json=event)


def size(call: Call, rows: list[Any]) -> int:
    rendered = wire.render(rows)
    return len(wire.render(rendered.decode())) if call.is_inside_json else len(rendered)


@given(ROWS, st.integers(200, 30_000), st.booleans())
def test_as_many_rows_fit_as_the_response_has_room_for_and_about_no_fewer(
    rows: list[Any], most: int, event: bool
) -> None:
    call = call_with(most, event=event)
    try:
        count = fitting(call, rows)
    except ResponseTooLarge:
        assert size(call, rows[:1]) > most - 10
        return
    # The last line end is not a part of the rows.
    assert size(call, rows[:count]) <= most + 10
    if count < len(rows):
        # What separates the parts that are measured together is counted for each of them.
        assert size(call, rows[: count + 1]) > most - 8 * (count // 256 + 3)


def test_all_rows_fit_without_a_limit_and_none_is_cut_in_two() -> None:
    rows = [{"text": "x" * 1000}] * 10
    assert fitting(Call(), rows) == 10
    assert fitting(call_with(3500), rows) == 3


def test_a_row_that_is_too_large_alone_is_refused_with_the_way_out() -> None:
    with pytest.raises(ResponseTooLarge, match=r"text/csv or an Arrow stream"):
        fitting(call_with(100), [{"text": "x" * 200}])


def test_inside_json_each_quote_and_backslash_counts_twice() -> None:
    rows = [{"t": '"\\'}] * 100
    inside, plain = call_with(1000, event=True), call_with(1000)
    assert fitting(inside, rows) < fitting(plain, rows)


def test_rows_that_no_next_page_could_continue_are_refused_and_others_cut() -> None:
    call, rows = call_with(3500), [{"text": "x" * 1000}] * 10
    with pytest.raises(ResponseTooLarge, match="no order in which a next page could continue"):
        cut(call, Selected(rows))
    page = cut(call, Selected(rows, in_total_order=True))
    assert (len(page.rows), page.has_more) == (3, True)
    whole = Selected(rows)
    assert cut(Call(), whole) is whole
