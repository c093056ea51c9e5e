"""Partition transforms as Spark SQL: a row's partition value, and what rows are sorted by."""

from collections.abc import Sequence

from service.engine.sql.sql import identifier
from service.model.names import CATALOG
from service.model.schema.partition import PartitionField
from service.model.schema.types import FLOATING, ColumnType, Primitive, TableSchema, resolve_field

_FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_UUID = Primitive("uuid")
KEY = "_firn_key_"


def value(field: PartitionField, schema: TableSchema) -> str:
    """A row's partition value: a bucket's number, years, months or hours since 1970, a day as a date."""
    kind = resolve_field(schema, field.field).type
    source = _source(field.field, schema)
    match field.transform:
        case "identity":
            return source
        case "bucket" | "truncate":
            # Iceberg hashes a uuid's bytes, and Spark has it as text.
            hashed = f"unhex(replace({source}, '-', ''))" if kind == _UUID else source
            return f"{CATALOG}.system.{field.transform}({int(field.param or 1)}, {hashed})"
    return f"{CATALOG}.system.{_FUNCTIONS[field.transform]}({source})"


def hashes_uuid(fields: Sequence[PartitionField], schema: TableSchema) -> bool:
    """Whether rows are partitioned by the hash of a uuid. Iceberg sorts them by the hash of its text, and so cannot
    write one partition after the other."""
    return any(field.transform == "bucket" and resolve_field(schema, field.field).type == _UUID for field in fields)


def keys(fields: Sequence[PartitionField], schema: TableSchema) -> list[str]:
    """Expressions that are equal for rows of one partition only, each under a name that begins with KEY."""
    return [f"{_key(field, schema)} AS {KEY}{n}" for n, field in enumerate(fields)]


def _key(field: PartitionField, schema: TableSchema) -> str:
    text = value(field, schema)
    # Spark takes 0.0 and -0.0 for the same number; files do not.
    return f"CAST({text} AS STRING)" if field.transform == "identity" and _floats(field, schema) else text


def _floats(field: PartitionField, schema: TableSchema) -> bool:
    kind: ColumnType = resolve_field(schema, field.field).type
    return isinstance(kind, Primitive) and kind.name in FLOATING


def _source(name: str, schema: TableSchema) -> str:
    if name in schema.names:
        return identifier(name)
    return ".".join(identifier(part) for part in name.split("."))
