"""Which of the rows that were written together were whose: short marks of what they hold tell them apart.

A row has no identity but its content. Rows that hold the same are the same to whoever takes one of them back.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

SIZE = 8


@dataclass(frozen=True)
class Shares:
    """How many rows each of several requests brought, and marks of all rows but those of one, the largest."""

    counts: tuple[int, ...]
    unmarked: int
    """Which request's rows have no marks."""
    marks: bytes
    """The others', in their order."""
    schema_id: int
    """The columns that the marks are of."""
    until_ms: int

    def by_request(self) -> dict[int, list[bytes]]:
        """The marks of each request that has some."""
        found: dict[int, list[bytes]] = {}
        at = 0
        for n, count in enumerate(self.counts):
            if n != self.unmarked:
                end = at + count * SIZE
                found[n] = [self.marks[i : i + SIZE] for i in range(at, end, SIZE)]
                at = end
        return found


def shares(rows: pa.Table, counts: Sequence[int], schema_id: int, until_ms: int) -> Shares:
    """The shares of requests whose rows stand one after the other."""
    unmarked = max(range(len(counts)), key=counts.__getitem__)
    start = sum(counts[:unmarked])
    marked = (rows.slice(0, start), rows.slice(start + counts[unmarked]))
    return Shares(tuple(counts), unmarked, b"".join(m for part in marked for m in marks(part)), schema_id, until_ms)


def marks(rows: pa.Table) -> list[bytes]:
    """A mark of each row: the same for the same values, in whichever of Arrow's types with one meaning."""
    columns = [_plain_column(column) for column in rows.columns]
    return [blake2b(repr(row).encode(), digest_size=SIZE).digest() for row in zip(*columns, strict=True)]


def owners(shared: Shares, readings: Iterable[Sequence[bytes]]) -> list[int] | None:
    """Of each row, which request brought it; None where the rows cannot be those that were written.

    A row can be read in several ways, where some of its columns may have been worked out for it: the first reading
    that a request has a mark for counts.
    """
    free: dict[bytes, deque[int]] = defaultdict(deque)
    for n, found in shared.by_request().items():
        for mark in found:
            free[mark].append(n)
    owner: list[int | None] = [None] * sum(shared.counts)
    for reading in readings:
        if len(reading) != len(owner):
            return None
        for row, mark in enumerate(reading):
            if owner[row] is None and free[mark]:
                owner[row] = free[mark].popleft()
    if any(free.values()):
        return None
    return [shared.unmarked if n is None else n for n in owner]


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if kinds.is_date(kind):
        column = column.cast(pa.int32())
    elif kinds.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
    elif kinds.is_nested(kind):
        return [_plain(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
    return value
