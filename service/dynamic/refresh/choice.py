"""Whether a refresh computes the change of a result or all of it: by the times that earlier refreshes took."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from service.model.times import HOUR_MS

ComputedMode = Literal["INCREMENTAL", "FULL"]

# A mode that was not used for so many refreshes or so long is tried again, unless it seemed several times slower.
_TRIED_AFTER_REFRESHES, _TRIED_AFTER_MS, _HOPELESS = 20, 24 * HOUR_MS, 3.0
# A full refresh must be faster by this factor: it writes all rows again, which costs those that read them, too.
_CLEARLY = 1.1
# After so many refreshes in full by the threshold alone, the change is computed once.
_UNTESTED = 4
# So many of the latest refreshes of a mode count.
_LATEST = 5
# A refresh of another size says less the more its size differs: beyond this factor, nothing.
_COMPARABLE = 20.0


@dataclass(frozen=True)
class Workload:
    """What a refresh has to read, by metadata alone."""

    changed_rows: int
    """The rows in files, and at places, that only one of the two states of each source has."""
    source_rows: int
    """All rows of the sources."""
    removes: bool = False
    """Whether rows went, or were written again, and not only came."""

    @property
    def share(self) -> float:
        return self.changed_rows / max(1, self.source_rows)


@dataclass(frozen=True)
class MeasuredRefresh:
    """An earlier refresh of the same query."""

    mode: ComputedMode
    seconds: float
    work: Workload
    ended_ms: int


@dataclass(frozen=True)
class Choice:
    """The mode of a refresh, and why."""

    mode: ComputedMode
    reason: Literal["THRESHOLD", "COST", "TRIAL"]
    expected_s: float | None = None
    """How long it will take; None if that is not known."""
    other_s: float | None = None
    """How long the other mode would take."""


def choose(work: Workload, measured: Sequence[MeasuredRefresh], threshold: float, now_ms: int) -> Choice:
    """The cheaper mode. `measured` are the latest refreshes, newest first; without comparable ones the threshold of
    the share of changed rows decides."""
    change_s, whole_s = change_seconds(work, measured), full_seconds(work, measured)
    by_share: ComputedMode = "INCREMENTAL" if work.share <= threshold else "FULL"
    if change_s is None or whole_s is None:
        if by_share == "FULL" and _is_only_full(measured):
            return Choice("INCREMENTAL", "TRIAL", None, whole_s)
        known = change_s if by_share == "INCREMENTAL" else whole_s
        return Choice(by_share, "THRESHOLD", known, whole_s if by_share == "INCREMENTAL" else change_s)
    mode: ComputedMode = "INCREMENTAL" if change_s <= _CLEARLY * whole_s else "FULL"
    other: ComputedMode = "FULL" if mode == "INCREMENTAL" else "INCREMENTAL"
    took, takes = (change_s, whole_s) if mode == "INCREMENTAL" else (whole_s, change_s)
    if takes <= _HOPELESS * took and _is_old(other, measured, now_ms):
        return Choice(other, "TRIAL", takes, took)
    return Choice(mode, "COST", took, takes)


def full_seconds(work: Workload, measured: Sequence[MeasuredRefresh]) -> float | None:
    """How long it would take to compute the whole result, by the latest times; it grows with the sources."""
    found = [one for one in measured if one.mode == "FULL"][:_LATEST]
    if not found:
        return None
    return median(one.seconds * _scaled(work.source_rows, one.work.source_rows) for one in found)


def change_seconds(work: Workload, measured: Sequence[MeasuredRefresh]) -> float | None:
    """How long it would take to compute the change, by refreshes with changes of the same kind and a similar size."""
    alike = [one for one in measured if one.mode == "INCREMENTAL" and one.work.removes == work.removes]
    near = [one for one in alike if _distance(one.work.changed_rows, work.changed_rows) <= _COMPARABLE]
    near.sort(key=lambda one: _distance(one.work.changed_rows, work.changed_rows))
    if not near:
        return None
    return median(one.seconds * _scaled(work.changed_rows, one.work.changed_rows) for one in near[:_LATEST])


def _is_old(mode: ComputedMode, measured: Sequence[MeasuredRefresh], now_ms: int) -> bool:
    """Whether a mode was last used long ago."""
    last = next((n for n, one in enumerate(measured) if one.mode == mode), None)
    if last is None:
        return True
    return last >= _TRIED_AFTER_REFRESHES or now_ms - measured[last].ended_ms >= _TRIED_AFTER_MS


def _is_only_full(measured: Sequence[MeasuredRefresh]) -> bool:
    """Whether the latest refreshes were all in full, so that the threshold was never put to the test."""
    latest = measured[:_UNTESTED]
    return len(latest) == _UNTESTED and all(one.mode == "FULL" for one in latest)


def _distance(one: int, other: int) -> float:
    """By what factor two sizes differ."""
    small, large = sorted((max(1, one), max(1, other)))
    return large / small


def _scaled(now: int, then: int) -> float:
    """How much longer it takes to read `now` rows than `then`. Half of a refresh does not depend on their number."""
    return 0.5 + 0.5 * max(1, now) / max(1, then)
