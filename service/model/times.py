"""Times as the ledger and Iceberg have them, whole milliseconds since 1970; and IANA time zones by name."""

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from service.errors import InvalidRequest, nearest

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def as_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def utc_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else utc(ms)


def read_time_ms(text: str, field: str) -> int:
    """A time in a request; without a zone it is in UTC. A time between two milliseconds is after the first of them."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = moment - datetime.fromtimestamp(0, UTC)
    except (ValueError, OverflowError) as e:
        raise InvalidRequest(
            f"{field}: {text[:80]!r} is not a time; send it as 2024-01-31T12:00:00Z", field=field
        ) from e
    return -(-since // timedelta(milliseconds=1))


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
