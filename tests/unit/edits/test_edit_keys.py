"""What identifies the rows of an UPSERT or a DEDUPLICATE."""

import pytest

from service.errors import InvalidRequest, UnknownField
from service.model.schema.definition import parse_schema
from service.model.schema.key_columns import key_columns

FIELDS = {"id": {"type": "long", "required": True}, "a": {"type": "string"}}
KEYED, KEYLESS = (parse_schema({"fields": FIELDS, **more}) for more in ({"primary_key": ["id"]}, {}))


def test_keys_are_those_asked_for_or_the_primary_key() -> None:
    assert key_columns(KEYED, None) == ("id",)
    assert key_columns(KEYED, ["a"]) == key_columns(KEYLESS, ["a"]) == ("a",)


def test_an_empty_list_is_refused_as_that_and_not_as_a_missing_one() -> None:
    for schema, keys, message in (
        (KEYED, [], "the list is empty"),
        (KEYLESS, [], "the list is empty"),
        (KEYLESS, None, "it is missing"),
    ):
        with pytest.raises(InvalidRequest, match=f"^key_cols: {message}") as refused:
            key_columns(schema, keys)
        assert refused.value.field == "key_cols"


def test_a_field_of_a_struct_is_refused_as_that_and_not_as_unknown() -> None:
    home = {"type": "struct", "fields": {"city": {"type": "string"}}}
    schema = parse_schema({"fields": {**FIELDS, "home": home}})
    with pytest.raises(InvalidRequest, match="is inside a column") as refused:
        key_columns(schema, ["id", "home.city"])
    assert refused.value.field == "key_cols[1]"
    with pytest.raises(UnknownField, match=r"key_cols\[0\]: 'home.town' is not a column"):
        key_columns(schema, ["home.town"])
