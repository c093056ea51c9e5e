"""A new schema for a table that loses all its files; a column that stays the same keeps its id."""

from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from service.catalog import types
from service.catalog.tables import Table
from service.errors import InvalidSchema
from service.model.schema.types import ColumnType, Field, TableSchema, fold_case


def replaced_schema(table: Table, schema: TableSchema, hidden: tuple[Field, ...]) -> str:
    """The schema in Iceberg's JSON.

    A column gets the id of the last one of its name and type, so that it shows the rows of older snapshots; any other
    column gets a new id.
    """
    ids = count(table.iceberg.metadata.last_column_id + 1)
    known = _known(table)
    fields = [_field(field, known.get((field.name, field.type)), ids) for field in (*schema.fields, *hidden)]
    id_of = {field.name: field.field_id for field in fields}
    made = Schema(*fields, identifier_field_ids=[id_of[name] for name in schema.primary_key])
    return made.model_dump_json()


def check_names(table: Table, schema: TableSchema) -> None:
    """Refuse a column with the name of a partition that the table has or had, unless that is the column's identity."""
    known = _known(table)
    parts = {fold_case(part.name): part for spec in table.iceberg.specs().values() for part in spec.fields}
    for field in schema.fields:
        part, column = parts.get(fold_case(field.name)), known.get((field.name, field.type))
        if part is None:
            continue
        its_own = isinstance(part.transform, IdentityTransform) and part.name == field.name
        if not its_own or column is None or column.field_id != part.source_id:
            raise InvalidSchema(
                f"schema: {field.name!r} is or was the name of a partition of the table; choose another name",
                field=f"schema.fields.{field.name}",
            )


def _known(table: Table) -> dict[tuple[str, ColumnType], NestedField]:
    """The columns that the table has or had, by name and type; of a widened one only the widest type, which files may
    hold."""
    schemas = [*sorted(table.iceberg.metadata.schemas, key=lambda s: s.schema_id), table.iceberg.schema()]
    widest = {field.field_id: field.field_type for schema in schemas for field in schema.fields}
    return {
        (field.name, types.from_type(field.field_type)): field
        for schema in schemas
        for field in schema.fields
        if field.field_type == widest[field.field_id]
    }


def _field(field: Field, known: NestedField | None, ids: "count[int]") -> NestedField:
    if known is None:
        return types.to_field(field, ids)
    return NestedField(known.field_id, field.name, known.field_type, required=field.required)
