"""The hours in which scheduled and automatic upkeep of a table may begin."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.model.window import check_window, in_window

clocks = st.times().map(lambda t: t.replace(second=0, microsecond=0))


@pytest.mark.parametrize(
    ("window", "at", "inside"),
    [
        ("01:00-05:30", "2026-01-15T01:00:00", True),
        ("01:00-05:30", "2026-01-15T00:59:59", False),
        ("01:00-05:30", "2026-01-15T05:29:59", True),
        ("01:00-05:30", "2026-01-15T05:30:00", False),
        ("22:00-04:00", "2026-01-15T23:00:00", True),
        ("22:00-04:00", "2026-01-15T03:59:00", True),
        ("22:00-04:00", "2026-01-15T04:00:00", False),
        ("22:00-04:00", "2026-01-15T12:00:00", False),
        ("00:00-00:00", "2026-01-15T12:00:00", True),
        (None, "2026-01-15T12:00:00", True),
        ("01:00-05:30 Europe/Zurich", "2026-01-15T00:30:00", True),  # 01:30 there
        ("01:00-05:30 Europe/Zurich", "2026-01-15T04:45:00", False),
        ("01:00-05:30 Europe/Zurich", "2026-07-15T23:15:00", True),  # in summer
        ("01:00-05:30 America/New_York", "2026-01-15T06:30:00", True),
    ],
)
def test_a_window_is_one_of_the_clock_of_its_place_without_its_end(window: str | None, at: str, inside: bool) -> None:
    assert in_window(window, datetime.fromisoformat(at).replace(tzinfo=UTC)) is inside


@given(begin=clocks, end=clocks, minutes=st.integers(0, 1440 * 400), zone=st.sampled_from(["UTC", "Europe/Zurich"]))
def test_a_moment_lies_in_a_window_or_in_its_opposite(begin: object, end: object, minutes: int, zone: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(minutes=minutes)
    window, opposite = f"{begin:%H:%M}-{end:%H:%M} {zone}", f"{end:%H:%M}-{begin:%H:%M} {zone}"
    if begin == end:
        assert in_window(window, now)
    else:
        assert in_window(window, now) is not in_window(opposite, now)


@pytest.mark.parametrize("good", ["01:00-05:30", "23:59-00:00 Europe/Zurich", "00:00-00:00 Etc/GMT+5"])
def test_a_window_with_a_known_place_is_taken(good: str) -> None:
    check_window(good)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("1:00-05:30", "write it as 01:00-05:30 Europe/Zurich"),
        ("01:00-24:00", "write it as"),
        ("01:00", "write it as"),
        ("01:00-05:30\n", "write it as"),
        ("٠١:٠٠-٠٥:٣٠", "write it as"),
        ("01:00-05:30 Europe/Zuric", "did you mean 'Europe/Zurich'"),
        ("01:00-05:30 ../../etc", "write it as"),
    ],
)
def test_any_other_window_is_refused_by_its_field(bad: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        check_window(bad, "compaction.window")
    assert refused.value.field == "compaction.window"
