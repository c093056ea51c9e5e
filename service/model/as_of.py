"""How requests name a state of a table: by a snapshot's id, a time, or a tag."""

from datetime import UTC, datetime
from typing import TypeAlias

Moment: TypeAlias = int | datetime | str
"""A snapshot's id, a time with its zone, or the name of a tag."""

# The digits of the largest 64-bit number, which every id is.
_MOST_DIGITS = 19


def moment(value: int | str) -> Moment:
    """Read a request's value. Digits are an id, unless there are too many, and what reads as a time is a time, whatever
    tags exist; anything else is a tag."""
    if isinstance(value, int):
        return value
    if value.isascii() and value.isdigit():
        return int(value) if len(value) <= _MOST_DIGITS else value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return value
    return time if time.tzinfo else time.replace(tzinfo=UTC)
