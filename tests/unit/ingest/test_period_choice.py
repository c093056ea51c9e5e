"""Which periods a COMPACT merges."""

from datetime import date, timedelta
from typing import Any

import pytest

from service.errors import InvalidRequest
from service.ingest.periods.choice import choose_periods
from service.ingest.periods.files import PeriodFiles
from service.model.ingest.table_file import TableFile

TODAY = date(2024, 3, 20)


def days(first: str, count: int) -> set[date]:
    return {date.fromisoformat(first) + timedelta(i) for i in range(count)}


def config(**compaction: Any) -> TableFile:
    return TableFile.model_validate({"name": "sales", "compaction": compaction})


def test_a_complete_period_is_merged_by_its_name() -> None:
    assert choose_periods("2024-01", config(), days("2024-01-01", 31), TODAY).periods == ("2024-01",)


def test_an_incomplete_period_is_refused_with_every_missing_date_unless_that_is_allowed() -> None:
    had = days("2024-01-01", 31) - {date(2024, 1, 3), date(2024, 1, 4), date(2024, 1, 9)}
    with pytest.raises(InvalidRequest, match="2024-01-03 to 2024-01-04, 2024-01-09") as refused:
        choose_periods("2024-01", config(), had, TODAY)
    assert (refused.value.details or {})["missing_dates"] == ["2024-01-03", "2024-01-04", "2024-01-09"]
    assert choose_periods("2024-01", config(), had, TODAY, allow_incomplete=True).periods == ("2024-01",)


def test_a_period_without_any_date_is_refused_even_if_incomplete_ones_are_allowed() -> None:
    with pytest.raises(InvalidRequest, match="nothing was ingested for 2023-12"):
        choose_periods("2023-12", config(), days("2024-01-01", 31), TODAY, allow_incomplete=True)


@pytest.mark.parametrize("period", ["2024-W05", "2024-1", "2024-13", "january", ""])
def test_a_period_that_the_table_cannot_have_is_refused(period: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        choose_periods(period, config(), days("2024-01-01", 31), TODAY)
    assert refused.value.field == "period"


def test_due_takes_complete_periods_and_says_what_it_skips() -> None:
    had = days("2024-01-01", 31) | days("2024-02-01", 28) | days("2024-03-01", 10)
    chosen = choose_periods("due", config(), had, TODAY)
    assert chosen.periods == ("2024-01",)
    assert [(one.period, one.missing) for one in chosen.skipped] == [("2024-02", (date(2024, 2, 29),))]
    assert choose_periods("due", config(), had, TODAY, allow_incomplete=True).periods == ("2024-01", "2024-02")


def test_due_honours_the_delay() -> None:
    had = days("2024-01-01", 60)
    late = config(trigger={"delay_days": 30})
    assert choose_periods("due", late, had, TODAY).periods == ("2024-01",)


def test_a_table_whose_compaction_is_disabled_is_merged_only_by_force() -> None:
    had, off = days("2024-01-01", 31), config(enabled=False)
    with pytest.raises(InvalidRequest, match="compaction is disabled"):
        choose_periods("2024-01", off, had, TODAY)
    assert "disabled" in (choose_periods("due", off, had, TODAY).reason or "")
    assert choose_periods("due", off, had, TODAY, force=True).periods == ("2024-01",)


@pytest.mark.parametrize(
    ("count", "size", "days", "merged"),
    [
        (1, 50, 31, True),
        (2, 50, 31, False),
        (2, 150, 31, True),
        (31, 3100, 31, False),
        (1, 50, 1, False),
        (0, 0, 0, False),
    ],
)
def test_a_period_is_merged_if_its_files_are_as_few_as_the_target_size_allows(
    count: int, size: int, days: int, merged: bool
) -> None:
    files = PeriodFiles(tuple(f"{i}" for i in range(count)), bytes=size)
    assert files.is_merged(days, target_bytes=100) is merged
