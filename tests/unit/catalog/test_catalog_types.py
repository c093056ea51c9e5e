from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as i
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, UnknownTransform, VoidTransform

from service.catalog.types import from_iceberg, from_spec, to_iceberg, to_spec
from service.model.schema.definition import parse_schema
from service.model.schema.partition import PartitionField, parse_partition
from service.model.schema.types import Array, DecimalType, Field, Map, Primitive, Struct, TableSchema
from tests.strategies import partitions, schemas


@given(st.data())
def test_a_schema_comes_back_from_iceberg_as_it_went(data: st.DataObject) -> None:
    schema = data.draw(schemas(keyed=data.draw(st.booleans())))
    assert from_iceberg(to_iceberg(schema)) == schema


@given(schemas(keyed=True))
def test_the_ids_are_the_ones_a_catalog_would_assign(schema: TableSchema) -> None:
    iceberg = to_iceberg(schema)
    assert assign_fresh_schema_ids(iceberg) == iceberg
    assert iceberg.identifier_field_names() == set(schema.primary_key)


@given(st.data())
def test_a_partitioning_comes_back_from_iceberg_as_it_went(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    fields = parse_partition(data.draw(partitions(schema)), schema)
    iceberg = to_iceberg(schema)
    spec = to_spec(fields, iceberg)
    spec.check_compatible(iceberg)
    assert from_spec(spec, iceberg) == fields


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (i.FixedType(16), Primitive("binary")),
        (i.TimeType(), Primitive("string")),
        (i.TimestampNanoType(), Primitive("timestamp")),
        (i.TimestamptzNanoType(), Primitive("timestamptz")),
        (i.UnknownType(), Primitive("string")),
        (i.DecimalType(9, 3), DecimalType(9, 3)),
        (i.ListType(5, i.FixedType(2), element_required=False), Array(Primitive("binary"), False)),
        (
            i.MapType(5, i.FloatType(), 6, i.TimeType(), value_required=True),
            Map(Primitive("float"), Primitive("string"), True),
        ),
    ],
)
def test_a_foreign_type_shows_as_the_nearest_of_ours(kind: Any, expected: Any) -> None:
    assert from_iceberg(Schema(i.NestedField(1, "c", kind))) == TableSchema((Field("c", expected),))


def test_a_primary_key_keeps_its_order() -> None:
    table = {"fields": {"a": {"type": "long"}, "b": {"type": "long"}}, "primary_key": ["b", "a"]}
    assert from_iceberg(to_iceberg(parse_schema(table))).primary_key == ("b", "a")


def test_an_identifier_inside_a_struct_is_no_primary_key_of_ours() -> None:
    inner = i.StructType(i.NestedField(3, "id", i.LongType(), required=True))
    table = Schema(
        i.NestedField(1, "k", i.LongType(), required=True),
        i.NestedField(2, "s", inner, required=True),
        identifier_field_ids=[1, 3],
    )
    assert from_iceberg(table).primary_key == ("k",)
    assert from_iceberg(table).field("s").type == Struct((Field("id", Primitive("long"), True),))


def test_void_is_left_out_and_an_unknown_transform_keeps_its_text() -> None:
    schema = to_iceberg(parse_schema({"fields": {"id": {"type": "long"}, "at": {"type": "timestamp"}}}))
    spec = PartitionSpec(
        IcebergPartitionField(1, 1000, VoidTransform(), "gone"),
        IcebergPartitionField(1, 1001, UnknownTransform("zorder[4]"), "z"),
        IcebergPartitionField(1, 1002, BucketTransform(7), "b"),
        IcebergPartitionField(2, 1003, DayTransform(), "d"),
        IcebergPartitionField(99, 1004, IdentityTransform(), "dropped"),
    )
    assert from_spec(spec, schema) == (
        PartitionField("id", "zorder[4]", "z"),
        PartitionField("id", "bucket", "b", 7),
        PartitionField("at", "day", "d"),
        PartitionField("#99", "identity", "dropped"),
    )
