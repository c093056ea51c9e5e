"""What rows hold, whatever their order: their number, and the sum of their hashes."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.engine.content import hashed
from service.engine.sql import identifier
from service.schema import Field

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
    row = hashed((field.type, identifier(field.name)) for field in fields)
    # In halves, as a sum of 64 bits would overflow.
    return f"count(*), sum({row} & {_LOW}), sum(shiftrightunsigned({row}, 32))"


def of(row: tuple[int, int | None, int | None]) -> Checksum:
    """The checksum that a row of `aggregates` holds."""
    rows, low, high = row
    return Checksum(int(rows), (int(low or 0) + (int(high or 0) << 32)) % _MODULUS)
