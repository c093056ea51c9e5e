"""Split points: read from whatever form they come in, in order, and found again in a table's properties."""

import base64
import re
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.sql.ranges import number
from service.engine.sql.sql import Parameters
from service.errors import InvalidRequest
from service.model.schema.definition import parse_schema
from service.model.schema.ranges import RANGES_PROPERTY, Ranges, parse_split_points, ranges_of
from service.model.schema.types import Primitive

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
    if len(points) > 1 or "\n" not in points[0]:
        assert parse_split_points("\n".join(encoded), TEXTS, encoded=True) == as_list
    assert ranges_of({RANGES_PROPERTY: as_list.text}) == as_list
    if len(points) > 1:
        with pytest.raises(InvalidRequest):
            parse_split_points([*points[1:], points[0]], TEXTS, encoded=False)


@pytest.mark.parametrize("text", ["100\n200\n\n", "\n100\n200", "100\r\n\r\n 200 \r\n", "\t100\n  \n200"])
def test_blank_lines_and_spaces_are_no_points(text: str) -> None:
    assert parse_split_points(text, NUMBERS, encoded=False).points == (100, 200)
    encoded = re.sub("[0-9]+", lambda found: in_base64(found[0]), text)
    assert parse_split_points(encoded, NUMBERS, encoded=True).points == (100, 200)
    assert parse_split_points(in_base64(text), NUMBERS, encoded=True).points == (100, 200)
    assert parse_split_points(text.replace(" ", "").replace("\t", ""), TEXTS, encoded=False).points == ("100", "200")


def test_spaces_belong_to_a_key_that_is_text() -> None:
    assert parse_split_points(" a\n\nb \n", TEXTS, encoded=False).points == (" a", "b ")


def test_each_line_can_be_base64_or_the_text_as_a_whole() -> None:
    points = tuple(f"point {i:03}" for i in range(30))
    text = "\n".join(points)
    for sent in (text, text + "\n"):
        assert parse_split_points(in_base64(sent), TEXTS, encoded=True).points == points
        assert parse_split_points(base64.encodebytes(sent.encode()).decode(), TEXTS, encoded=True).points == points
    assert parse_split_points("aApwCg==", TEXTS, encoded=True).points == ("h", "p")


def test_a_key_that_holds_line_ends_is_one_of_a_list() -> None:
    assert parse_split_points(["aApwCg=="], TEXTS, encoded=True).points == ("h\np\n",)
    assert parse_split_points("aAo=\ncAo=", TEXTS, encoded=True).points == ("h\n", "p\n")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_text_without_a_point_is_refused(text: str) -> None:
    for encoded in (False, True):
        with pytest.raises(InvalidRequest, match="there are 0 points"):
            parse_split_points(text, TEXTS, encoded=encoded)


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


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
