"""Row contents in a form that Spark SQL can compare and hash: maps, which allow neither, as sorted entries."""

from collections.abc import Iterable

from service.engine.sql.sql import identifier
from service.model.schema.types import Array, ColumnType, Field, Map, Struct


def row_hash(fields: Iterable[Field], alias: str) -> str:
    """64 bits of a row's whole content."""
    return hashed((f.type, f"{alias}.{identifier(f.name)}") for f in fields)


def summed(text: str) -> str:
    """The sum of such numbers, of any size. It tells two sets of rows apart, whatever their order."""
    return f"sum(CAST({text} AS DECIMAL(20,0)))"


def hashed(values: Iterable[tuple[ColumnType, str]]) -> str:
    """64 bits of some values, equal only if all of them are.

    Spark's hash skips nulls and does not see where one nested value ends. So each value follows a mark of whether it
    is null, and a list its length.
    """
    return f"xxhash64({', '.join(part for kind, text in values for part in _marked(kind, text, 0))})"


def same(kind: ColumnType, one: str, other: str) -> str:
    """A condition that is true if both are the same value, or both null."""
    return f"{comparable(kind, one)} <=> {comparable(kind, other)}"


def comparable(kind: ColumnType, text: str, depth: int = 0) -> str:
    """The same value in a form that compares, and sorts."""
    if not _holds_map(kind):
        return text
    name = f"e{depth}"
    match kind:
        case Map(key, value):
            entry = (
                f"struct({comparable(key, f'{name}.key', depth + 1)}, {comparable(value, f'{name}.value', depth + 1)})"
            )
            return f"sort_array(transform(map_entries({text}), {name} -> {entry}))"
        case Array(items):
            return f"transform({text}, {name} -> {comparable(items, name, depth + 1)})"
        case Struct(fields):
            parts = ", ".join(comparable(f.type, f"{text}.{identifier(f.name)}", depth + 1) for f in fields)
            return f"CASE WHEN {text} IS NOT NULL THEN struct({parts}) END"
    return text


def _marked(kind: ColumnType, text: str, depth: int) -> tuple[str, str]:
    """A value's mark, and the value with a mark before everything in it."""
    name = f"e{depth}"
    match kind:
        case Map(key, value):
            entry = (*_marked(key, f"{name}.key", depth + 1), *_marked(value, f"{name}.value", depth + 1))
            entries = f"transform(map_entries({text}), {name} -> struct({', '.join(entry)}))"
            return _length(text), f"sort_array({entries})"
        case Array(items):
            element = ", ".join(_marked(items, name, depth + 1))
            return _length(text), f"transform({text}, {name} -> struct({element}))"
        case Struct(fields):
            parts = (part for f in fields for part in _marked(f.type, f"{text}.{identifier(f.name)}", depth))
            return f"{text} IS NULL", f"struct({', '.join(parts)})"
    return f"{text} IS NULL", text


def _length(text: str) -> str:
    return f"coalesce(size({text}), -1)"


def _holds_map(kind: ColumnType) -> bool:
    match kind:
        case Map():
            return True
        case Array(items):
            return _holds_map(items)
        case Struct(fields):
            return any(_holds_map(field.type) for field in fields)
    return False
