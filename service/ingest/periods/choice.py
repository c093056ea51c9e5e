"""Which periods a COMPACT merges: the one that it names if it is complete, or all that are due."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from service.errors import InvalidRequest
from service.ingest.due import due_periods, missing_days, shown_days
from service.model.ingest.periods import days_of, parse_period
from service.model.ingest.table_file import TableFile

DUE = "due"


@dataclass(frozen=True)
class SkippedPeriod:
    """A period that is due, but not merged."""

    period: str
    missing: tuple[date, ...]
    reason: str


@dataclass(frozen=True)
class PeriodChoice:
    """The periods to merge, and those that are skipped."""

    periods: tuple[str, ...]
    skipped: tuple[SkippedPeriod, ...] = ()
    reason: str | None = None
    """Why there is none to merge."""


def choose_periods(
    wanted: str,
    config: TableFile,
    ingested: Collection[date],
    today: date,
    *,
    allow_incomplete: bool = False,
    force: bool = False,
) -> PeriodChoice:
    """The periods that a request names. InvalidRequest if it names one that cannot be merged."""
    disabled = not config.compaction.enabled and not force
    if wanted != DUE:
        period = parse_period(wanted, config.granularity)
        if disabled:
            raise InvalidRequest.at(
                "period", "compaction is disabled in the table file; force: true merges the period all the same"
            )
        _check_complete(period, ingested, allow_incomplete)
        return PeriodChoice((period,))
    if disabled:
        return PeriodChoice((), reason="compaction is disabled in the table file; force: true merges all the same")
    due = due_periods(ingested, config.compaction, today)
    merged = tuple(one.period for one in due if allow_incomplete or not one.missing)
    skipped = tuple(
        SkippedPeriod(one.period, one.missing, f"incomplete: nothing was ingested for {shown_days(one.missing)}")
        for one in due
        if one.missing and not allow_incomplete
    )
    return PeriodChoice(merged, skipped, None if due else "no period is due")


def _check_complete(period: str, ingested: Collection[date], allow_incomplete: bool) -> None:
    missing = missing_days(period, ingested)
    days = len(days_of(period))
    if len(missing) == days:
        raise InvalidRequest.at("period", f"nothing was ingested for {period}, so there is nothing to merge")
    if missing and not allow_incomplete:
        raise InvalidRequest(
            f"period: {period} is incomplete: nothing was ingested for {len(missing)} of its {days} days, "
            f"{shown_days(missing)}; ingest them first, or send allow_incomplete: true",
            field="period",
            details={"period": period, "missing_dates": [str(day) for day in missing]},
        )
