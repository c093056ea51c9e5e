"""Which rows of a shared commit belong to which request: a short hash of its content marks each row.

A row has no identity besides its content, so for UNDO rows with the same content are interchangeable.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

SIZE = 8


@dataclass(frozen=True)
class RowShares:
    """How many rows each request of a commit has, and the marks of all rows except those of the largest request."""

    counts: tuple[int, ...]
    unmarked: int
    """The request whose rows have no marks."""
    marks: bytes
    """The marks of the other requests, in order."""
    schema_id: int
    """The schema of the marked columns."""
    until_ms: int

    def by_request(self) -> dict[int, list[bytes]]:
        """The marks of each request except the unmarked one."""
        marks = (self.marks[i : i + SIZE] for i in range(0, len(self.marks), SIZE))
        return {n: list(islice(marks, count)) for n, count in enumerate(self.counts) if n != self.unmarked}


def share_rows(rows: pa.Table, counts: Sequence[int], schema_id: int, until_ms: int) -> RowShares:
    """The shares of requests whose rows follow each other in `rows`."""
    unmarked = max(range(len(counts)), key=counts.__getitem__)
    start = sum(counts[:unmarked])
    marked = (rows.slice(0, start), rows.slice(start + counts[unmarked]))
    return RowShares(
        tuple(counts), unmarked, b"".join(m for part in marked for m in row_marks(part)), schema_id, until_ms
    )


def row_marks(rows: pa.Table) -> list[bytes]:
    """A mark for each row, equal for equal values, whichever equivalent Arrow types they have."""
    columns = [_plain_column(column) for column in rows.columns]
    return [blake2b(repr(row).encode(), digest_size=SIZE).digest() for row in zip(*columns, strict=True)]


def assign_rows(shared: RowShares, readings: Iterable[Sequence[bytes]]) -> list[int] | None:
    """The request of each row; None if the rows cannot be those that were written.

    A row has several readings if some of its columns may have been computed for it: the first one with a mark counts.
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
