"""How many rows fit into one response; the others are the next page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.engine.jobs.select import Selected
from service.errors import ResponseTooLarge
from service.model import wire
from service.model.call import Call

# For what the response has besides its rows.
_REST = 20_000
_AT_ONCE = 256


def fitting(call: Call, rows: Sequence[Any]) -> int:
    """How many of the rows fit into the response, from the first on; ResponseTooLarge if the first does not."""
    if call.most_bytes is None:
        return len(rows)
    left = call.most_bytes - _REST
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        size = call.bytes_of(wire.render(part))
        if size <= left:
            left -= size
            continue
        for i, row in enumerate(part, start):
            left -= call.bytes_of(wire.render(row))
            if left < 0:
                return _checked(call, i)
    return len(rows)


def all_fit(call: Call, rows: Sequence[Any]) -> bool:
    return fitting(call, rows) == len(rows)


def cut(call: Call, found: Selected) -> Selected:
    """The rows that fit into one response; ResponseTooLarge if no next page could continue after them."""
    count = fitting(call, found.rows)
    if count == len(found.rows):
        return found
    if not found.in_total_order:
        raise ResponseTooLarge(
            f"the rows take more than a response may ({call.most_bytes} bytes, FIRN_LIMITS__RESPONSE_BYTES), and have "
            "no order in which a next page could continue; request fewer rows by limit, fewer columns, a sort, or "
            "text/csv or an Arrow stream by the Accept header",
            field="limit",
        )
    return replace(found, rows=found.rows[:count], has_more=True)


def _checked(call: Call, count: int) -> int:
    if count == 0:
        raise ResponseTooLarge(
            f"a single row takes more than a response may ({call.most_bytes} bytes, FIRN_LIMITS__RESPONSE_BYTES); "
            "request fewer columns, or text/csv or an Arrow stream by the Accept header"
        )
    return count
