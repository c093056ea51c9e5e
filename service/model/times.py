"""Times as the ledger and Iceberg have them: whole milliseconds since 1970."""

import time
from datetime import UTC, datetime

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def utc(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def as_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def utc_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else utc(ms)
