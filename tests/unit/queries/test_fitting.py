"""How many rows one response has room for."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.jobs.select import Selected
from service.engine.session.rows import json_rows
from service.errors import ResponseTooLarge
from service.model import wire
from service.model.call import ResponseRoom
from service.queries.fitting import _REST, all_fit, cut, fitting

ROWS = st.lists(
    st.dictionaries(st.text(max_size=8), st.text(max_size=60) | st.integers(-(2**63), 2**63 - 1), max_size=4),
    max_size=900,
)


def room_with(rows_bytes: int, *, event: bool = False) -> ResponseRoom:
    return ResponseRoom(rows_bytes + _REST, event)


def size(room: ResponseRoom, rows: list[Any]) -> int:
    rendered = wire.render(rows)
    return len(wire.render(rendered.decode())) if room.is_inside_json else len(rendered)


@given(ROWS, st.integers(200, 30_000), st.booleans())
def test_as_many_rows_fit_as_the_response_has_room_for_and_about_no_fewer(
    rows: list[Any], most: int, event: bool
) -> None:
    room = room_with(most, event=event)
    try:
        count = fitting(room, rows)
    except ResponseTooLarge:
        assert size(room, rows[:1]) > most - 10
        return
    # The last line end is not a part of the rows.
    assert size(room, rows[:count]) <= most + 10
    if count < len(rows):
        # What separates the parts that are measured together is counted for each of them.
        assert size(room, rows[: count + 1]) > most - 8 * (count // 256 + 3)


def test_all_rows_fit_without_a_limit_and_none_is_cut_in_two() -> None:
    rows = [{"text": "x" * 1000}] * 10
    assert fitting(ResponseRoom(), rows) == 10
    assert fitting(room_with(3500), rows) == 3


def test_a_row_that_is_too_large_alone_is_refused_with_the_way_out() -> None:
    with pytest.raises(ResponseTooLarge, match=r"text/csv or an Arrow stream"):
        fitting(room_with(100), [{"text": "x" * 200}])


def test_inside_json_each_quote_and_backslash_counts_twice() -> None:
    rows = [{"t": '"\\'}] * 100
    inside, plain = room_with(1000, event=True), room_with(1000)
    assert fitting(inside, rows) < fitting(plain, rows)


def table(rows: list[Any]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def test_rows_that_no_next_page_could_continue_are_refused_and_others_cut() -> None:
    room, rows = room_with(3500), table([{"text": "x" * 1000}] * 10)
    with pytest.raises(ResponseTooLarge, match="no order in which a next page could continue"):
        cut(room, Selected(rows))
    page = cut(room, Selected(rows, in_total_order=True))
    assert (len(page.rows), page.has_more) == (3, True)
    whole = Selected(rows)
    assert cut(ResponseRoom(), whole) is whole


VALUES = [
    *(st.text(max_size=40), st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.binary(max_size=30)),
    *(st.decimals(-(10**20), 10**20, places=6), st.datetimes(), st.dates(), st.lists(st.booleans(), max_size=20)),
]


@given(st.sampled_from(VALUES), st.integers(0, 3000), st.booleans(), st.data())
def test_what_fits_by_the_bytes_in_memory_fits_by_those_of_the_response(
    values: st.SearchStrategy[Any], most: int, event: bool, data: st.DataObject
) -> None:
    room = room_with(most, event=event)
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=30)))
    rows = pa.table({"a name": column, '"\\': pa.nulls(len(column)), "\x01" * 400: pa.nulls(len(column))})
    try:
        expected = fitting(room, json_rows(rows)) == len(rows)
    except ResponseTooLarge:
        expected = False
    try:
        assert all_fit(room, rows) == expected
    except ResponseTooLarge:
        assert not expected
