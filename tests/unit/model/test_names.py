"""Addresses of data: what may be a name, and that no two names meet on disk."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.model.names import (
    TableName,
    check_name,
    decode,
    decode_namespace,
    dropped_table_name,
    encode,
    namespace_identifier,
)

LEGAL = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
# Any name, and short ones of few characters, among which the likes are close to each other.
NAMES = st.from_regex(LEGAL, fullmatch=True) | st.from_regex(r"[aA0f][aA0f_-]{0,4}", fullmatch=True)
ADDRESSES = st.builds(TableName, NAMES, NAMES, NAMES)


@given(NAMES)
def test_every_name_is_accepted_as_it_is(name: str) -> None:
    assert check_name(name, "table") == name


@pytest.mark.parametrize(
    "name",
    ["", "_a", "-a", "a b", "a.b", "a/b", "..", "a\n", "\na", "é", "日", "a\x00", "a" * 64, "a`b", "٣", "a'b", "ſ"],
)
def test_what_is_no_name_is_refused_and_the_field_named(name: str) -> None:
    with pytest.raises(InvalidRequest, match="tenant_id") as refused:
        check_name(name, "tenant_id")
    assert refused.value.field == "tenant_id"
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("name", ["orders", "order_items", "a", "1", "2024_05_01", "default", "table", "a_5f", "x61"])
def test_an_ordinary_name_is_its_own_encoding(name: str) -> None:
    assert encode(name) == decode(name) == name
    assert TableName("acme", name, name).identifier == (f"acme__{name}", name)
    assert namespace_identifier(name, "shop") == f"{name}__shop"


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("Order-Items", "order_items__61"), ("a__b", "a__b__0"), ("a_", "a___0"), ("a-", "a___2"), ("A", "a__1")],
)
def test_another_name_is_folded_and_says_how(name: str, encoded: str) -> None:
    assert (encode(name), decode(encoded)) == (encoded, name)


def test_a_namespace_says_where_its_tenant_ends() -> None:
    assert namespace_identifier("Acme-1", "shop") == "acme_1__shop__446"
    assert namespace_identifier("a_", "b") != namespace_identifier("a", "_b")  # no request can name the latter
    assert namespace_identifier("a_", "b") == "a___b__2"
    assert namespace_identifier("a__b", "c") == "a__b__c__4" != namespace_identifier("a", "b__c") == "a__b__c__1"


def test_firns_own_namespaces_are_no_namespaces_of_a_tenant() -> None:
    assert dropped_table_name("0A-1b").identifier == ("_firn__dropped", "0a1b")
    assert decode_namespace("_firn__dropped") is None


@given(NAMES)
def test_a_name_comes_back_from_its_encoding(name: str) -> None:
    assert decode(encode(name)) == name


@given(NAMES, NAMES)
def test_an_encoding_holds_nothing_that_a_catalog_or_file_system_changes(one: str, other: str) -> None:
    """Glue takes small letters, digits and `_`, at most 255 of them; a table's folder has 13 characters more."""
    for encoded, longest in ((encode(one), 255 - 13), (namespace_identifier(one, other), 255)):
        assert re.fullmatch(r"[a-z0-9][a-z0-9_]*", encoded)
        assert len(encoded) <= longest


@pytest.mark.parametrize("character", "aA0")
def test_the_longest_names_fit_into_glue(character: str) -> None:
    name = character + "-" * 62
    assert len(encode(name)) == 63 + 2 + 16
    assert len(namespace_identifier(name, name)) <= 255
    assert decode_namespace(namespace_identifier(name, name)) == (name, name)


@given(NAMES, NAMES)
def test_two_names_never_share_an_encoding(one: str, other: str) -> None:
    assert (one == other) == (encode(one) == encode(other))


@given(ADDRESSES, ADDRESSES)
def test_two_addresses_never_share_an_identifier(one: TableName, other: TableName) -> None:
    assert (one == other) == (one.identifier == other.identifier)


def test_no_two_of_all_short_names_share_an_encoding() -> None:
    names = ["".join(n) for size in (1, 2, 3) for n in product("aA0_-", repeat=size) if n[0] not in "_-"]
    assert len({encode(name) for name in names}) == len(names)
    assert len({namespace_identifier(*pair) for pair in product(names, names)}) == len(names) ** 2


@given(NAMES, NAMES)
def test_a_tenant_and_a_namespace_come_back_from_their_identifier(tenant: str, namespace: str) -> None:
    assert decode_namespace(namespace_identifier(tenant, namespace)) == (tenant, namespace)


@given(NAMES)
def test_the_encoding_of_a_name_is_no_encoding_of_another_that_is_called_so(name: str) -> None:
    if encode(name) != name and len(encode(name)) <= 63:
        assert encode(encode(name)) != encode(name)


FOREIGN_NAMESPACES = [
    *("", "a", "a__", "__a", "A__b", "_firn__a", "a____b", "warehouse.db", "a__b__", "a__b__x", "a__b__1__0"),
    *("a__b__1", "a__b__01", "a__b__0", "a__b__ffffffffff", "a__b__-1", "é__b"),
]


@pytest.mark.parametrize("identifier", FOREIGN_NAMESPACES)
def test_an_identifier_that_is_not_ours_stands_for_nothing(identifier: str) -> None:
    assert decode_namespace(identifier) is None


@given(st.text(max_size=12) | st.from_regex(r"[a_0]{1,4}__[0-9a-f]{1,3}", fullmatch=True))
def test_an_encoding_that_firn_did_not_write_stands_for_no_name(text: str) -> None:
    name, pair = decode(text), decode_namespace(text)
    assert name is None or encode(name) == text
    assert pair is None or namespace_identifier(*pair) == text


@pytest.mark.parametrize("foreign", ["", "Upper", "_a", "a__", "a__b", "a__0", "a__2", "a__01", "a_b__g", "a.b", "é"])
def test_such_encodings_are_left_out(foreign: str) -> None:
    assert decode(foreign) is None
