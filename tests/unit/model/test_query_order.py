"""The total order of a query, and the files that hold a page of a table's rows."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model.names import PLACE_COLUMNS
from service.model.query.items import AggregationItem, JoinItem, ProjectionItem, SortItem
from service.model.query.model import Query, TableSource
from service.model.query.order import page_of_files, total_order
from service.model.query.plan import QueryParts, plan_query
from service.model.schema.definition import parse_schema

SCHEMA = parse_schema({"fields": {"n": {"type": "long"}, "x": {"type": "double"}, "d": {"type": "decimal(9,2)"}}})
HERE, THERE = TableSource("lake.t", "t", SCHEMA), TableSource("lake.u", "u", SCHEMA)


def planned(sort: tuple[str, ...] = (), **parts: Any) -> Query:
    joined = [THERE] if "joins" in parts else []
    return plan_query(QueryParts(sort=[SortItem(field=name) for name in sort], **parts), HERE, joined)


def grouped(op: Any, field: str, **parts: Any) -> Query:
    aggregations = [AggregationItem(op=op, field=field, alias="a")]
    return planned(group_by=[ProjectionItem(field="n")], aggregations=aggregations, **parts)


def names(query: Query | None) -> list[Any]:
    assert query is not None
    return [by if isinstance(by, int) else (by.column.qualifier, by.column.name) for by in (s.by for s in query.sorts)]


def test_rows_are_told_apart_by_their_places_in_every_table() -> None:
    places = [("t", name) for name in PLACE_COLUMNS]
    assert names(total_order(planned())) == places
    assert names(total_order(planned(("n",)))) == [0, *places]
    join = planned(joins=[JoinItem(table="u", on="n")])
    assert names(total_order(join)) == [*places, *(("u", name) for name in PLACE_COLUMNS)]


def test_groups_are_told_apart_by_what_they_are_grouped_by_and_distinct_rows_by_all_they_have() -> None:
    assert names(total_order(grouped("count", "x", sort=("a",)))) == [1, (None, "g0")]
    assert names(total_order(planned(("x",), distinct=True))) == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("op", "field", "exact"),
    [
        *(("sum", field, exact) for field, exact in (("n", True), ("d", True), ("x", False))),
        *(("avg", field, exact) for field, exact in (("n", True), ("d", True), ("x", False))),
        ("stddev", "n", False),
        ("variance", "d", False),
        *((op, "x", True) for op in ("min", "max", "count", "count_distinct", "median")),
    ],
)
def test_an_order_by_sums_of_fractions_is_none(op: str, field: str, exact: bool) -> None:
    assert (total_order(grouped(op, field, sort=("a",))) is not None) == exact
    assert (total_order(grouped(op, field, having={"a": {"gt": 1}})) is not None) == exact
    assert total_order(grouped(op, field, sort=("n",))) is not None, "the sum is only shown"
    assert (total_order(grouped(op, field, distinct=True)) is not None) == exact


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 5), max_size=6), st.integers(0, 30), st.integers(1, 8))
def test_the_files_of_a_page_hold_it_and_the_row_after_it_and_none_is_read_in_vain(
    rows: dict[str, int], offset: int, limit: int
) -> None:
    every = [(path, i) for path in sorted(rows) for i in range(rows[path])]
    page = page_of_files(rows, offset, limit)
    read = [(path, i) for path in page.paths for i in range(rows[path])]
    wanted = every[offset : offset + limit + 1]
    assert read[page.skipped : page.skipped + limit + 1] == wanted
    assert {path for path in page.paths if rows[path]} == {path for path, _ in wanted}
