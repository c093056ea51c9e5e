"""A window is hours of the day by the clock of a place; both ends by the minute, the later one not in it."""

from datetime import UTC, datetime

import pytest

from service.upkeep.window import in_window


@pytest.mark.parametrize(
    ("window", "hour", "inside"),
    [
        (None, "12:00", True),
        ("01:00-05:30", "01:00", True),
        ("01:00-05:30", "00:59", False),
        ("01:00-05:30", "05:29", True),
        ("01:00-05:30", "05:30", False),
        ("22:00-04:00", "23:00", True),
        ("22:00-04:00", "03:59", True),
        ("22:00-04:00", "04:00", False),
        ("22:00-04:00", "12:00", False),
        ("00:00-00:00", "12:00", True),
        ("01:00-02:00 Europe/Zurich", "00:30", True),
        ("01:00-02:00 Europe/Zurich", "01:30", False),
    ],
)
def test_a_moment_is_in_a_window_or_not(window: str | None, hour: str, inside: bool) -> None:
    assert in_window(window, datetime.fromisoformat(f"2026-01-15T{hour}:00+00:00").astimezone(UTC)) is inside


def test_summer_is_the_places_own() -> None:
    window = "01:00-02:00 Europe/Zurich"
    assert in_window(window, datetime(2026, 7, 15, 23, 30, tzinfo=UTC))
    assert not in_window(window, datetime(2026, 7, 15, 0, 30, tzinfo=UTC))
