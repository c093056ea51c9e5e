"""When a schedule is due: pure functions of its cron expression, its time zone, its delay and the time."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from service.errors import InvalidRequest
from service.model.times import check_zone

# A run that cannot start within this time was missed: no instance was there when it was due.
LATE_S = 60
_LONGEST_DELAY_S = 31 * 86_400
_DELAY = re.compile(r"([0-9]{1,7})([smhd])")
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_FORM = "minute, hour, day of the month, month and day of the week, such as 0 2 * * *"


@dataclass(frozen=True)
class ScheduleTiming:
    """When a schedule runs: at the times of a cron expression in an IANA time zone, plus a delay."""

    cron: str
    timezone: str = "UTC"
    delay_s: int = 0
    catch_up: bool = True


def check_timing(timing: ScheduleTiming, now: datetime) -> None:
    """Refuse a cron expression without a time, or an unknown time zone."""
    check_zone(timing.timezone, "timezone")
    if len(timing.cron.split()) != 5:  # the library takes a sixth field for seconds
        raise InvalidRequest(f"cron {timing.cron[:80]!r} must have five fields: {_FORM}", field="cron")
    try:
        found = next_run(timing, now)
    except (CronSimError, AssertionError, TypeError) as e:  # the latter two for parts that contradict each other
        part = str(e).removeprefix("Bad ").replace("-", " ") or "one of its parts"
        raise InvalidRequest(
            f"cron {timing.cron[:80]!r} cannot be read ({part}); its fields are {_FORM}", field="cron"
        ) from e
    if found is None:
        raise InvalidRequest(f"cron {timing.cron[:80]!r} matches no time in the next 50 years", field="cron")


def parse_delay(text: str) -> int:
    """The seconds that a delay such as `15m` means."""
    found = _DELAY.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else -1
    if not 0 <= seconds <= _LONGEST_DELAY_S:
        raise InvalidRequest(
            f"delay {text[:80]!r} must be a number of s, m, h or d, such as 15m, and at most 31d", field="delay"
        )
    return seconds


def show_delay(seconds: int) -> str | None:
    """A delay in the form of a request; None for none."""
    if not seconds:
        return None
    unit = next(unit for unit, size in _SECONDS.items() if seconds % size == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def next_run(timing: ScheduleTiming, after: datetime) -> datetime | None:
    """The first time strictly after a moment; None if there is none within 50 years.

    When clocks go forward, a run at a fixed time in the skipped hour is due once, right after it. When they go back, a
    run at a fixed time is due in the first of the two hours, and one every hour or every few minutes in both.
    """
    delay = timedelta(seconds=timing.delay_s)
    latest, zone = (after - delay).astimezone(UTC), check_zone(timing.timezone, "timezone")
    found = [_first(reading, zone, latest) for reading in _readings(timing.cron)]
    return min((moment + delay for moment in found if moment is not None), default=None)


def _first(cron: str, zone: ZoneInfo, latest: datetime) -> datetime | None:
    for tick in CronSim(cron, latest.astimezone(zone)):
        found = tick.astimezone(UTC)
        if found > latest:  # in the second of two equal hours the library starts with the first again
            return found
    return None


def _readings(cron: str) -> list[str]:
    """The expressions for the library, which decides by the first character of the minute and hour fields.

    If either is `*`, time runs on: repeated hours both count, a skipped hour does not exist. Otherwise a run is at a
    fixed time: in the first of two equal hours, or right after the skipped hour.
    """
    minute, hour, days = cron.split(maxsplit=2)
    if hour in ("*", "*/1"):
        return [cron]
    fixed = " ".join([re.sub(r"^\*", "0-59", minute), re.sub(r"^\*", "0-23", hour), days])
    return [cron, fixed] if minute.startswith("*") else [fixed]


def due(timing: ScheduleTiming, planned: datetime, now: datetime) -> Literal["not yet", "run", "missed"]:
    """What to do at a planned time: wait, run once however many runs were missed, or skip it."""
    if now < planned:
        return "not yet"
    late = now - planned > timedelta(seconds=LATE_S)
    return "missed" if late and not timing.catch_up else "run"
