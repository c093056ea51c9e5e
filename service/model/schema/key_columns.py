"""The columns that identify a row: those a request names, or the primary key."""

from collections.abc import Sequence

from service.errors import InvalidRequest
from service.model.schema.columns import find_column
from service.model.schema.types import DecimalType, Primitive, TableSchema


def key_columns(schema: TableSchema, key_cols: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that identify a row: those given, or else the primary key."""
    if key_cols is not None and not key_cols:
        raise InvalidRequest(
            "key_cols is empty; name the columns that identify a row, or leave it out for the table's primary key",
            field="key_cols",
        )
    keys = tuple(key_cols or schema.primary_key)
    if not keys:
        raise InvalidRequest(
            "key_cols is missing and the table has no primary key; name the columns that identify a row",
            field="key_cols",
        )
    for i, key in enumerate(keys):
        if key not in schema.names and find_column(schema, key):
            raise InvalidRequest(
                f"key_cols[{i}] {key!r} is inside a column, but a key consists of whole columns; name those, or make "
                "it a column by REPARTITION with transform",
                field=f"key_cols[{i}]",
            )
        kind = schema.field(key, path=f"key_cols[{i}]").type
        if not isinstance(kind, Primitive | DecimalType):
            raise InvalidRequest(
                f"key_cols[{i}] {key!r} is {kind}, which cannot be a key; use columns of plain types",
                field=f"key_cols[{i}]",
            )
        if key in keys[:i]:
            raise InvalidRequest(f"key_cols[{i}] {key!r} is named twice", field=f"key_cols[{i}]")
    return keys
