"""Partition transforms as Spark SQL: a row's partition value, and the keys that sort rows by partition."""

from collections.abc import Sequence

from service.engine.sql.sql import identifier
from service.model.names import CATALOG
from service.model.schema.partition import PartitionField
from service.model.schema.types import FLOATING, Primitive, TableSchema, resolve_field

_FUNCTIONS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_UUID = Primitive("uuid")
KEY = "_firn_key_"


def value(field: PartitionField, schema: TableSchema) -> str:
    """A row's partition value: a bucket's number, years, months or hours since 1970, a day as a date."""
    kind = resolve_field(schema, field.field).type
    # Other engines allow dots in a column's own name.
    path = [field.field] if field.field in schema.names else field.field.split(".")
    source = ".".join(identifier(part) for part in path)
    match field.transform:
        case "identity":
            return source
        case "bucket" | "truncate":
            # Iceberg hashes a uuid's bytes; for Spark it is text.
            hashed = f"unhex(replace({source}, '-', ''))" if kind == _UUID else source
            return f"{CATALOG}.system.{field.transform}({int(field.param or 1)}, {hashed})"
    return f"{CATALOG}.system.{_FUNCTIONS[field.transform]}({source})"


def hashes_uuid(fields: Sequence[PartitionField], schema: TableSchema) -> bool:
    """Whether rows are partitioned by the hash of a uuid. Iceberg sorts such rows by the hash of its text, so it cannot
    write one partition after another."""
    return any(field.transform == "bucket" and resolve_field(schema, field.field).type == _UUID for field in fields)


def keys(fields: Sequence[PartitionField], schema: TableSchema) -> list[str]:
    """Expressions that are equal only for rows of one partition, each under a name that begins with KEY."""
    found = []
    for n, field in enumerate(fields):
        text = value(field, schema)
        # For Spark, 0.0 and -0.0 are the same number; for Iceberg's files they are not.
        if field.transform == "identity" and str(resolve_field(schema, field.field).type) in FLOATING:
            text = f"CAST({text} AS STRING)"
        found.append(f"{text} AS {KEY}{n}")
    return found
