"""Periods of days, and dates in file names."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.model.ingest.patterns import date_in, fill
from service.model.ingest.periods import Granularity, days_of, parse_period, period_of, periods_between

DAYS = st.dates(date(1970, 1, 1), date(2200, 12, 31))
GRANULARITIES: list[Granularity] = ["monthly", "weekly"]


@pytest.mark.parametrize(
    ("day", "monthly", "weekly"),
    [
        (date(2024, 1, 31), "2024-01", "2024-W05"),
        (date(2024, 12, 30), "2024-12", "2025-W01"),
        (date(2021, 1, 3), "2021-01", "2020-W53"),
    ],
)
def test_weeks_are_those_of_iso_8601(day: date, monthly: str, weekly: str) -> None:
    assert (period_of(day, "monthly"), period_of(day, "weekly")) == (monthly, weekly)


@given(DAYS, st.sampled_from(GRANULARITIES))
def test_every_day_is_in_one_period_whose_days_are_adjacent(day: date, granularity: Granularity) -> None:
    days = days_of(period_of(day, granularity))
    assert day in days
    assert {period_of(each, granularity) for each in days} == {period_of(day, granularity)}
    assert period_of(days[0] - timedelta(1), granularity) != period_of(day, granularity)
    assert period_of(days[-1] + timedelta(1), granularity) != period_of(day, granularity)


def test_periods_between_two_days_are_all_that_have_one_of_them() -> None:
    assert periods_between(date(2023, 12, 31), date(2024, 2, 1), "monthly") == ("2023-12", "2024-01", "2024-02")


@pytest.mark.parametrize("text", ["2024-13", "2024-1", "2024", "", "2024-W05", "2024-01-01", "2024-W54"])
def test_a_month_is_named_as_its_period_is(text: str) -> None:
    with pytest.raises(InvalidRequest, match="a month such as 2024-01"):
        parse_period(text, "monthly")


@pytest.mark.parametrize("text", ["2024-W00", "2021-W53", "2024-01", "2024-w05"])
def test_a_week_must_exist(text: str) -> None:
    with pytest.raises(InvalidRequest, match="an ISO week such as 2024-W05"):
        parse_period(text, "weekly")


PATTERNS = [
    "{date}.csv",
    "year={year}/month={month}/day={day}/data.parquet",
    "in/sales-{year}{month}{day}.csv.gz",
    "{date}/{date}.csv",
]


@given(DAYS, st.sampled_from(PATTERNS))
def test_a_date_is_found_where_it_was_written(day: date, pattern: str) -> None:
    assert date_in(pattern, fill(pattern, day)) == day


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("sales_{date}.csv", "sales_2024-01-1.csv"),
        ("sales_{date}.csv", "sales_2024-02-30.csv"),
        ("sales_{date}.csv", "other_2024-01-01.csv"),
        ("sales_{date}.csv", "sales_2024-01-01.csv.tmp"),
        ("{date}/{date}.csv", "2024-01-01/2024-01-02.csv"),
        ("{year}{month}{day}.csv", "2024011.csv"),
    ],
)
def test_a_name_that_does_not_fit_the_pattern_has_no_date(pattern: str, path: str) -> None:
    assert date_in(pattern, path) is None


def test_the_year_of_a_week_is_that_of_iso_8601() -> None:
    assert fill("{year}-W{week}.parquet", date(2024, 12, 30)) == "2025-W01.parquet"
