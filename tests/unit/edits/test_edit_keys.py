"""What identifies the rows of an UPSERT or a DEDUPLICATE."""

import pytest

from service.edits.upsert import keys_of
from service.errors import InvalidRequest, UnknownField
from service.schema import parse_schema

FIELDS = {"id": {"type": "long", "required": True}, "a": {"type": "string"}}
KEYED, KEYLESS = (parse_schema({"fields": FIELDS, **more}) for more in ({"primary_key": ["id"]}, {}))


def test_keys_are_those_asked_for_or_the_primary_key() -> None:
    assert keys_of(KEYED, None) == ("id",)
    assert keys_of(KEYED, ["a"]) == keys_of(KEYLESS, ["a"]) == ("a",)


def test_an_empty_list_is_refused_as_that_and_not_as_a_missing_one() -> None:
    for schema, keys, said in ((KEYED, [], "is empty"), (KEYLESS, [], "is empty"), (KEYLESS, None, "is missing")):
        with pytest.raises(InvalidRequest, match=f"^key_cols {said}") as refused:
            keys_of(schema, keys)
        assert refused.value.field == "key_cols"


def test_a_field_of_a_struct_is_refused_as_that_and_not_as_unknown() -> None:
    home = {"type": "struct", "fields": {"city": {"type": "string"}}}
    schema = parse_schema({"fields": {**FIELDS, "home": home}})
    with pytest.raises(InvalidRequest, match="lies inside a column") as refused:
        keys_of(schema, ["id", "home.city"])
    assert refused.value.field == "key_cols[1]"
    with pytest.raises(UnknownField, match=r"key_cols\[0\]: 'home.town' is not a column"):
        keys_of(schema, ["home.town"])
