"""Another schema for a table whose files all go: what stays the same column keeps its id."""

from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from service.catalog import types
from service.catalog.tables import Table
from service.schema import Field, TableSchema


def replaced_schema(table: Table, schema: TableSchema, hidden: tuple[Field, ...]) -> str:
    """A schema in Iceberg's JSON. A column has the id of one of its name and type, so that older snapshots' rows show
    under it; any other has a new one."""
    ids = count(table.iceberg.metadata.last_column_id + 1)
    known = {field.name: field for field in table.iceberg.schema().fields}
    fields = [_field(field, known.get(field.name), ids) for field in (*schema.fields, *hidden)]
    id_of = {field.name: field.field_id for field in fields}
    made = Schema(*fields, identifier_field_ids=[id_of[name] for name in schema.primary_key])
    return made.model_dump_json()


def _field(field: Field, known: NestedField | None, ids: "count[int]") -> NestedField:
    if known is not None and types.from_type(known.field_type) == field.type:
        return NestedField(known.field_id, field.name, known.field_type, required=field.required)
    return types.to_field(field, ids)
