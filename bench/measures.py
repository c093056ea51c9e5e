"""What a part of the measurements returns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.stats import median, percentile

FIRN = "Firn"
Unit = Literal["ms", "s", "rows/s"]


@dataclass(frozen=True)
class Line:
    """One thing measured of one tool; `what` is the same text for every tool it was measured of."""

    what: str
    who: str
    unit: Unit
    values: Sequence[float]
    note: str = ""
    # Further figures, for the JSON file.
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        return median(self.values) if self.values else None

    @property
    def p95(self) -> float | None:
        """The slow end: the time that 95 of 100 do not exceed, the rate that 95 of 100 reach."""
        return percentile(self.values, 0.05 if self.unit == "rows/s" else 0.95) if self.values else None

    def as_json(self) -> dict[str, Any]:
        figures = {"n": len(self.values), "median": _rounded(self.median), "p95": _rounded(self.p95)}
        return {"what": self.what, "who": self.who, "unit": self.unit, **figures, "note": self.note, **self.more}


@dataclass(frozen=True)
class Claim:
    """What a measurement must show. `measured` is None if it could not be measured."""

    text: str
    measured: float | None
    at: Literal["most", "least"]
    target: float

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.target if self.at == "most" else self.measured >= self.target

    def as_json(self) -> dict[str, Any]:
        result = {"claim": self.text, "measured": _rounded(self.measured), f"at_{self.at}": self.target}
        return {**result, "met": self.met}


@dataclass(frozen=True)
class Section:
    """What one part measured."""

    lines: list[Line]
    claims: list[Claim] = field(default_factory=list)


def ratio(above: Line, below: Line) -> float | None:
    """The first median, divided by the second; None if either was not measured."""
    if above.median is None or not below.median:
        return None
    return above.median / below.median


def _rounded(value: float | None) -> float | None:
    """Rounded to four significant digits."""
    return None if value is None else float(f"{value:.4g}")
