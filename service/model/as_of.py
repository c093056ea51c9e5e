"""How requests name a state of a table: by a snapshot's id, a time, or a tag."""

from datetime import UTC, datetime
from typing import TypeAlias

Moment: TypeAlias = int | datetime | str
"""A snapshot's id, a time with its zone, or the name of a tag."""


def moment(value: int | str) -> Moment:
    """Read a request's value. Up to 19 digits are an id, which is a 64-bit number; a text that can be a time is a time;
    anything else is a tag."""
    if isinstance(value, int):
        return value
    if value.isascii() and value.isdigit():
        return int(value) if len(value) <= 19 else value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return value
    return time if time.tzinfo else time.replace(tzinfo=UTC)
