"""The hours in which scheduled and automatic maintenance of a table may start: "01:00-05:30 Europe/Zurich"."""

import re
from datetime import datetime, time

from service.errors import InvalidRequest
from service.model.times import check_zone
from service.settings.kinds import WINDOW


def check_window(text: str, field: str = "window") -> None:
    """Raise InvalidRequest if the text is not a window, or has an unknown time zone."""
    if not re.fullmatch(WINDOW, text, re.ASCII):
        problem = f"{text[:80]!r} is not a window; write it as 01:00-05:30 Europe/Zurich, without a zone for UTC"
        raise InvalidRequest.at(field, problem)
    check_zone(_zone(text), field)


def in_window(text: str | None, now: datetime) -> bool:
    """Whether a time is inside a window, which excludes its end and may cross midnight.

    Without a window, or if it starts and ends at the same time, every time is inside.
    """
    if text is None:
        return True
    check_window(text)
    start, end = (time.fromisoformat(part) for part in text.partition(" ")[0].split("-"))
    clock = now.astimezone(check_zone(_zone(text), "window")).time()
    if start < end:
        return start <= clock < end
    return clock >= start or clock < end


def _zone(text: str) -> str:
    return text.partition(" ")[2] or "UTC"
