"""Periods: the months or weeks whose days an ingestion table merges into one file."""

import re
from datetime import date, timedelta
from typing import Literal

from service.errors import InvalidRequest

Granularity = Literal["monthly", "weekly"]
_MONTH, _WEEK = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])"), re.compile(r"([0-9]{4})-W([0-9]{2})")
_FORMS = {"monthly": "a month such as 2024-01", "weekly": "an ISO week such as 2024-W05"}
_DAY = timedelta(days=1)


def period_of(day: date, granularity: Granularity) -> str:
    """The period of a day: `2024-01`, or `2024-W05`. The first days of January may be in a week of the year before."""
    if granularity == "monthly":
        return f"{day:%Y-%m}"
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


def parse_period(text: str, granularity: Granularity, field: str = "period") -> str:
    """The period that a request names; InvalidRequest if there is none of that name."""
    try:
        found = days_of(text)
    except ValueError:
        found = ()
    if not found or period_of(found[0], granularity) != text:
        raise InvalidRequest.at(field, f"{text[:80]!r} is not a period of this table; send {_FORMS[granularity]}")
    return text


def days_of(period: str) -> tuple[date, ...]:
    """All days of a period, in order. ValueError if there is no such period."""
    if month := _MONTH.fullmatch(period):
        first = date(int(month[1]), int(month[2]), 1)
        return _days(first, _next_month(first))
    if week := _WEEK.fullmatch(period):
        first = date.fromisocalendar(int(week[1]), int(week[2]), 1)
        return tuple(first + _DAY * i for i in range(7))
    raise ValueError(f"{period!r} is not a period")


def periods_between(first: date, last: date, granularity: Granularity) -> tuple[str, ...]:
    """The periods of the days from `first` to `last`, in order, without repeats."""
    return tuple(dict.fromkeys(period_of(day, granularity) for day in _days(first, last + _DAY)))


def _days(first: date, end: date) -> tuple[date, ...]:
    return tuple(first + _DAY * i for i in range((end - first).days))


def _next_month(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)
