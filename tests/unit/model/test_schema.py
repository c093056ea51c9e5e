from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidFilter, InvalidSchema, UnknownField
from service.model.schema.definition import describe_schema, parse_schema
from service.model.schema.types import Array, DecimalType, Field, Map, Primitive, Struct, fold_case, resolve_field
from tests.strategies import schemas

LONG, STRING = Primitive("long"), Primitive("string")

ADDRESS = {
    "type": "struct",
    "required": True,
    "fields": {
        "city": {"type": "string", "required": True},
        "geo": {"type": "struct", "fields": {"x": {"type": "long"}}},
    },
}


def one(definition: Any) -> Any:
    return parse_schema({"fields": {"c": definition}}).fields[0]


def refused(value: Any) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(value)
    return caught.value


@given(st.data())
def test_a_described_schema_parses_to_itself(data: st.DataObject) -> None:
    schema = data.draw(schemas(keyed=data.draw(st.booleans())))
    assert parse_schema(describe_schema(schema)) == schema


def test_every_type_is_read_with_its_parts() -> None:
    assert one({"type": "decimal( 10 , 2 )"}) == Field("c", DecimalType(10, 2))
    assert one({"type": "array", "items": "long"}).type == Array(LONG, False)
    assert one({"type": "array", "items": {"type": "long", "required": True}}).type == Array(LONG, True)
    value = {"type": "array", "items": "string", "nullable": False}
    assert one({"type": "map", "key_type": "long", "value_type": value}).type == Map(LONG, Array(STRING), True)
    assert one({"type": "struct", "fields": {"x": {"type": "long"}}}).type == Struct((Field("x", LONG),))


@pytest.mark.parametrize(
    ("keys", "required"),
    [
        ({}, False),
        ({"required": True}, True),
        ({"required": False}, False),
        ({"nullable": False}, True),
        ({"nullable": True}, False),
        ({"required": True, "nullable": False}, True),
        ({"required": None, "nullable": None}, False),
    ],
)
def test_required_and_its_opposite_nullable_mean_the_same(keys: dict[str, Any], required: bool) -> None:
    assert one({"type": "long", **keys}).required is required


def test_primary_key_columns_become_required() -> None:
    schema = parse_schema({"fields": {"id": {"type": "long", "required": False}}, "primary_key": ["id"]})
    assert schema.primary_key == ("id",)
    assert schema.field("id").required


@pytest.mark.parametrize(
    ("definition", "where", "suggestion"),
    [
        ("long", "", None),
        (7, "", None),
        ({}, ".type", None),
        ({"type": ["long"]}, ".type", None),
        ({"type": "strin"}, ".type", "string"),
        ({"type": "STRING"}, ".type", "string"),
        ({"type": "bigint"}, ".type", "long"),
        ({"type": "decimal"}, ".type", "decimal(10,2)"),
        ({"type": "decimal(39,2)"}, ".type", None),
        ({"type": "decimal(0,0)"}, ".type", None),
        ({"type": "decimal(4,5)"}, ".type", None),
        ({"type": "decimal(4,-1)"}, ".type", "decimal(10,2)"),
        ({"type": "decimal(" + "9" * 9999 + ",1)"}, ".type", "decimal(10,2)"),
        ({"type": "long", "requird": True}, ".requird", "required"),
        ({"type": "long", "required": "yes"}, ".required", None),
        ({"type": "long", "required": True, "nullable": True}, ".nullable", None),
        ({"type": "long", "required": False, "nullable": False}, ".nullable", None),
        ({"type": "long", "items": "long"}, ".items", None),
        ({"type": "array", "items": "long", "fields": {}}, ".fields", None),
        ({"type": "array"}, ".items", None),
        ({"type": "array", "items": None}, ".items", None),
        ({"type": "array", "items": "lnog"}, ".items", "long"),
        ({"type": "array", "items": "array"}, ".items", None),
        ({"type": "array", "items": {"type": "lnog"}}, ".items.type", "long"),
        ({"type": "map", "value_type": "long"}, ".key_type", None),
        ({"type": "map", "key_type": "long"}, ".value_type", None),
        ({"type": "map", "key_type": "double", "value_type": "long"}, ".key_type", None),
        ({"type": "map", "key_type": {"type": "array", "items": "long"}, "value_type": "long"}, ".key_type", None),
        (
            {"type": "map", "key_type": {"type": "long", "nullable": True}, "value_type": "long"},
            ".key_type.nullable",
            None,
        ),
        ({"type": "map", "key_type": {"type": "long", "required": False}, "value_type": "long"}, ".key_type", None),
        ({"type": "struct"}, ".fields", None),
        ({"type": "struct", "fields": {}}, ".fields", None),
        ({"type": "struct", "fields": {"city": {"type": "sting"}}}, ".fields.city.type", "string"),
    ],
)
def test_a_bad_definition_is_refused_at_its_path(definition: Any, where: str, suggestion: str | None) -> None:
    error = refused({"fields": {"c": definition}})
    assert error.field == f"schema.fields.c{where}"
    assert error.suggestion == suggestion
    assert error.message.startswith("schema.fields.c")


