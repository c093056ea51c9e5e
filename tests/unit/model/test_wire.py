"""JSON in and out: numbers come in without floats and leave without loss; what is not JSON is refused."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BodyTooLarge, InvalidRequest
from service.model import wire

INT64 = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.none() | st.booleans() | INT64 | st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner)
)


@given(VALUES)
def test_what_is_rendered_is_read_back_equal(value: Any) -> None:
    assert wire.parse(wire.render(value)) == value


@given(VALUES)
def test_text_and_its_bytes_read_alike(value: Any) -> None:
    text = json.dumps(value)
    assert wire.parse(text) == wire.parse(text.encode()) == value


@given(INT64)
def test_an_int64_is_a_number_to_its_last_digit(number: int) -> None:
    assert wire.render(number) == f"{number}\n".encode()


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9))
def test_a_number_with_a_point_keeps_every_digit(number: Decimal) -> None:
    read = wire.parse(format(number, "f"))
    assert (type(read), read) == (Decimal, number)


@pytest.mark.parametrize("text", ["1E+2", "0.1", "-0.0", "1e-30", "123456789012345678901234567890.5"])
def test_a_number_with_a_point_is_never_a_float(text: str) -> None:
    read = wire.parse(text)
    assert type(read) is Decimal
    assert read == Decimal(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+2"), '"100"'),
        (Decimal("0.10"), '"0.10"'),
        (datetime(2024, 1, 31, 10, 0, 0, 5, tzinfo=UTC), '"2024-01-31T10:00:00.000005Z"'),
        (datetime(2024, 1, 31, 10), '"2024-01-31T10:00:00"'),
        (date(1, 1, 1), '"0001-01-01"'),
        (b"\x00\xff", json.dumps(base64.b64encode(b"\x00\xff").decode())),
        ("\x00\u202e😀", '"\\u0000\u202e😀"'),
    ],
)
def test_each_kind_of_value_has_one_form(value: Any, text: str) -> None:
    assert wire.render(value).decode() == text + "\n"


def test_what_has_no_form_is_a_defect_and_not_a_guess() -> None:
    with pytest.raises(TypeError):
        wire.render({"a": object()})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8: byte 7"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8: byte 7"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"9" * 5000, "a number that is too long"),
        (b"1e9999999999999999999", "a number that is too long"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(body: bytes, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wire.parse(body)
    assert says in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (r'{"a": ["x", {"b": "\ud83d"}]}', "a[1].b"),
        (r'{"a": "\uDE00\uD83D"}', "a"),
        (r'{"\udfff": 1}', "(a key)"),
        (r'{"a": {"\ud800x": 1}}', "a.(a key)"),
        (r'"\ud800"', None),
        ('{"a": "\ud800"}', None),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_where_it_stands(body: str, field: str | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wire.parse(body)
    assert refused.value.field == field


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert wire.parse(r'{"\ud83d\ude00": "\uD83D\uDE00"}') == {"😀": "😀"}


def test_replacing_surrogates_leaves_everything_else() -> None:
    assert wire.replace_surrogates({"a\ud800": ["\udfff", 1, None, "😀"]}) == {"a?": ["?", 1, None, "😀"]}


@pytest.mark.parametrize("value", ["0", "[]", "{}", '""'])
def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_VALUES", 100_000)
    monkeypatch.setattr(wire.json, "loads", lambda *_, **__: None)
    wire.parse(f"[{','.join([value] * 40_000)}]")
    with pytest.raises(BodyTooLarge, match=r"more than 100,000 values.*/records"):
        wire.parse(f"[{','.join([value] * 100_001)}]")
