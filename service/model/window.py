"""The hours of the day in which scheduled and automatic upkeep of a table may begin: "01:00-05:30 Europe/Zurich"."""

import re
from datetime import datetime, time

from service.errors import InvalidRequest
from service.settings import WINDOW
from service.upkeep.zones import check_zone


def check_window(text: str, field: str = "window") -> None:
    """Refuse what is no window, or is one of no known place."""
    if not re.fullmatch(WINDOW, text, re.ASCII):
        raise InvalidRequest(
            f"{field} {text[:80]!r} is no window; write it as 01:00-05:30 Europe/Zurich, without a place for UTC",
            field=field,
        )
    check_zone(_place(text), field)


def in_window(text: str | None, now: datetime) -> bool:
    """Whether a moment lies in a window by the clock of its place; the end is outside, and may be past midnight.

    A window that ends when it begins is the whole day, and so is none.
    """
    if text is None:
        return True
    check_window(text)
    begin, end = (time.fromisoformat(part) for part in text.partition(" ")[0].split("-"))
    clock = now.astimezone(check_zone(_place(text), "window")).time()
    if begin < end:
        return begin <= clock < end
    return clock >= begin or clock < end


def _place(text: str) -> str:
    return text.partition(" ")[2] or "UTC"