@pytest.mark.parametrize("value", [None, [], "x", 5, True, {}, {"fields": None}, {"fields": []}, {"fields": {}}])
def test_a_schema_without_columns_is_refused(value: Any) -> None:
    assert refused(value).field in ("schema", "schema.fields")


def test_an_unknown_key_of_the_schema_is_refused_with_the_nearest() -> None:
    assert refused({"fields": {"a": {"type": "long"}}, "primary_keys": []}).suggestion == "primary_key"


@pytest.mark.parametrize("name", ["", "a.b", "a`b", "a\x00", "tab\t", "\ud800", "_firn_x", "_FIRN_x", "x" * 256])
def test_a_name_that_no_column_may_have_is_refused(name: str) -> None:
    bad = {name: {"type": "long"}}
    assert refused({"fields": bad}).field == "schema.fields"
    assert refused({"fields": {"s": {"type": "struct", "fields": bad}}}).field == "schema.fields.s.fields"


METADATA = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")


@pytest.mark.parametrize("name", [*METADATA, "_FILE", "_Row_Id"])
def test_a_column_is_not_called_as_one_of_icebergs_metadata_columns_but_a_field_of_a_struct_may_be(name: str) -> None:
    """A table with such a column is refused by every reader; `tests/integration/test_tables.py` shows it."""
    columns = {name: {"type": "long"}}
    refusal = refused({"fields": columns})
    assert refusal.field == "schema.fields"
    assert repr(name) in refusal.message
    assert parse_schema({"fields": {"s": {"type": "struct", "fields": columns}}}).names == ("s",)


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "日本",
        "1",
        "-",
        "_firn",
        "file",
        "file_path",
        "pos",
        "_change_type",
        "_metadata",
        "x" * 255,
        "'",
        "fields",
        "type",
    ],
)
def test_any_other_name_is_a_column(name: str) -> None:
    assert parse_schema({"fields": {name: {"type": "long"}}}).names == (name,)


@pytest.mark.parametrize(("one", "other"), [("Id", "iD"), ("ı", "I"), ("K", "\u212a"), ("Σ", "ς"), ("İ", "i")])
def test_names_that_spark_takes_for_one_are_refused_together(one: str, other: str) -> None:
    assert fold_case(one) == fold_case(other)
    assert refused({"fields": {one: {"type": "long"}, other: {"type": "long"}}}).field == f"schema.fields.{other}"


@pytest.mark.parametrize("key", ["id", ["nope"], ["s.city"], ["s"], ["f"], ["id", "id"], [5], {"id": 1}, [["id"]]])
def test_a_primary_key_names_plain_top_level_columns_once(key: Any) -> None:
    fields = {"id": {"type": "long"}, "f": {"type": "double"}, "s": ADDRESS}
    assert str(refused({"fields": fields, "primary_key": key}).field).startswith("schema.primary_key")


def test_nesting_ends_at_32_and_a_map_counts_twice() -> None:
    def lists(depth: int) -> dict[str, Any]:
        return {"type": "array", "items": lists(depth - 1)} if depth > 1 else {"type": "long"}

    def maps(depth: int) -> dict[str, Any]:
        return {"type": "map", "key_type": "long", "value_type": maps(depth - 2)} if depth > 2 else {"type": "long"}

    for nested in (lists, maps):
        parse_schema({"fields": {"c": nested(32)}})
        assert "32 deep" in refused({"fields": {"c": nested(34)}}).message
    assert "32 deep" in refused({"fields": {"c": lists(33)}}).message


def test_a_dotted_name_reaches_into_structs_and_is_required_only_if_its_parents_are() -> None:
    schema = parse_schema({"fields": {"address": ADDRESS, "id": {"type": "long"}}})
    assert resolve_field(schema, "address.city") == Field("address.city", STRING, True)
    assert resolve_field(schema, "address.geo.x") == Field("address.geo.x", LONG, False)
    assert resolve_field(schema, "id") == schema.field("id")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("idd", "id"),
        ("address.cty", "address.city"),
        ("id.x", "id"),
        ("address.geo.x.y", "address.geo.x"),
        ("zzzz", None),
        ("", None),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, suggestion: str | None) -> None:
    schema = parse_schema({"fields": {"address": ADDRESS, "id": {"type": "long"}}})
    with pytest.raises(UnknownField) as caught:
        resolve_field(schema, name)
    assert caught.value.suggestion == suggestion
    with pytest.raises(InvalidFilter) as raised:
        resolve_field(schema, name, error=InvalidFilter, path="filter.x")
    assert raised.value.field == "filter.x"


junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(Decimal("1.5")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["fields", "type", "items", "key_type", "value_type", "required", "primary_key", "a"]),
            inner,
        )
    ),
)


@given(junk | st.fixed_dictionaries({"fields": st.dictionaries(st.text(max_size=4), junk), "primary_key": junk}))
def test_no_json_value_breaks_the_parser(value: Any) -> None:
    """Whatever comes is a schema or an InvalidSchema."""
    try:
        schema = parse_schema(value)
    except InvalidSchema:
        return
    assert parse_schema(describe_schema(schema)) == schema
