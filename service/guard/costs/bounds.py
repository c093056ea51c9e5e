"""Bounds of values: how large a value of an expression can be, and between which numbers it lies."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from service.guard.costs.limits import ASSUMED_ITEMS, ASSUMED_NUMBER, ASSUMED_TEXT

NUMBER_BYTES = 8.0
DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_WHOLE = re.compile(r"\s*[+-]?\d{1,40}\s*")
_LARGEST = {"byte": 2.0**7, "short": 2.0**15, "integer": 2.0**31, "long": 2.0**63}
_TEMPORAL = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class Bound:
    """What is known of the values of an expression."""

    size: float = NUMBER_BYTES
    """The most bytes."""
    low: float = -ASSUMED_NUMBER
    high: float = ASSUMED_NUMBER
    """The range of a number; of a date in days, of a time in microseconds."""
    items: float = 1.0
    """The most elements of an array or a map."""
    element: "Bound | None" = None
    """Of what is inside: all elements, keys and values, or fields."""
    text: str | None = None
    """The value, if it is a literal text."""
    known: bool = False
    """Whether it depends on no table."""

    @property
    def inside(self) -> "Bound":
        """What is inside it, or itself if that is not known."""
        return self.element or self


def literal(value: str | None, kind: Any) -> Bound:
    """The bound of a literal, as the JSON has its value and type."""
    if value is None:
        return Bound(0, 0, 0, known=True)
    if kind == "string" or (isinstance(kind, str) and kind.startswith(("string", "char", "varchar"))):
        low, high = number_in(value)
        return Bound(len(value.encode()), low, high, text=value, known=True)
    found = _number(value, str(kind))
    if found is not None:
        return Bound(NUMBER_BYTES, found, found, known=True)
    return Bound(max(float(len(value)), ASSUMED_TEXT), known=True)


def number_in(text: str) -> tuple[float, float]:
    """The range of the number that a text may be cast to."""
    if _WHOLE.fullmatch(text):
        return float(text), float(text)
    found = _number(text.strip(), "double")
    if found is None:
        found = _number(text.strip(), "date" if len(text.strip()) <= 10 else "timestamp")
    return (0.0, 0.0) if found is None else (found, found)


def _number(value: str, kind: str) -> float | None:
    """The number of a literal: of a date its day, of a time its microsecond, of an interval its microseconds."""
    try:
        found = float(value)
    except ValueError:
        return interval(value) if kind.startswith("interval") else _moment(value, kind)
    if kind.startswith(("interval year", "interval month")):
        return found * _UNITS["MONTH"]
    return found if math.isfinite(found) else None


def _moment(value: str, kind: str) -> float | None:
    if kind not in _TEMPORAL:
        return None
    try:
        if kind == "date":
            return float(date.fromisoformat(value[:10]).toordinal() - _EPOCH)
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    since = found.replace(tzinfo=None) - datetime(1970, 1, 1)
    return float(since.days * DAY + since.seconds * 1_000_000 + since.microseconds)


_UNITS = {"YEAR": 365 * DAY, "MONTH": 28 * DAY, "DAY": DAY, "HOUR": DAY // 24, "MINUTE": 60_000_000}
_UNITS |= {"WEEK": 7 * DAY, "SECOND": 1_000_000, "MILLISECOND": 1000, "MICROSECOND": 1}
_PART = re.compile(r"(-?\d+(?:\.\d+)?)\s*(year|month|week|day|hour|minute|second|millisecond|microsecond)s?\b", re.I)
_ANSI = re.compile(r"INTERVAL '([^']+)' (\w+)(?: TO (\w+))?", re.I)


def interval(value: str) -> float | None:
    """An interval in microseconds, at least about; None if it cannot be read."""
    ansi = _ANSI.fullmatch(value)
    if ansi is None:
        parts = _PART.findall(value)
        return sum(float(n) * _UNITS[unit.upper()] for n, unit in parts) if parts else None
    first, total = ansi[2].upper(), 0.0
    names = list(("YEAR", "MONTH") if first in ("YEAR", "MONTH") else ("DAY", "HOUR", "MINUTE", "SECOND"))
    numbers = re.findall(r"\d+(?:\.\d+)?", ansi[1])
    for name, number in zip(names[names.index(first) :] if first in names else (), numbers, strict=False):
        total += float(number) * _UNITS[name]
    return -total if ansi[1].startswith("-") else total


def column(kind: Any) -> Bound:
    """What is assumed of a column of this type."""
    if isinstance(kind, dict):
        match kind.get("type"):
            case "array":
                return array(column(kind.get("elementType")), ASSUMED_ITEMS)
            case "map":
                return array(hull([column(kind.get("keyType")), column(kind.get("valueType"))]), ASSUMED_ITEMS)
            case "struct":
                fields = [column(field["type"]) for field in kind["fields"]]
                return record(fields)
    if kind in ("string", "binary") or str(kind).startswith(("char", "varchar", "string")):
        return Bound(ASSUMED_TEXT)
    return Bound()


def array(element: Bound, items: float, size: float | None = None) -> Bound:
    """An array or map with so many elements."""
    items = max(items, 0.0)
    total = items * max(element.size, 1.0) if size is None else size
    return Bound(total, element.low, element.high, items, element, known=element.known)


def record(fields: Iterable[Bound]) -> Bound:
    """A struct."""
    found = list(fields)
    inside = hull(found)
    return Bound(sum(f.size for f in found), inside.low, inside.high, 1.0, inside, known=inside.known)


def hull(bounds: Iterable[Bound]) -> Bound:
    """The bound of a value that is one of several."""
    found = list(bounds)
    if not found:
        return Bound(0, 0, 0, known=True)
    if len(found) == 1:
        return found[0]
    inside = [one.element for one in found if one.element is not None]
    return Bound(
        max(one.size for one in found),
        min(one.low for one in found),
        max(one.high for one in found),
        max(one.items for one in found),
        hull(inside) if inside else None,
        known=all(one.known for one in found),
    )


def numbers(low: float, high: float, args: Iterable[Bound]) -> Bound:
    """A number in this range, made of these arguments."""
    low, high = -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high
    return Bound(NUMBER_BYTES, min(low, high), max(low, high), known=all(one.known for one in args))


def full_range(kind: Any, bound: Bound) -> Bound:
    """The same after a cast to a number of this type."""
    largest = _LARGEST.get(str(kind))
    if largest is None:
        return bound
    return replace(bound, low=max(bound.low, -largest), high=min(bound.high, largest))
