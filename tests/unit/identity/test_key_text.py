"""The text of an API key: recognisable, checked, and never stored."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.identity.key_text import KeyText


def test_a_key_is_recognised_by_its_form_and_has_a_secret_of_its_own() -> None:
    one, other = KeyText.new(), KeyText.new()
    assert re.fullmatch(r"firn_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}", str(one))
    assert (one.id, one.secret) != (other.id, other.secret)
    assert one.id != other.id


def test_a_key_that_is_read_is_the_one_that_was_written() -> None:
    key = KeyText.new()
    assert KeyText.read(str(key)) == key
    assert KeyText("4fW9kQ0aBz", "1" * 43).hash == KeyText("4fW9kQ0aBz", "1" * 43).hash


@given(st.data())
def test_a_wrong_character_is_noticed_without_asking_the_ledger(data: st.DataObject) -> None:
    text = str(KeyText("4fW9kQ0aBz", "7" * 43))
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda c: c != text[at]))
    assert KeyText.read(text[:at] + other + text[at + 1 :]) is None
    assert KeyText.read(text[:at]) is None


@pytest.mark.parametrize("text", ["", "firn_", "eyJhbGciOiJub25lIn0.e30.", "firn_" + "é" * 60, "\0"])
def test_other_texts_are_no_keys(text: str) -> None:
    assert KeyText.read(text) is None


def test_the_hash_of_a_key_fits_only_its_own_id_and_does_not_show_it() -> None:
    key = KeyText.new()
    assert key.matches(key.hash)
    assert not KeyText(key.id, KeyText.new().secret).matches(key.hash)
    assert not KeyText(KeyText.new().id, key.secret).matches(key.hash)
    assert key.secret not in key.hash
    assert key.secret not in repr(key)
