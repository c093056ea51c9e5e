"""The change of a result in terms of a few operations that are computed in this process, without Spark. Plain values.

All columns are columns of sources, under other names. Nothing is computed from their values but counts, sums, averages
and extremes. Rows have weights, as in the views of changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, TypeAlias

Comparator = Literal["=", "<>", "<", "<=", ">", ">="]
AddedKind = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True)
class ColumnTerm:
    name: str


@dataclass(frozen=True)
class ConstantTerm:
    value: int | Decimal | str | date


@dataclass(frozen=True)
class Compared:
    """A comparison, which is null if a value is."""

    how: Comparator
    left: ColumnTerm | ConstantTerm
    right: ColumnTerm | ConstantTerm


@dataclass(frozen=True)
class NullTest:
    column: str


@dataclass(frozen=True)
class Negated:
    of: "DirectCondition"


@dataclass(frozen=True)
class Connected:
    """Conditions of which each has to be true (`and`), or one (`or`), in SQL's logic of three values."""

    how: Literal["and", "or"]
    parts: "tuple[DirectCondition, ...]"


DirectCondition: TypeAlias = Compared | NullTest | Negated | Connected


@dataclass(frozen=True)
class DeltaRows:
    """The rows of a source that came and went; `columns` has the source's name of each column."""

    source: int
    columns: Mapping[str, str]


@dataclass(frozen=True)
class RenamedRows:
    """Some columns of rows under other names; `columns` has the earlier name of each."""

    rows: "DirectRows"
    columns: Mapping[str, str]


@dataclass(frozen=True)
class MatchingRows:
    """The rows for which all conditions are true."""

    rows: "DirectRows"
    conditions: tuple[DirectCondition, ...]


@dataclass(frozen=True)
class JoinedRows:
    """The rows, each with all rows of a source that have equal values; nulls are not equal."""

    rows: "DirectRows"
    source: int
    old: bool
    """Whether the source is read at the snapshot of the last refresh."""
    columns: Mapping[str, str]
    """Those of the source, with its names."""
    conditions: tuple[DirectCondition, ...]
    """For rows of the source."""
    pairs: tuple[tuple[str, str], ...]
    """The columns that are equal: of the rows, and of the source."""


@dataclass(frozen=True)
class UnitedRows:
    """All rows of several parts, which have the same columns."""

    parts: "tuple[DirectRows, ...]"


DirectRows: TypeAlias = DeltaRows | RenamedRows | MatchingRows | JoinedRows | UnitedRows


@dataclass(frozen=True)
class AddedArgument:
    """The column that an aggregate is of."""

    column: str
    is_whole: bool = False
    """Whether it has to be a whole number, because it is added as a decimal."""


@dataclass(frozen=True)
class AddedGroups:
    """Aggregates to which those of a change are added; see `query/adding.py`."""

    rows: DirectRows
    keys: tuple[str, ...]
    arguments: tuple[AddedArgument, ...]
    values: Mapping[str, tuple[AddedKind, int]]
    """What each aggregate is, and the number of its argument; -1 for rows."""
    columns: Mapping[str, str]
    """Of each column of the result, the key or the aggregate that it has."""

    @property
    def has_extremes(self) -> bool:
        return any(kind in ("min", "max") for kind, _ in self.values.values())

    def column_of(self, name: str) -> str:
        """A column of the result that has this key or aggregate."""
        return next(column for column, known in self.columns.items() if known == name)

    def named(self, kind: str, argument: int) -> str:
        """The column of the result that has an aggregate of an argument."""
        name = next(name for name, known in self.values.items() if known == (kind, argument))
        return self.column_of(name)


DirectChange: TypeAlias = DirectRows | AddedGroups
"""The rows of the result that come and go, or the groups that change."""
