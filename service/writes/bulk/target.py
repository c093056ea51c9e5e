"""The Arrow schema that bodies are decoded to."""

import pyarrow as pa
import pyarrow.types as kinds

from service.engine.session.rows import arrow_schema
from service.model.schema.types import TableSchema


def target_schema(schema: TableSchema) -> pa.Schema:
    """The table's schema, except that nested values may be null.

    A nested value is null if its parent is null, and Arrow's writers would refuse that. Other nulls in required nested
    values have been refused before.
    """
    return pa.schema([pa.field(f.name, _inside(f.type), f.nullable) for f in arrow_schema(schema)])


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
