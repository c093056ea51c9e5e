"""A state of a table as requests name it: a snapshot's id, a time, or a tag."""

from datetime import UTC, datetime
from typing import TypeAlias

Moment: TypeAlias = int | datetime | str
"""A snapshot's id, a time with its zone, or the name of a tag."""


def moment(value: int | str) -> Moment:
    """What a request's value names. Digits are an id and what reads as a time is one, whatever tags there are."""
    if isinstance(value, int):
        return value
    if value.isascii() and value.isdigit():
        return int(value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return value
    return time if time.tzinfo else time.replace(tzinfo=UTC)
