"""When upkeep may begin by itself: hours of the day by the clock of a place, such as `01:00-05:30 Europe/Zurich`."""

from datetime import UTC, datetime, time, tzinfo
from zoneinfo import ZoneInfo


def in_window(window: str | None, now: datetime) -> bool:
    """Whether a moment lies in a window; without one, always. A window may pass midnight."""
    if window is None:
        return True
    hours, _, place = window.partition(" ")
    begin, end = (time.fromisoformat(hour) for hour in hours.split("-"))
    zone: tzinfo = ZoneInfo(place) if place else UTC
    at = now.astimezone(zone).time()
    if begin < end:
        return begin <= at < end
    return at >= begin or at < end
