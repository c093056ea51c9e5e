"""The columns and the Arrow schema that bodies are decoded to."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as kinds

from service.catalog.files.staging import LastingFiles
from service.catalog.tables import Table
from service.engine.jobs.arrow.shape import shaped
from service.engine.session.rows import arrow_schema
from service.model.schema.types import DecimalType, Field, Primitive, TableSchema
from service.writes.bulk.fit import match_names

# A row group is held in memory until it is written.
_MOST_GROUP_BYTES = 32 << 20
_UUID = Primitive("uuid")
Keys = tuple[str, ...] | None
"""The key columns of an upsert; None for a load that appends."""


def columns_of(schema: TableSchema, names: Sequence[str], keys: Keys) -> list[tuple[Field, int | None]]:
    """The columns that a body with these names is decoded to, each with its place in the body.

    An append gets every column, and columns without a place are null. An upsert gets only those that were sent, because
    the others keep their values; its keys are required. InvalidValue if the names do not fit.
    """
    if keys is None:
        places = match_names(list(names), [(f.name, f.required) for f in schema.fields])
        return list(zip(schema.fields, places, strict=True))
    places = match_names(list(names), [(f.name, f.name in keys) for f in schema.fields])
    sent = [(field, place) for field, place in zip(schema.fields, places, strict=True) if place is not None]
    return [(replace(field, required=field.required or field.name in keys), place) for field, place in sent]


def decoded_schema(columns: Sequence[tuple[Field, int | None]]) -> pa.Schema:
    """The Arrow schema of some columns."""
    return target_schema(TableSchema(tuple(field for field, _ in columns)))


def target_schema(schema: TableSchema) -> pa.Schema:
    """The table's schema, except that nested values may be null.

    A nested value is null if its parent is null, and Arrow's writers would refuse that. Other nulls in required nested
    values have been refused before.
    """
    return pa.schema([pa.field(f.name, _inside(f.type), f.nullable) for f in arrow_schema(schema)])


def lasting_files(table: Table, schema: pa.Schema) -> LastingFiles | None:
    """How records of this schema are staged in files that can become the table's own; None if Spark must write those in
    any case."""
    shape = shaped(schema, table.properties)
    plain = all(isinstance(f.type, Primitive | DecimalType) and f.type != _UUID for f in table.stored_schema.fields)
    if shape is None or not plain or table.derived or table.stored_partition or not table.location.startswith("file:"):
        return None
    if shape.group_bytes > _MOST_GROUP_BYTES:
        return None
    return LastingFiles(table, shape.options, shape.group_bytes, shape.file_bytes)


def _inside(kind: pa.DataType) -> pa.DataType:
    if kinds.is_list(kind):
        return pa.list_(_nullable(kind.value_field))
    if kinds.is_map(kind):
        return pa.map_(_inside(kind.key_type), _nullable(kind.item_field))
    if kinds.is_struct(kind):
        return pa.struct([_nullable(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _inside(field.type))
