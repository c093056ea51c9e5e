"""How many rows fit into one response; the others are the next page."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from service.engine.jobs.select import Selected
from service.engine.session.rows import json_rows
from service.errors import ResponseTooLarge
from service.model import wire
from service.model.call import ResponseRoom

# For what the response has besides its rows.
_REST = 20_000
_AT_ONCE = 256
# A character of a text can take so many bytes, inside other JSON too, and a value so many beside those of its text.
_MOST_ESCAPED = 7
_BESIDE_VALUE = 48


def fitting(room: ResponseRoom, rows: Sequence[Any]) -> int:
    """How many of the rows fit into the response, from the first on; ResponseTooLarge if the first does not."""
    if room.most_bytes is None:
        return len(rows)
    left = room.most_bytes - _REST
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        size = room.bytes_of(wire.render(part))
        if size <= left:
            left -= size
            continue
        for i, row in enumerate(part, start):
            left -= room.bytes_of(wire.render(row))
            if left < 0:
                return _checked(room, i)
    return len(rows)


def all_fit(room: ResponseRoom, rows: pa.Table) -> bool:
    """Whether all rows of a query fit into the response."""
    return _surely_fit(room, rows) or fitting(room, json_rows(rows)) == len(rows)


def _surely_fit(room: ResponseRoom, rows: pa.Table) -> bool:
    """Whether the rows need not be rendered to know that they fit. Most results are so small."""
    return room.most_bytes is None or _most_bytes(rows) <= room.most_bytes - _REST


def _most_bytes(rows: pa.Table) -> float:
    """More bytes than the rows can take as JSON."""
    if any(map(kinds.is_nested, rows.schema.types)):
        return math.inf
    names = sum(_BESIDE_VALUE + _MOST_ESCAPED * len(name.encode()) for name in rows.column_names)
    return float(_MOST_ESCAPED * rows.nbytes + rows.num_rows * names)


def cut(room: ResponseRoom, found: Selected) -> Selected:
    """The rows that fit into one response; ResponseTooLarge if no next page could continue after them."""
    if _surely_fit(room, found.table):
        return found
    count = fitting(room, found.rows)
    if count == len(found.rows):
        return found
    if not found.in_total_order:
        raise ResponseTooLarge(
            f"the rows take more than a response may ({room.most_bytes} bytes, FIRN_LIMITS__RESPONSE_BYTES), and have "
            "no order in which a next page could continue; request fewer rows by limit, fewer columns, a sort, or "
            "text/csv or an Arrow stream by the Accept header",
            field="limit",
        )
    return replace(found, table=found.table.slice(0, count), has_more=True)


def _checked(room: ResponseRoom, count: int) -> int:
    if count == 0:
        raise ResponseTooLarge(
            f"a single row takes more than a response may ({room.most_bytes} bytes, FIRN_LIMITS__RESPONSE_BYTES); "
            "request fewer columns, or text/csv or an Arrow stream by the Accept header"
        )
    return count
