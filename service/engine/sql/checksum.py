"""A checksum of rows in any order: their number and the sum of their hashes."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.engine.sql.content import hashed
from service.engine.sql.sql import identifier
from service.model.schema.types import Field

_MODULUS = 1 << 64
_LOW = (1 << 32) - 1


@dataclass(frozen=True)
class Checksum:
    """The checksum of a set of rows. The sum of several sets' checksums is that of all their rows."""

    rows: int = 0
    sum: int = 0

    def __add__(self, other: "Checksum") -> "Checksum":
        return Checksum(self.rows + other.rows, (self.sum + other.sum) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.sum:016x}"


def aggregates(fields: Iterable[Field]) -> str:
    """The select list of a checksum over these columns; `of` reads the row."""
    row = hashed((field.type, identifier(field.name)) for field in fields)
    # In halves, as a sum of 64 bits would overflow.
    return f"count(*), sum({row} & {_LOW}), sum(shiftrightunsigned({row}, 32))"


def of(row: tuple[int, int | None, int | None]) -> Checksum:
    """The checksum in a row of `aggregates`."""
    rows, low, high = row
    return Checksum(int(rows), (int(low or 0) + (int(high or 0) << 32)) % _MODULUS)
