"""Which periods of a table are complete, and which are due to be merged: pure functions of the days ingested."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from service.model.ingest.periods import Granularity, days_of, period_of, periods_between
from service.model.ingest.table_file import Compaction


@dataclass(frozen=True)
class DuePeriod:
    """A period that can be merged now."""

    period: str
    missing: tuple[date, ...]
    """Its days that were not ingested; without any it is complete."""


def missing_days(period: str, ingested: Collection[date]) -> tuple[date, ...]:
    """The days of a period that were not ingested, in order."""
    return tuple(day for day in days_of(period) if day not in ingested)


def gaps(ingested: Collection[date]) -> tuple[date, ...]:
    """The days between the first and the last that were not ingested, in order."""
    if not ingested:
        return ()
    first, last = min(ingested), max(ingested)
    days = (first + timedelta(i) for i in range((last - first).days))
    return tuple(day for day in days if day not in ingested)


def due_periods(ingested: Collection[date], compaction: Compaction, today: date) -> list[DuePeriod]:
    """The periods with days that were ingested, which ended `delay_days` ago, within the last `lookback_months`.

    The months are counted back from `delay_days` ago, so that a period that becomes due late is not passed over.
    """
    if not ingested:
        return []
    reference = today - timedelta(compaction.trigger.delay_days)
    first, lookback = min(ingested), compaction.strategy.lookback_months
    if lookback is not None:
        first = max(first, _months_before(reference, lookback))
    granularity: Granularity = compaction.strategy.type
    had = {period_of(day, granularity) for day in ingested}
    due = (p for p in periods_between(first, reference, granularity) if p in had and days_of(p)[-1] < reference)
    return [DuePeriod(period, missing_days(period, ingested)) for period in due if days_of(period)[-1] >= first]


def shown_days(days: Iterable[date], most: int = 10) -> str:
    """Days for people: ranges such as `2024-01-03 to 2024-01-05, 2024-01-09`; at most so many of them."""
    ranges: list[list[date]] = []
    for day in sorted(days):
        if ranges and ranges[-1][-1] + timedelta(1) == day:
            ranges[-1][1:] = [day]
        else:
            ranges.append([day])
    texts = [" to ".join(map(str, each)) for each in ranges]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _months_before(day: date, months: int) -> date:
    """The first day of the month that is so many months before that of a day."""
    number = day.year * 12 + day.month - 1 - months
    return date(max(number // 12, 1), number % 12 + 1, 1)
