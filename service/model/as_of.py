"""A state of a table as requests name it: a snapshot's id, a time, or a tag."""

from datetime import UTC, datetime
from typing import TypeAlias

Moment: TypeAlias = int | datetime | str
"""A snapshot's id, a time with its zone, or the name of a tag."""

# Of a number of 64 bits, which every id is.
_MOST_DIGITS = 19


def moment(value: int | str) -> Moment:
    """What a request's value names. Digits are an id and what reads as a time is one, whatever tags there are; more
    digits than an id has are a name."""
    if isinstance(value, int):
        return value
    if value.isascii() and value.isdigit():
        return int(value) if len(value) <= _MOST_DIGITS else value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return value
    return time if time.tzinfo else time.replace(tzinfo=UTC)
