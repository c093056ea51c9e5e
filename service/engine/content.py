"""What rows hold, as Spark SQL can compare it: maps, which do not compare, as lists of their entries."""

from collections.abc import Iterable

from service.engine.sql import identifier
from service.schema import Array, ColumnType, Field, Map, Struct


def row_hash(fields: Iterable[Field], alias: str) -> str:
    """A number of a row's whole content; whatever the order of rows, their sum tells two sets of rows apart."""
    values = ", ".join(comparable(f.type, f"{alias}.{identifier(f.name)}") for f in fields)
    return f"CAST(xxhash64({values}) AS DECIMAL(20,0))"


def same(kind: ColumnType, one: str, other: str) -> str:
    """A condition that is true where both are the same value, or both null."""
    return f"{comparable(kind, one)} <=> {comparable(kind, other)}"


def comparable(kind: ColumnType, text: str, depth: int = 0) -> str:
    """The same value in a form that compares and hashes."""
    if not _holds_map(kind):
        return text
    name = f"e{depth}"
    match kind:
        case Map(key, value):
            entry = (
                f"struct({comparable(key, f'{name}.key', depth + 1)}, {comparable(value, f'{name}.value', depth + 1)})"
            )
            return f"transform(map_entries({text}), {name} -> {entry})"
        case Array(items):
            return f"transform({text}, {name} -> {comparable(items, name, depth + 1)})"
        case Struct(fields):
            parts = ", ".join(comparable(f.type, f"{text}.{identifier(f.name)}", depth + 1) for f in fields)
            return f"CASE WHEN {text} IS NOT NULL THEN struct({parts}) END"
    return text


def _holds_map(kind: ColumnType) -> bool:
    match kind:
        case Map():
            return True
        case Array(items):
            return _holds_map(items)
        case Struct(fields):
            return any(_holds_map(field.type) for field in fields)
    return False
