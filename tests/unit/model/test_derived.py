"""Derived columns: asked for, kept in a table's properties, and found there again."""

from typing import Any

import pytest

from service.errors import FirnError
from service.model.schema.definition import parse_schema
from service.model.schema.derived import (
    add_derived,
    derived_expressions,
    derived_of,
    derived_properties,
    only_derived_added,
    parse_transform,
)
from service.model.schema.types import Field, Primitive, TableSchema

SCHEMA = parse_schema({"fields": {"id": {"type": "long"}, "at": {"type": "timestamp"}, "name": {"type": "string"}}})
DAY = {"day": {"expression": "CAST(at AS date)"}}
WITH_DAY = TableSchema((*SCHEMA.fields, Field("day", Primitive("date"))))
KEPT = {"firn.derived.day": "CAST(at AS date)"}


def test_a_column_that_was_asked_for_is_found_again_in_the_properties_of_its_table() -> None:
    derived = parse_transform(DAY, SCHEMA, {})
    properties = {"comment": "x", **derived_properties(derived)}
    assert derived_expressions(properties) == {"day": "CAST(at AS date)"}
    [found] = derived_of(properties, WITH_DAY)
    assert (found.column, found.type) == ("day", Primitive("date"))
    assert found.expression.tree == derived[0].expression.tree


def test_a_table_without_derived_columns_has_none() -> None:
    assert derived_of({"comment": "x"}, SCHEMA) == ()


def test_a_column_that_the_table_has_by_the_same_expression_is_not_asked_for_again() -> None:
    assert parse_transform(DAY, WITH_DAY, KEPT) == ()


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ({"at": {"expression": "id"}}, "transform.at: the table already has a column 'at'; choose another name"),
        (
            {"day": {"expression": "date '2024-01-01'"}},
            "transform.day: the table already has a column 'day', derived by 'CAST(at AS date)'; choose another name",
        ),
        ({"Name": {"expression": "id"}}, "transform.Name: the table already has a column 'name'; choose another name"),
        ({"a.b": {"expression": "id"}}, "transform: 'a.b' contains a dot"),
        ({"_firn_x": {"expression": "id"}}, "transform: '_firn_x' begins with '_firn_', which is reserved"),
        ({"_Deleted": {"expression": "id"}}, "transform: '_Deleted' is the name of one of Iceberg's metadata columns"),
        ({"x": "id"}, "transform.x: expected an object such as"),
        ({"x": {"expression": "id", "type": "long"}}, "transform.x: expected an object such as"),
        ({"x": {"expression": "idd"}}, "transform.x.expression: 'idd' is not a column here"),
        ({"x": {"expression": "day"}}, "transform.x.expression: 'day' is not a column here"),
        ({"x": {"expression": "id +"}}, "transform.x.expression"),
        ({"x": {"expression": "id"}, "X": {"expression": "id"}}, "transform.X: 'x' and 'X' are the same name to Spark"),
    ],
)
def test_what_cannot_be_derived_is_refused(transform: dict[str, Any], expected: str) -> None:
    with pytest.raises(FirnError) as e:
        parse_transform(transform, WITH_DAY, KEPT)
    assert expected in e.value.message
    assert (e.value.field or "").startswith("transform")


def test_a_column_whose_expression_names_what_is_gone_is_left_as_it_is() -> None:
    other = parse_schema({"fields": {"id": {"type": "long"}, "day": {"type": "date"}}})
    assert derived_of(KEPT, other) == ()
    assert derived_of(KEPT, SCHEMA) == ()


def test_rows_fit_a_table_that_has_got_nothing_but_derived_columns() -> None:
    derived = derived_of(KEPT, WITH_DAY)
    more = TableSchema((*WITH_DAY.fields, Field("other", Primitive("long"))))
    less = TableSchema(SCHEMA.fields[1:])
    assert only_derived_added(WITH_DAY, SCHEMA, derived)
    assert only_derived_added(SCHEMA, SCHEMA, ())
    assert not only_derived_added(WITH_DAY, SCHEMA, ())
    assert not only_derived_added(more, SCHEMA, derived)
    assert not only_derived_added(less, SCHEMA, ())


def test_new_columns_stand_at_the_end() -> None:
    [day] = derived_of(KEPT, WITH_DAY)
    assert add_derived(SCHEMA, (day,)) == WITH_DAY
