"""How requests name a state of a table, always in the same way: by a snapshot's id, a time, or the name of a tag or
backup. `service/catalog/as_of.py` finds the state."""

from datetime import UTC, datetime
from typing import TypeAlias

AsOf: TypeAlias = int | str
"""A state as a request names it."""
Moment: TypeAlias = int | datetime | str
"""A snapshot's id, a time with its zone, or the name of a tag."""


AS_OF = "a snapshot id, a time, or the name of a tag or backup"


def moment(value: AsOf) -> Moment:
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
