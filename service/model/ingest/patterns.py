"""File names with a date in them: the pattern of daily files, of period files, and of files to ingest."""

import re
from collections.abc import Sequence
from datetime import date, datetime

PARTS = ("date", "year", "month", "day", "week")
_PLACE = re.compile(r"\{([^{}]*)\}")
_FORMS = {"year": "%Y", "month": "%m", "day": "%d", "week": "%V"}
_DIGITS = {"%Y": "[0-9]{4}", "%m": "[0-9]{2}", "%d": "[0-9]{2}", "%y": "[0-9]{2}", "%j": "[0-9]{3}", "%V": "[0-9]{2}"}


def parts_of(pattern: str) -> list[str]:
    """What a pattern has in braces, in order."""
    return _PLACE.findall(pattern)


def check_pattern(pattern: str, needed: Sequence[str], known: Sequence[str] = PARTS) -> str:
    """The pattern of a file's path; ValueError unless it is relative and names all `needed` parts of a date."""
    found = parts_of(pattern)
    unknown = next((part for part in found if part not in known), None)
    if unknown is not None or "{" in _PLACE.sub("", pattern) or "}" in _PLACE.sub("", pattern):
        raise ValueError(f"{{{unknown or ''}}} is not a part of a date; use {_braced(known)}")
    if missing := [part for part in needed if part not in found]:
        raise ValueError(f"it must contain {_braced(missing)}, or files of different dates would have one name")
    if "*" in pattern or "?" in pattern:
        raise ValueError("it cannot have wildcards: each date has one file")
    if not pattern or pattern.startswith(("/", "~")) or ".." in pattern.split("/") or "//" in pattern or ":" in pattern:
        raise ValueError("it must be a relative path below the folder, without '..'")
    return pattern


def check_paths_of_days(pattern: str) -> None:
    """Raise ValueError unless each date has a path of its own."""
    found, known = set(parts_of(pattern)), {"date", "year", "month", "day"}
    if unknown := found - known:
        raise ValueError(
            f"{{{min(unknown)}}} is not a part of a date; use {{date}}, or {{year}}, {{month}} and {{day}}"
        )
    if "date" not in found and not found >= known - {"date"}:
        raise ValueError("it must contain {date}, or {year}, {month} and {day}: each date has a file of its own")


def check_date_format(text: str) -> str:
    """A format of `strftime` in which every day has a text of its own that can be read again; ValueError if not."""
    samples = (date(2024, 1, 2), date(2024, 2, 1), date(2023, 12, 31), date(1999, 10, 11))
    for day in samples:
        try:
            read = datetime.strptime(day.strftime(text), text).date()
        except ValueError as e:
            raise ValueError(f"{text!r} is not a date format; use one such as %Y-%m-%d") from e
        if read != day:
            raise ValueError(f"{text!r} does not tell every day from every other; use year, month and day")
    if "/" in text:
        raise ValueError(f"{text!r} contains a slash, which file names cannot; use one such as %Y-%m-%d")
    return text


def fill(pattern: str, day: date, date_format: str = "%Y-%m-%d") -> str:
    """The path of a day, or of the period that the day is in. The year of a week is that of ISO 8601."""
    year = "%G" if "{week}" in pattern else "%Y"
    forms = {**_FORMS, "year": year, "date": date_format}
    return _PLACE.sub(lambda found: day.strftime(forms[found[1]]), pattern)


def date_in(pattern: str, path: str, date_format: str = "%Y-%m-%d") -> date | None:
    """The date that a path has by a pattern; None if it does not fit the pattern."""
    names: list[str] = []

    def group(found: re.Match[str]) -> str:
        names.append(found[1])
        return f"({_written(date_format if found[1] == 'date' else _FORMS[found[1]])})"

    parts = re.split(r"(\{[^{}]*\})", pattern)
    text = "".join(_PLACE.sub(group, part) if _PLACE.fullmatch(part) else re.escape(part) for part in parts)
    found = re.fullmatch(text, path)
    if found is None:
        return None
    values = list(zip(names, found.groups(), strict=True))
    if any(first != second for name, first in values for other, second in values if name == other):
        return None
    given = dict(values)
    try:
        if "date" in given:
            read = datetime.strptime(given["date"], date_format).date()
        else:
            read = date(int(given["year"]), int(given["month"]), int(given["day"]))
    except (KeyError, ValueError):
        return None
    # What strptime reads may be written in another way: 2024-1-2 is not this pattern's 2024-01-02.
    return read if all(read.strftime({**_FORMS, "date": date_format}[n]) == text for n, text in values) else None


def _written(date_format: str) -> str:
    """A regular expression for dates of a format."""
    parts = re.findall(r"%.|[^%]+", date_format)
    return "".join(_DIGITS.get(part, "[^/]+?") if part[0] == "%" else re.escape(part) for part in parts)


def _braced(parts: Sequence[str]) -> str:
    return ", ".join(f"{{{part}}}" for part in parts)
