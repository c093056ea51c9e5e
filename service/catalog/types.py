"""Convert column types and partitioning to PyIceberg's and back."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from pyiceberg import transforms as t
from pyiceberg import types as i
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.schema import Schema

from service.model.schema.partition import PartitionField
from service.model.schema.types import Array, ColumnType, DecimalType, Field, Map, Primitive, Struct, TableSchema

_PRIMITIVES: dict[str, type[i.PrimitiveType]] = {
    "string": i.StringType,
    "integer": i.IntegerType,
    "long": i.LongType,
    "float": i.FloatType,
    "double": i.DoubleType,
    "boolean": i.BooleanType,
    "date": i.DateType,
    "timestamp": i.TimestampType,
    "timestamptz": i.TimestamptzType,
    "binary": i.BinaryType,
    "uuid": i.UUIDType,
}
# Types that only other engines write, and the nearest type of Firn's that can show their values.
_NEAREST: dict[type[i.IcebergType], str] = {
    i.FixedType: "binary",
    i.GeometryType: "binary",
    i.GeographyType: "binary",
    i.TimestampNanoType: "timestamp",
    i.TimestamptzNanoType: "timestamptz",
}
_NAMES: dict[type[i.IcebergType], str] = {kind: name for name, kind in _PRIMITIVES.items()} | _NEAREST

_TRANSFORMS: dict[str, type[t.Transform[Any, Any]]] = {
    "identity": t.IdentityTransform,
    "year": t.YearTransform,
    "month": t.MonthTransform,
    "day": t.DayTransform,
    "hour": t.HourTransform,
}


def to_iceberg(schema: TableSchema) -> Schema:
    """The Iceberg schema with fresh ids; the primary key becomes its identifier fields."""
    ids = count(1)
    fields = _nested_fields(schema.fields, ids)
    id_of = {f.name: f.field_id for f in fields}
    return Schema(*fields, identifier_field_ids=[id_of[name] for name in schema.primary_key])


def from_iceberg(schema: Schema) -> TableSchema:
    """Firn's view of an Iceberg schema."""
    names = {f.field_id: f.name for f in schema.fields}
    # Iceberg allows key columns inside structs; Firn does not, and does not show them.
    key = tuple(names[n] for n in schema.identifier_field_ids if n in names)
    return TableSchema(_our_fields(schema.fields), key)


def to_type(kind: ColumnType) -> i.IcebergType:
    """An Iceberg type whose nested fields have placeholder ids; adding it to a schema assigns the real ones."""
    return _iceberg(kind, count(1))


def to_field(field: Field, ids: Iterator[int]) -> i.NestedField:
    """A column with the next of these ids."""
    [made] = _nested_fields((field,), ids)
    return made


def to_spec(partitions: tuple[PartitionField, ...], schema: Schema) -> PartitionSpec:
    """The partition spec over that schema's ids."""
    return PartitionSpec(
        *(
            IcebergPartitionField(
                source_id=schema.find_field(p.field).field_id,
                field_id=PARTITION_FIELD_ID_START + position,
                transform=to_transform(p),
                name=p.name,
            )
            for position, p in enumerate(partitions)
        )
    )


def from_spec(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    """Firn's view of a partition spec, without void fields, which are the remains of dropped ones."""
    return tuple(
        _our_partition(f, schema.find_column_name(f.source_id) or f"#{f.source_id}")
        for f in spec.fields
        if not isinstance(f.transform, t.VoidTransform)
    )


def to_transform(partition: PartitionField) -> t.Transform[Any, Any]:
    if partition.transform == "bucket":
        return t.BucketTransform(num_buckets=partition.param or 1)
    if partition.transform == "truncate":
        return t.TruncateTransform(width=partition.param or 1)
    return _TRANSFORMS[partition.transform]()


def _our_partition(field: IcebergPartitionField, source: str) -> PartitionField:
    transform = field.transform
    if isinstance(transform, t.BucketTransform):
        return PartitionField(source, "bucket", field.name, transform.num_buckets)
    if isinstance(transform, t.TruncateTransform):
        return PartitionField(source, "truncate", field.name, transform.width)
    if isinstance(transform, t.UnknownTransform):
        return PartitionField(source, transform._transform, field.name)
    return PartitionField(source, str(transform), field.name)


def _nested_fields(fields: tuple[Field, ...], ids: Iterator[int]) -> list[i.NestedField]:
    # Siblings are numbered before their children, as catalogs number a new table's.
    numbered = [(next(ids), f) for f in fields]
    return [i.NestedField(n, f.name, _iceberg(f.type, ids), required=f.required) for n, f in numbered]


def _iceberg(kind: ColumnType, ids: Iterator[int]) -> i.IcebergType:
    match kind:
        case Primitive(name):
            return _PRIMITIVES[name]()
        case DecimalType():
            return i.DecimalType(kind.precision, kind.scale)
        case Array():
            element = next(ids)
            return i.ListType(element, _iceberg(kind.items, ids), element_required=kind.items_required)
        case Map():
            key, value = next(ids), next(ids)
            return i.MapType(
                key, _iceberg(kind.key, ids), value, _iceberg(kind.value, ids), value_required=kind.value_required
            )
        case Struct():
            return i.StructType(*_nested_fields(kind.fields, ids))


def _our_fields(fields: tuple[i.NestedField, ...]) -> tuple[Field, ...]:
    return tuple(Field(f.name, from_type(f.field_type), f.required) for f in fields)


def from_type(kind: i.IcebergType) -> ColumnType:
    """Firn's view of an Iceberg type; a type that Firn does not have shows as the nearest one."""
    match kind:
        case i.DecimalType():
            return DecimalType(kind.precision, kind.scale)
        case i.ListType():
            return Array(from_type(kind.element_type), kind.element_required)
        case i.MapType():
            return Map(from_type(kind.key_type), from_type(kind.value_type), kind.value_required)
        case i.StructType():
            return Struct(_our_fields(kind.fields))
    # A time of day, and types that Iceberg may add, are read as text.
    return Primitive(_NAMES.get(type(kind), "string"))
