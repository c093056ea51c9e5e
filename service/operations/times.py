"""Milliseconds since 1970 as the times of responses."""

from datetime import UTC, datetime


def utc_time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def utc_time_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else utc_time(ms)
