"""The Arrow schema that bodies are decoded to."""

import pyarrow as pa
import pyarrow.types as kinds

from service.engine.rows import arrow_schema
from service.schema import TableSchema


def target_schema(schema: TableSchema) -> pa.Schema:
    """The table's, except that what is inside of other values may be null.

    Where the value around it is null it is null too, and Arrow's writers take that for a fault. That nothing else is
    null which may not be has been checked before.
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
