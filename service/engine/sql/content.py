"""Row contents in a form that Spark SQL can compare and hash. A map allows neither, so it becomes sorted entries."""

from collections.abc import Iterable

from service.engine.sql.sql import identifier
from service.model.schema.types import Array, ColumnType, Field, Map, Struct


def row_hash(fields: Iterable[Field], alias: str) -> str:
    """A 64-bit hash of all values of a row."""
    return hashed((f.type, f"{alias}.{identifier(f.name)}") for f in fields)


def summed(text: str) -> str:
    """The sum of hashes, without overflow: a digest of rows in any order."""
    return f"sum(CAST({text} AS DECIMAL(20,0)))"


def hashed(values: Iterable[tuple[ColumnType, str]]) -> str:
    """A 64-bit hash of some values.

    Spark's hash skips nulls and ignores where one nested value ends. So each value is preceded by a mark: the length of
    a list or map, and otherwise whether the value is null.
    """
    return f"xxhash64({', '.join(part for kind, text in values for part in _marked(kind, text, 0))})"


def same(kind: ColumnType, one: str, other: str) -> str:
    """A condition that is true if both values are equal, or both null."""
    return f"{comparable(kind, one)} <=> {comparable(kind, other)}"


def comparable(kind: ColumnType, text: str, depth: int = 0) -> str:
    """The same value in a form that can be compared and sorted: the value itself, unless it contains a map."""
    name = f"e{depth}"
    match kind:
        case Map(key, value):
            entry = [comparable(key, f"{name}.key", depth + 1), comparable(value, f"{name}.value", depth + 1)]
            return f"sort_array(transform(map_entries({text}), {name} -> struct({', '.join(entry)})))"
        case Array(items) if (item := comparable(items, name, depth + 1)) != name:
            return f"transform({text}, {name} -> {item})"
        case Struct(fields):
            old = [f"{text}.{identifier(f.name)}" for f in fields]
            new = [comparable(f.type, part, depth + 1) for f, part in zip(fields, old, strict=True)]
            if new != old:
                return f"CASE WHEN {text} IS NOT NULL THEN struct({', '.join(new)}) END"
    return text


def _marked(kind: ColumnType, text: str, depth: int) -> tuple[str, str]:
    """A value's mark, and the value with a mark before each part of it."""
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
