"""Split points: read from whatever form they come in, in order, and found again in a table's properties."""

import base64
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.ranges import number
from service.engine.sql import Parameters
from service.errors import InvalidRequest
from service.ranges import RANGES, Ranges, parse_split_points, ranges_of
from service.schema import Primitive, parse_schema

TEXTS = parse_schema({"fields": {"k": {"type": "string"}, "n": {"type": "long"}}, "primary_key": ["k", "n"]})
NUMBERS = parse_schema({"fields": {"k": {"type": "long"}}, "primary_key": ["k"]})
words = st.lists(st.text(min_size=1, alphabet=st.characters(codec="utf-8")), min_size=1, max_size=40, unique=True)


@given(words)
def test_text_points_are_in_the_order_of_their_bytes_in_every_form(points: list[str]) -> None:
    points = sorted(points, key=str.encode)
    encoded = [base64.b64encode(point.encode()).decode() for point in points]
    as_list = parse_split_points(points, TEXTS, encoded=False)
    assert as_list == Ranges("k", Primitive("string"), tuple(points))
    assert parse_split_points(encoded, TEXTS, encoded=True) == as_list
    assert parse_split_points("\n".join(encoded), TEXTS, encoded=True) == as_list
    assert ranges_of({RANGES: as_list.text}) == as_list
    if len(points) > 1:
        with pytest.raises(InvalidRequest):
            parse_split_points([*points[1:], points[0]], TEXTS, encoded=False)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40, unique=True))
def test_numbers_may_come_as_text_and_are_in_the_order_of_numbers(points: list[int]) -> None:
    points = sorted(points)
    found = parse_split_points(points, NUMBERS, encoded=False)
    assert parse_split_points("\n".join(map(str, points)), NUMBERS, encoded=False) == found
    assert found.values == tuple(points)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40, unique=True), st.integers(-1, 101))
def test_the_expression_finds_the_range_in_which_a_key_is(points: list[int], key: int) -> None:
    points = sorted(points)
    parameters = Parameters()
    text = number(Ranges("k", Primitive("long"), tuple(points)), parameters)
    assert evaluated(text, parameters, key) == bisect_right(points, key)


def evaluated(text: str, parameters: Parameters, key: int) -> int:
    """What Spark makes of such an expression."""
    text = text.removeprefix("CAST(").removesuffix(" AS INT)")
    while text.startswith("IF("):
        condition, _, rest = text.removeprefix("IF(").partition(", ")
        below = key < int(parameters.values[condition.rpartition(":")[2]])
        depth, place = 0, 0
        while rest[place] != "," or depth:
            depth += (rest[place] == "(") - (rest[place] == ")")
            place += 1
        text = rest[:place] if below else rest[place + 2 : -1]
    return int(text)


def test_a_range_lies_between_its_points() -> None:
    ranges = Ranges("k", Primitive("string"), ("g", "n"))
    assert [ranges.between(n) for n in range(4)] == [(None, "g"), ("g", "n"), ("n", None), (None, None)]
