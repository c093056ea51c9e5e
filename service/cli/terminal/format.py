"""Values of a response as people read them."""

import json
from datetime import UTC, datetime
from typing import Any


def format_value(value: Any) -> str:
    """A value that Firn reports, as a cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def format_data(value: Any) -> str:
    """A value of a table's row, as a cell: null differs from an empty text."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return format_value(value)


def format_number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """`1 file`, `2 files`; `many` is the plural of a noun that does not just get an s."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def format_size(size: float | None) -> str:
    """Bytes in a unit that fits."""
    if size is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def format_duration(ms: float) -> str:
    """A duration as `0:07`, `12:30` or `1:02:30`."""
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_time(value: str | None) -> str:
    """A time of a response, in UTC and to the minute."""
    if value is None:
        return "-"
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
    except ValueError:
        return value
