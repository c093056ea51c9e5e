"""The dates of a backfill, and the pattern of their files."""

from datetime import date

import pytest

from service.errors import InvalidRequest
from service.ingest.day_files import FileOutcome
from service.ingest.tasks.backfill import MOST_DAYS, Backfill, DayOutcome, counted

FIRST = date(2024, 2, 28)


def test_every_date_is_in_the_range_with_both_ends() -> None:
    days = Backfill("{date}", FIRST, date(2024, 3, 1)).days()
    assert [day.day for day in days] == [28, 29, 1]
    assert Backfill("{date}", FIRST, FIRST).days() == [FIRST]


@pytest.mark.parametrize("last", [date(2024, 2, 27), date.fromordinal(FIRST.toordinal() + MOST_DAYS)])
def test_a_range_without_dates_or_with_too_many_is_refused(last: date) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Backfill("{date}", FIRST, last).days()
    assert refused.value.field == "to"


@pytest.mark.parametrize("pattern", ["a_{date}.csv", "s3://b/{year}/{month}/{day}.csv", "{year}/{date}.csv"])
def test_a_pattern_gives_each_date_a_path_of_its_own(pattern: str) -> None:
    Backfill(pattern, FIRST, FIRST).check_pattern()


@pytest.mark.parametrize("pattern", ["a.csv", "{year}-{month}.csv", "{week}_{date}.csv", "{}_{date}.csv"])
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Backfill(pattern, FIRST, FIRST).check_pattern()
    assert refused.value.field == "source"


def test_dates_are_counted_by_their_state() -> None:
    file = FileOutcome(FIRST, "2024-02", "a")
    found = [DayOutcome(FIRST, "ingested", "a", file), DayOutcome(FIRST, "missing", "b")] * 2
    assert counted(found) == {"ingested": 2, "unchanged": 0, "missing": 2, "failed": 0}
