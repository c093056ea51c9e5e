"""Find IANA time zones by name."""

from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from service.errors import InvalidRequest, nearest


def check_zone(name: str, field: str) -> ZoneInfo:
    """The zone of this name; InvalidRequest, with the nearest name, if there is none."""
    if name not in _names():
        near = _nearest(name)
        hint = f"did you mean {near!r}?" if near else "write it as Europe/Zurich, or UTC"
        raise InvalidRequest.at(field, f"{name[:80]!r} is not a time zone; {hint}", near)
    return ZoneInfo(name)


def _nearest(name: str) -> str | None:
    """The nearest zone, by its whole name or by its town."""
    towns = {full.rpartition("/")[2]: full for full in sorted(_names())}
    found = nearest(name, _names() if "/" in name else towns)
    return found and towns.get(found, found)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones())
