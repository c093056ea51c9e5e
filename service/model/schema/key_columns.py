"""The columns that identify a row: those a request names, or the primary key."""

from collections.abc import Sequence

from service.errors import InvalidRequest
from service.model.schema.columns import find_column
from service.model.schema.types import DecimalType, Primitive, TableSchema


def key_columns(schema: TableSchema, key_cols: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that identify a row: those given, or else the primary key."""
    if key_cols is not None and not key_cols:
        raise InvalidRequest.at(
            "key_cols", "the list is empty; name the columns that identify a row, or omit it to use the primary key"
        )
    keys = tuple(key_cols or schema.primary_key)
    if not keys:
        raise InvalidRequest.at(
            "key_cols", "it is missing, and the table has no primary key; name the columns that identify a row"
        )
    for i, key in enumerate(keys):
        path = f"key_cols[{i}]"
        if key not in schema.names and find_column(schema, key):
            raise InvalidRequest.at(
                path, f"{key!r} is inside a column; name whole columns, or make it one by REPARTITION with transform"
            )
        kind = schema.field(key, path=path).type
        if not isinstance(kind, Primitive | DecimalType):
            raise InvalidRequest.at(path, f"{key!r} is {kind}, which cannot be a key; use columns of plain types")
        if key in keys[:i]:
            raise InvalidRequest.at(path, f"{key!r} is named twice; name it once")
    return keys
