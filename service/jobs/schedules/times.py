"""When a schedule is due: pure functions of its cron expression, its time zone, its delay and the time."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from service.errors import InvalidRequest
from service.model.time_zones import check_zone

# A run that begins later than this was missed: nobody was there when it was due.
LATE_S = 60
_LONGEST_DELAY_S = 31 * 86_400
_DELAY = re.compile(r"([0-9]{1,7})([smhd])")
_STAR = re.compile(r"^\*")
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_FORM = "minute, hour, day of the month, month and day of the week, such as 0 2 * * *"


@dataclass(frozen=True)
class ScheduleTiming:
    """When something is to run: at the times of a cron expression by the clock of a place, and so much later."""

    cron: str
    timezone: str = "UTC"
    delay_s: int = 0
    catch_up: bool = True


def check_timing(timing: ScheduleTiming, now: datetime) -> None:
    """Refuse what names no time, or a place that is not known."""
    check_zone(timing.timezone, "timezone")
    if len(timing.cron.split()) != 5:  # the library takes a sixth field for seconds
        raise InvalidRequest(f"cron {timing.cron[:80]!r} must have five fields: {_FORM}", field="cron")
    try:
        found = next_run(timing, now)
    except (CronSimError, AssertionError, TypeError) as e:  # the latter two for parts that do not go together
        part = str(e).removeprefix("Bad ").replace("-", " ") or "one of its parts"
        raise InvalidRequest(
            f"cron {timing.cron[:80]!r} cannot be read ({part}); its fields are {_FORM}", field="cron"
        ) from e
    if found is None:
        raise InvalidRequest(f"cron {timing.cron[:80]!r} names no time in the next 50 years", field="cron")


def check_delay(text: str) -> int:
    """The seconds that a delay such as `15m` means."""
    found = _DELAY.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else -1
    if not 0 <= seconds <= _LONGEST_DELAY_S:
        raise InvalidRequest(
            f"delay {text[:80]!r} must be a number of s, m, h or d, such as 15m, and at most 31d", field="delay"
        )
    return seconds


def show_delay(seconds: int) -> str | None:
    """A delay as a request would say it; None for none."""
    if not seconds:
        return None
    unit = next(unit for unit, size in _SECONDS.items() if seconds % size == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def next_run(timing: ScheduleTiming, after: datetime) -> datetime | None:
    """The first time strictly after a moment; None where there is none within 50 years.

    Where a clock is put forward, what is due in the hour that is left out runs once, right after it, unless it runs
    every hour anyway; where it is put back, what is due at certain minutes of certain hours runs in the first of the
    two hours, and what runs every so many minutes, or every hour, in both.
    """
    delay = timedelta(seconds=timing.delay_s)
    latest, zone = (after - delay).astimezone(UTC), check_zone(timing.timezone, "timezone")
    found = [_first(reading, zone, latest) for reading in _readings(timing.cron)]
    return min((moment + delay for moment in found if moment is not None), default=None)


def _first(cron: str, zone: ZoneInfo, latest: datetime) -> datetime | None:
    for tick in CronSim(cron, latest.astimezone(zone)):
        found = tick.astimezone(UTC)
        if found > latest:  # in the second of two equal hours the library begins with the first again
            return found
    return None


def _readings(cron: str) -> list[str]:
    """The expression as the library is to read it: it goes by the beginning of the first two fields.

    Where either is a `*`, time is counted through: hours that come twice are both run in, an hour that is left out is
    not there. Else a named time is run at once, in the first of two hours, or right after the one that is left out.
    """
    minute, hour, days = cron.split(maxsplit=2)
    if hour in ("*", "*/1"):
        return [cron]
    named = f"{_STAR.sub('0-59', minute)} {_STAR.sub('0-23', hour)} {days}"
    return [cron, named] if minute.startswith("*") else [named]


def due(timing: ScheduleTiming, planned: datetime, now: datetime) -> Literal["not yet", "run", "missed"]:
    """What to do about the time planned: wait for it, run once however many were missed, or leave it out."""
    if now < planned:
        return "not yet"
    late = now - planned > timedelta(seconds=LATE_S)
    return "missed" if late and not timing.catch_up else "run"
