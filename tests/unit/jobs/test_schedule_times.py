"""When a schedule is due: by the clock of its place, over changes of that clock, and once for all that was missed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.jobs.schedules.times import ScheduleTiming, check_timing, due, next_run, parse_delay, show_delay

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
# One that changes by half an hour, one at midnight, one that never does, one an odd offset from UTC.
ZONES = ("UTC", "Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu")


@dataclass(frozen=True)
class Expression:
    """A cron expression, and what it says."""

    cron: str
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def names(self, clock: datetime) -> bool:
        return (
            clock.minute in self.minutes
            and clock.hour in self.hours
            and clock.month in self.months
            and clock.isoweekday() % 7 in self.weekdays
            and (clock.second, clock.microsecond) == (0, 0)
        )


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    def part(low: int, high: int, *, few: int) -> tuple[str, frozenset[int]]:
        every = st.just(("*", frozenset(range(low, high + 1))))
        steps = st.integers(2, 7).map(lambda n: (f"*/{n}", frozenset(range(low, high + 1, n))))
        some = st.sets(st.integers(low, high), min_size=1, max_size=few).map(
            lambda s: (",".join(map(str, sorted(s))), frozenset(s))
        )
        return draw(st.one_of(every, steps, some))

    minutes, hours = part(0, 59, few=3), part(0, 23, few=3)
    months, weekdays = part(1, 12, few=4), part(0, 6, few=3)
    cron = f"{minutes[0]} {hours[0]} * {months[0]} {weekdays[0]}"
    return Expression(cron, minutes[1], hours[1], months[1], weekdays[1])


moments = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
near_changes = st.builds(
    lambda day, seconds: day + timedelta(seconds=seconds),
    st.sampled_from(
        [datetime(2026, m, d, tzinfo=UTC) for m, d in ((3, 8), (3, 29), (4, 4), (10, 3), (10, 25), (11, 1))]
    ),
    st.integers(-86_400, 86_400),
)


def changes_near(moment: datetime, zone: ZoneInfo) -> bool:
    """Whether the clock of a place is changed within some hours of a moment."""
    hours = range(-3, 4)
    return len({(moment + timedelta(hours=h)).astimezone(zone).utcoffset() for h in hours}) > 1


@given(expression=expressions(), zone=st.sampled_from(ZONES), after=moments | near_changes)
def test_the_next_time_is_later_and_is_one_that_the_expression_names_by_the_clock_of_the_place(
    expression: Expression, zone: str, after: datetime
) -> None:
    found = next_run(ScheduleTiming(expression.cron, zone), after)
    assert found is not None
    assert found > after
    clock = found.astimezone(ZoneInfo(zone))
    assert expression.names(clock) or changes_near(found, ZoneInfo(zone)), clock


@given(expression=expressions(), zone=st.sampled_from(ZONES), after=moments)
def test_no_time_that_the_expression_names_is_left_out(expression: Expression, zone: str, after: datetime) -> None:
    found = next_run(ScheduleTiming(expression.cron, zone), after)
    assert found is not None
    minute = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(min(600, int((found - minute).total_seconds() // 60))):
        assert not expression.names(minute.astimezone(ZoneInfo(zone))) or changes_near(minute, ZoneInfo(zone)), minute
        minute += timedelta(minutes=1)


@given(
    expression=expressions(),
    zone=st.sampled_from(ZONES),
    after=moments | near_changes,
    delay_s=st.integers(0, 3 * 86_400),
)
def test_a_delay_shifts_every_time_by_itself(expression: Expression, zone: str, after: datetime, delay_s: int) -> None:
    later = next_run(ScheduleTiming(expression.cron, zone, delay_s), after)
    plain = next_run(ScheduleTiming(expression.cron, zone), after - timedelta(seconds=delay_s))
    assert later is not None
    assert plain is not None
    assert later == plain + timedelta(seconds=delay_s)
    assert later > after


@given(
    expression=expressions(),
    zone=st.sampled_from(ZONES),
    begin=moments | near_changes,
    gap_s=st.integers(0, 40 * 86_400),
)
def test_after_a_gap_of_any_length_there_is_one_run_and_then_the_regular_ones(
    expression: Expression, zone: str, begin: datetime, gap_s: int
) -> None:
    timing = ScheduleTiming(expression.cron, zone)
    planned = next_run(timing, begin)
    assert planned is not None
    now = begin + timedelta(seconds=gap_s)
    expected = "run" if now >= planned else "not yet"
    assert due(timing, planned, now) == expected
    if expected == "run":
        following = next_run(timing, now)
        assert following is not None
        assert due(timing, following, now) == "not yet"
        assert due(timing, following, following) == "run"


def test_without_catching_up_a_run_is_left_out_that_is_more_than_a_minute_late() -> None:
    timing = ScheduleTiming("0 2 * * *", catch_up=False)
    late = [due(timing, NOW, NOW + timedelta(seconds=s)) for s in (-1, 0, 60, 61, 86_400)]
    assert late == ["not yet", "run", "run", "missed", "missed"]


def test_what_is_due_in_an_hour_that_is_left_out_runs_right_after_it_once() -> None:
    timing = ScheduleTiming("30 2 * * *", "Europe/Zurich")
    first = next_run(timing, datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert first == datetime(2026, 3, 29, 1, tzinfo=UTC)  # 03:00 there
    assert next_run(timing, first) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "times"),
    [  # by the clock of the place, which goes from 02:00 to 03:00
        ("30 2 * * *", ["03:00"]),
        ("*/30 2 * * *", ["03:00"]),
        ("*/15 2 * * *", ["03:00"]),
        ("* 2 * * *", ["03:00"]),
        ("0 */2 * * *", ["00:00", "03:00", "04:00"]),
        ("*/30 1-3 * * *", ["01:00", "01:30", "03:00", "03:30"]),
        ("30 * * * *", ["00:30", "01:30", "03:30", "04:30"]),
        ("0 */1 * * *", ["00:00", "01:00", "03:00", "04:00"]),
    ],
)
def test_where_an_hour_is_left_out_what_it_names_runs_right_after_it_once(cron: str, times: list[str]) -> None:
    assert on_the_day(cron, datetime(2026, 3, 28, 23, tzinfo=UTC), hours=4) == times


@pytest.mark.parametrize(
    ("cron", "times"),
    [  # by the clock of the place, which goes from 03:00 to 02:00
        ("30 2 * * *", ["02:30"]),
        ("0 */2 * * *", ["00:00", "02:00", "04:00"]),
        ("*/30 2 * * *", ["02:00", "02:30", "02:00", "02:30"]),
        ("0 * * * *", ["00:00", "01:00", "02:00", "02:00", "03:00", "04:00"]),
        ("0 1,2,3 * * *", ["01:00", "02:00", "03:00"]),
    ],
)
def test_where_an_hour_comes_twice_what_names_certain_times_runs_in_the_first(cron: str, times: list[str]) -> None:
    assert on_the_day(cron, datetime(2026, 10, 24, 22, tzinfo=UTC), hours=6) == times


def on_the_day(cron: str, begin: datetime, hours: int) -> list[str]:
    """When it runs in Zurich in so many hours from a moment on, by the clock there."""
    found, at = [], begin - timedelta(seconds=1)
    while (following := next_run(ScheduleTiming(cron, "Europe/Zurich"), at)) and following < begin + timedelta(
        hours=hours
    ):
        found.append(following.astimezone(ZoneInfo("Europe/Zurich")).strftime("%H:%M"))
        at = following
    return found


def test_what_is_due_in_an_hour_that_comes_twice_runs_in_the_first() -> None:
    timing = ScheduleTiming("30 2 * * *", "Europe/Zurich")
    first = next_run(timing, datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    for after in (first, datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, 15, tzinfo=UTC)):
        assert next_run(timing, after) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_what_runs_every_so_many_minutes_runs_in_both_hours() -> None:
    timing, at = ScheduleTiming("*/30 * * * *", "Europe/Zurich"), datetime(2026, 10, 24, 23, 45, tzinfo=UTC)
    times = []
    for _ in range(5):
        found = next_run(timing, at)
        assert found is not None
        times.append(at := found)
    assert {b - a for a, b in pairwise(times)} == {timedelta(minutes=30)}


@pytest.mark.parametrize(
    ("timing", "field", "says"),
    [
        (ScheduleTiming("0 2 * *"), "cron", "must have five fields"),
        (ScheduleTiming("0 0 2 * * *"), "cron", "must have five fields"),
        (ScheduleTiming("@daily"), "cron", "must have five fields"),
        (ScheduleTiming(""), "cron", "must have five fields"),
        (ScheduleTiming("61 2 * * *"), "cron", "minute"),
        (ScheduleTiming("0 24 * * *"), "cron", "hour"),
        (ScheduleTiming("0 2 * * FUN"), "cron", "day of week"),
        (ScheduleTiming("0 2 30 2 *"), "cron", "day of month"),
        (ScheduleTiming("0 2 * * *", "Europe/Zuerich"), "timezone", "did you mean 'Europe/Zurich'"),
        (ScheduleTiming("0 2 * * *", "zurich"), "timezone", "did you mean 'Europe/Zurich'"),
        (ScheduleTiming("0 2 * * *", "Middle Earth"), "timezone", "not a time zone"),
        (ScheduleTiming("0 2 * * *", "../../etc/passwd"), "timezone", "not a time zone"),
    ],
)
def test_what_names_no_time_is_refused_by_its_field(timing: ScheduleTiming, field: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        check_timing(timing, NOW)
    assert refused.value.field == field


@given(st.text("0123456789*/-,#LW MONJA²٣", max_size=30) | st.text(max_size=20))
def test_whatever_stands_for_an_expression_is_taken_or_refused(text: str) -> None:
    timing = ScheduleTiming(text, "Europe/Zurich")
    try:
        check_timing(timing, NOW)
    except InvalidRequest:
        return
    assert next_run(timing, NOW) is not None


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7200), ("31d", 31 * 86_400)]
)
def test_a_delay_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_delay(text) == seconds
    assert parse_delay(show_delay(seconds) or "0s") == seconds


@pytest.mark.parametrize("text", ["", "15", "m", "-1m", "1.5h", "32d", "1w", "15 m", "9999999d", "٣m"])
def test_any_other_delay_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="such as 15m") as refused:
        parse_delay(text)
    assert refused.value.field == "delay"


@given(st.integers(0, 31 * 86_400))
def test_a_delay_is_shown_as_it_could_be_sent(seconds: int) -> None:
    shown = show_delay(seconds)
    assert (parse_delay(shown) if shown else 0) == seconds
