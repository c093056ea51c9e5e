"""How old the rows of a dynamic table may become: `5 minutes`, or `downstream`."""

import re

from service.errors import InvalidRequest

DOWNSTREAM = "downstream"
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_LAG = re.compile(r"\s*(\d{1,9})\s+(second|minute|hour|day)s?\s*", re.IGNORECASE)
_LONGEST_S = 366 * 86_400


def read_lag(text: str) -> int | None:
    """The seconds of a target lag; None for `downstream`. Raises ValueError, which says what is wrong."""
    if text.strip().lower() == DOWNSTREAM:
        return None
    found = _LAG.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text[:80]!r} is not a target lag; write a whole number and second, minute, hour or day, such as "
            "'5 minutes', or 'downstream'"
        )
    seconds = int(found[1]) * _SECONDS[found[2].lower()]
    if not 1 <= seconds <= _LONGEST_S:
        raise ValueError(f"{text.strip()!r} is not between '1 second' and '366 days'; choose another one")
    return seconds


def parse_target_lag(text: str, field: str = "target_lag") -> int | None:
    """The same for a field of a request; raises InvalidRequest."""
    try:
        return read_lag(text)
    except ValueError as e:
        raise InvalidRequest.at(field, str(e)) from e


def show_target_lag(seconds: int | None) -> str:
    """A target lag in the greatest unit of which it is a whole number."""
    if seconds is None:
        return DOWNSTREAM
    unit, size = next((unit, size) for unit, size in reversed(_SECONDS.items()) if seconds % size == 0)
    number = seconds // size
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
