"""Addresses of data: what may be a name, and that no two names meet on disk."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.model.names import TableName, check_name, decode, decode_namespace, encode, namespace_identifier

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", fullmatch=True)
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


@given(NAMES)
def test_a_name_comes_back_from_its_spelling_on_disk(name: str) -> None:
    assert decode(encode(name)) == name


@given(NAMES)
def test_a_spelling_holds_nothing_that_a_catalog_or_file_system_changes(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", encode(name))


@given(NAMES, NAMES)
def test_two_names_never_share_a_spelling(one: str, other: str) -> None:
    assert (one == other) == (encode(one) == encode(other))


@given(ADDRESSES, ADDRESSES)
def test_two_addresses_never_share_an_identifier(one: TableName, other: TableName) -> None:
    assert (one == other) == (one.identifier == other.identifier)


@given(st.text(alphabet="a_5f-", min_size=1, max_size=6), st.text(alphabet="a_5f-", min_size=1, max_size=6))
def test_the_joint_between_tenant_and_namespace_is_found_again(tenant: str, namespace: str) -> None:
    left, joint, right = namespace_identifier(tenant, namespace).partition("__")
    assert (left, joint, right) == (encode(tenant), "__", encode(namespace))


@given(NAMES, NAMES)
def test_a_tenant_and_a_namespace_come_back_from_their_identifier(tenant: str, namespace: str) -> None:
    assert decode_namespace(namespace_identifier(tenant, namespace)) == (tenant, namespace)


@pytest.mark.parametrize("identifier", ["", "a", "a__", "__a", "a_b__c", "A__b", "_5f__a", "a____b", "warehouse.db"])
def test_an_identifier_that_is_not_ours_stands_for_nothing(identifier: str) -> None:
    assert decode_namespace(identifier) is None


def test_names_that_look_alike_stay_apart() -> None:
    alike = ["test-tenant", "test_tenant", "Test-Tenant", "test_2dtenant", "TEST-TENANT"]
    assert len({encode(name) for name in alike}) == len(alike)
    assert encode("test-tenant") == "test_2dtenant"


@given(st.text(max_size=12))
def test_a_spelling_that_firn_did_not_write_stands_for_no_name(text: str) -> None:
    name = decode(text)
    assert name is None or encode(name) == text


@pytest.mark.parametrize("foreign", ["", "Upper", "a_b", "a_61", "_5fa", "a__b", "a_2", "a_2D", "a.b", "é"])
def test_such_spellings_are_left_out(foreign: str) -> None:
    assert decode(foreign) is None
