"""Values of many rows by number, so that a row can be put together from others column by column, without conversion."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class PooledRow:
    """A row of the pool, some of whose values are those of other rows."""

    base: int
    replaced: Mapping[str, int]


class RowPool:
    """Rows with the columns of a table. Only those values that are asked for become Python objects."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([pa.field(column.name, column.type) for column in schema])
        self._parts: list[pa.Table] = []
        self._starts: list[int] = []
        self._plain: dict[str, list[Any]] = {}
        self.size = 0

    def add(self, rows: pa.Table) -> range:
        """Add rows, and return their numbers. Columns that they lack are null, and other columns are left out."""
        part = with_columns(self.schema, rows)
        if not rows.num_rows:
            return range(self.size, self.size)
        self._starts.append(self.size)
        self._parts.append(part)
        first, self.size = self.size, self.size + rows.num_rows
        return range(first, self.size)

    def value(self, column: str, number: int) -> Any:
        """A value in a form that Python compares as Spark does: dates and times are numbers."""
        known = self._plain.setdefault(column, [])
        while len(known) <= number:
            known += plain_values(self._parts[bisect_right(self._starts, len(known)) - 1][column])
        return known[number]

    def take(self, rows: Sequence[PooledRow]) -> pa.Table:
        """The rows as a table."""
        if not rows:
            return self.schema.empty_table()
        pooled = pa.concat_tables(self._parts).combine_chunks()
        columns = [
            pooled[name].take(pa.array([row.replaced.get(name, row.base) for row in rows], pa.int64()))
            for name in self.schema.names
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


def with_columns(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Rows with the columns of a schema: those that they lack are null, and other columns are left out."""
    columns = [
        rows[column.name].cast(column.type)
        if column.name in rows.column_names
        else pa.nulls(rows.num_rows, column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def without(rows: pa.Table, positions: Collection[int]) -> pa.Table:
    """The rows that are not at some positions, in their order."""
    if not positions:
        return rows
    gone = frozenset(positions)
    return rows.filter(pa.array([i not in gone for i in range(rows.num_rows)], pa.bool_()))


def plain_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column's values as Python objects; dates and times are numbers, since Python holds only some years."""
    kind = column.type
    if kinds.is_date(kind):
        column = column.cast(pa.int32())
    elif kinds.is_timestamp(kind):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def plain_value(value: Any) -> Any:
    """A literal in the form of `plain_values`."""
    if isinstance(value, datetime):
        return (value - (_EPOCH_UTC if value.tzinfo else _EPOCH)) // _MICROSECOND
    return value.toordinal() - _EPOCH_DAY if isinstance(value, date) else value


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are the same to Spark: NaN is itself, and -0.0 is 0.0; so are two nulls."""
    return bool(one == other or (one != one and other != other))
