"""What rows hold, whatever their order: their number, and the sum of their hashes."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.engine.sql import identifier
from service.schema import Array, ColumnType, Field, Map, Struct

_MODULUS = 1 << 64
_LOW = (1 << 32) - 1


@dataclass(frozen=True)
class Checksum:
    """Of rows; those of several sets of rows add up to that of all of them."""

    rows: int = 0
    sum: int = 0

    def __add__(self, other: "Checksum") -> "Checksum":
        return Checksum(self.rows + other.rows, (self.sum + other.sum) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.sum:016x}"


def aggregates(fields: Iterable[Field]) -> str:
    """The select list of a query whose one row `of` reads: a checksum over these columns of its rows."""
    row = ", ".join(_marked(identifier(field.name), field.type) for field in fields)
    hashed = f"xxhash64({row})"
    # In halves, as a sum of 64 bits would overflow.
    return f"count(*), sum({hashed} & {_LOW}), sum(shiftrightunsigned({hashed}, 32))"


def of(row: tuple[int, int | None, int | None]) -> Checksum:
    """The checksum that a row of `aggregates` holds."""
    rows, low, high = row
    return Checksum(int(rows), (int(low or 0) + (int(high or 0) << 32)) % _MODULUS)


def _marked(text: str, kind: ColumnType) -> str:
    """What is hashed of a value. A hash passes over nulls: without the mark (null, 1) and (1, null) were the same."""
    return f"{text} IS NULL, {_plain(text, kind, 0)}"


def _plain(text: str, kind: ColumnType, depth: int) -> str:
    """A value in types that can be hashed, with every null in it marked: a map as its entries, sorted."""
    if _is_plain(kind):
        return text
    x = f"x{depth}"
    match kind:
        case Array(items):
            return f"transform({text}, {x} -> {_pair(x, items, depth + 1)})"
        case Map(key, value):
            entry = f"struct({_plain(f'{x}.key', key, depth + 1)}, {_pair(f'{x}.value', value, depth + 1)})"
            return f"array_sort(transform(map_entries({text}), {x} -> {entry}))"
        case Struct(fields):
            inside = (f"{text}.{identifier(f.name)}" for f in fields)
            pairs = (_pair(part, f.type, depth) for part, f in zip(inside, fields, strict=True))
            return f"struct({', '.join(pairs)})"
    return text


def _pair(text: str, kind: ColumnType, depth: int) -> str:
    return f"struct({text} IS NULL, {_plain(text, kind, depth)})"


def _is_plain(kind: ColumnType) -> bool:
    return not isinstance(kind, Array | Map | Struct)
