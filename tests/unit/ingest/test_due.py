"""When a period is complete, and when it is due."""

from datetime import date, timedelta

import pytest

from service.ingest.due import due_periods, gaps, missing_days, shown_days
from service.model.ingest.table_file import Compaction


def days(first: date, last: date) -> set[date]:
    return {first + timedelta(i) for i in range((last - first).days + 1)}


def rules(type: str = "monthly", delay_days: int = 0, lookback_months: int | None = None) -> Compaction:
    strategy = {"type": type, "lookback_months": lookback_months}
    return Compaction.model_validate({"trigger": {"delay_days": delay_days}, "strategy": strategy})


YEAR = days(date(2024, 1, 1), date(2024, 12, 31))


@pytest.mark.parametrize(
    ("today", "delay_days", "lookback_months", "due"),
    [
        (date(2024, 2, 1), 0, 1, ["2024-01"]),
        (date(2024, 1, 31), 0, 1, []),
        (date(2024, 2, 7), 7, 1, []),
        (date(2024, 2, 8), 7, 1, ["2024-01"]),
        (date(2024, 3, 1), 7, 1, ["2024-01"]),  # February is due on the 8th
        (date(2024, 4, 1), 7, 1, ["2024-02"]),
        (date(2024, 4, 1), 0, 2, ["2024-02", "2024-03"]),
        (date(2024, 4, 1), 0, None, ["2024-01", "2024-02", "2024-03"]),
        (date(2026, 1, 1), 0, 1, []),
    ],
)
def test_a_month_is_due_some_days_after_its_end(
    today: date, delay_days: int, lookback_months: int | None, due: list[str]
) -> None:
    found = due_periods(YEAR, rules(delay_days=delay_days, lookback_months=lookback_months), today)
    assert [each.period for each in found] == due


def test_a_run_on_every_first_of_the_month_passes_no_month_over() -> None:
    firsts = [date(2024 + m // 12, m % 12 + 1, 1) for m in range(1, 15)]
    found = [p.period for today in firsts for p in due_periods(YEAR, rules(delay_days=7, lookback_months=1), today)]
    assert found == [f"2024-{m:02}" for m in range(1, 13)]


def test_weeks_are_due_when_they_have_ended() -> None:
    found = due_periods(YEAR, rules("weekly", lookback_months=1), date(2024, 2, 6))
    assert [each.period for each in found] == ["2024-W01", "2024-W02", "2024-W03", "2024-W04", "2024-W05"]


def test_a_period_without_any_file_is_not_due_and_an_incomplete_one_names_its_missing_days() -> None:
    ingested = days(date(2024, 1, 1), date(2024, 1, 31)) - {date(2024, 1, 9)} | days(
        date(2024, 3, 1), date(2024, 3, 31)
    )
    found = due_periods(ingested, rules(), date(2024, 6, 1))
    assert [(each.period, each.missing) for each in found] == [("2024-01", (date(2024, 1, 9),)), ("2024-03", ())]
    assert missing_days("2024-02", ingested) == tuple(sorted(days(date(2024, 2, 1), date(2024, 2, 29))))


def test_gaps_are_the_missing_days_between_the_first_and_the_last() -> None:
    assert gaps(YEAR - {date(2024, 5, 5)}) == (date(2024, 5, 5),)
    assert gaps({date(2024, 1, 1)}) == gaps(()) == ()


def test_adjacent_days_are_shown_as_a_range() -> None:
    shown = [date(2024, 1, d) for d in (3, 4, 5, 9)]
    assert shown_days(shown) == "2024-01-03 to 2024-01-05, 2024-01-09"
    assert shown_days(shown, most=1) == "2024-01-03 to 2024-01-05 and 1 more"
